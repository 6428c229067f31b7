"""What broke first in a run, by what the run has said so far: the cause an incident is about."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from django.db.models import Min

from apps.monitoring.models import Incident, IncidentEntry
from apps.training.models import Alert, Run, RunEvent
from workers.contract.events import Evidence
from workers.contract.guards import RULES
from workers.diagnosis.detectors import DETECTORS, title_of
from workers.diagnosis.replay import findings_said
from workers.diagnosis.verdict import TREND, Finding, finding_of_failure

MOST_EVIDENCE = 1000  # the earliest; a run says each trouble once, so there are a few dozen
_GUARDS = {rule.name: rule for rule in RULES}
_DETECTORS = {one.rule: one for one in DETECTORS}
_FIELDS = {field.name for field in fields(Evidence)}


def evidence_of(run: Run, *, after: int = 0) -> list[Evidence]:
    """What the run has said of itself, in order; of events later than `after` (a key of RunEvent)
    only. Attempts that a later one superseded count too: the trouble did happen, and an incident
    is about what happened, whatever becomes of the run."""
    rows = RunEvent.objects.filter(run=run, type="Evidence", pk__gt=after).order_by(
        "attempt", "seq"
    )
    return [
        Evidence(**{name: value for name, value in body.items() if name in _FIELDS})
        for body in rows.values_list("body", flat=True)[:MOST_EVIDENCE]
    ]


def findings_of(run: Run, *, alerts: Iterable[int], after: int = 0) -> list[Finding]:
    """The findings behind an incident: the run's evidence, how it failed, and for alerts (by key)
    whose evidence is not there, or not yet, what their rule says of itself.

    So an alert counts for the same whether its evidence came before it, after it, or in the next
    batch of events.
    """
    found = findings_said(evidence_of(run, after=after))
    if run.failure_kind:
        failure = finding_of_failure(run.step, run.failure_kind, run.failure_message)
        found += [failure] if failure else []
    known = {one.rule for one in found}
    rules = Alert.objects.filter(pk__in=list(alerts)).exclude(rule__in=known)
    for row in rules.values("rule").annotate(first=Min("step")).order_by("first", "rule"):
        found += _by_rule(row["rule"], row["first"])
    return found


def rule_link(rule: str) -> str:
    """The link that a rule stands for; empty for a rule nobody has put on the chain."""
    known = _GUARDS.get(rule) or _DETECTORS.get(rule)
    return known.link if known is not None else ""


def rule_title(rule: str) -> str:
    guard = _GUARDS.get(rule)
    return guard.title if guard is not None else title_of(rule)


def _by_rule(rule: str, step: int) -> list[Finding]:
    link = rule_link(rule)
    if not link:
        return []
    known = _GUARDS.get(rule) or _DETECTORS.get(rule)
    return [
        Finding(
            link=link,
            rule=rule,
            evidence_class=known.evidence_class if known is not None else TREND,
            step=step,
            onset=step,
            title=rule_title(rule),
        )
    ]


def incident_findings(incident: Incident) -> list[Finding]:
    """As `findings_of`, for pages: what is known now of an incident of a run."""
    if incident.run is None:
        return []
    alerts = IncidentEntry.objects.filter(incident=incident, alert__isnull=False)
    return findings_of(
        incident.run,
        alerts=alerts.values_list("alert_id", flat=True),
        after=evidence_after(incident.run, before=incident),
    )


def evidence_after(run: Run, *, before: Incident | None = None) -> int:
    """Up to which event of the run its evidence belongs to incidents that are closed: what was
    resolved is no cause of what comes later."""
    closed: Any = Incident.objects.filter(run=run, state=Incident.State.RESOLVED)
    if before is not None:
        closed = closed.exclude(pk=before.pk).filter(resolved_at__lte=before.opened_at)
    last = closed.order_by("-resolved_at").first()
    if last is None:
        return 0
    entry = last.entries.filter(kind="state", body__to="resolved").order_by("-pk").first()
    return int(entry.body.get("evidence_until", 0)) if entry is not None else 0


def evidence_until(run: Run) -> int:
    """The newest event of evidence that the run has sent."""
    newest = RunEvent.objects.filter(run=run, type="Evidence").order_by("-pk").first()
    return newest.pk if newest is not None else 0
