"""From alerts to incidents: one open incident for a run's problem, however many alerts it raises.

An alert is stored by the transaction that applies its batch of events. What follows from it is
settled right after that commit, in a transaction of its own, for three reasons. A bug here can
then neither lose an alert nor fail a run, nor hold up the events behind it. The evidence of the
same batch is there by then, on whichever side of the alert it lay. And people who acknowledge an
incident never wait for a batch. What is cut off between the two commits, and evidence that comes a
batch late, `incidents_sweep` picks up within seconds.
"""

import logging
from collections.abc import Iterable
from dataclasses import fields
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import F, Min, QuerySet
from django.utils import timezone

from apps.monitoring.models import Incident, IncidentEntry
from apps.monitoring.services import notifications
from apps.training.models import Alert, Run, RunEvent
from workers.contract.events import Evidence
from workers.diagnosis.replay import findings_said
from workers.rules.choices import BY_NAME, title_of
from workers.rules.diagnosis import Finding, finding_of_failure, verdict

# What broke first in a run, by what the run has said so far: the cause an incident is about.

MOST_EVIDENCE = 1000  # the earliest; a run says each problem once, so there are a few dozen
_FIELDS = {field.name for field in fields(Evidence)}


def evidence_of(run: Run, *, after: int = 0) -> list[Evidence]:
    """What the run has said of itself, in order; of events later than `after` (a key of RunEvent)
    only. Attempts that a later one superseded count too: the problem did happen, and an incident
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


def rule_stage(rule: str) -> str:
    """The stage that a rule stands for; empty for a rule without one."""
    known = BY_NAME.get(rule)
    return known.stage if known is not None else ""


def _by_rule(rule: str, step: int) -> list[Finding]:
    known = BY_NAME.get(rule)
    if known is None:
        return []
    return [
        Finding(
            stage=known.stage,
            rule=rule,
            evidence_class=known.evidence_class,
            step=step,
            start_step=step,
            title=known.title,
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


log = logging.getLogger(__name__)
MOST_AT_ONCE = 1000  # alerts of a run in one transaction; the sweep takes the rest
SWEEP_WINDOW = timedelta(days=2)  # how far the sweep looks for alerts that belong to no incident
_State = Incident.State


def alert_take(run: Run, alert: Alert) -> None:
    """Hear of an alert, inside the transaction that stores it: settle the run after it. What comes
    back in an experiment about another run is what the experiment asks, and no problem of its
    own."""
    if alert.severity != "info" and run.about_id is None:
        transaction.on_commit(partial(_settle_after, run.pk))


def end_take(run: Run) -> None:
    """Hear of a run that has ended: a contract it broke is a problem without an alert."""
    if run.failure_kind and run.about_id is None:
        transaction.on_commit(partial(_settle_after, run.pk))


def _settle_after(run_id: str) -> bool:
    """Whatever goes wrong here is logged and the sweep's business: the batch is committed, and its
    worker must neither fail nor say that it did. (`on_commit(robust=True)` will not do: it asks a
    callback that raised for a name, which a `partial` lacks, and raises itself.)"""
    try:
        run_settle(run_id=run_id)
    except Exception:
        log.exception("run %s: its alerts could not be settled", run_id)
        return False
    return True


@transaction.atomic
def run_settle(*, run_id: str) -> Incident | None:
    """Bring the run's open incident up to what the run has said; returns it, None if there is none.

    The order in which alerts and evidence came makes no difference, nor does settling twice. The
    run's row is held, so of several event workers one settles at a time.
    """
    run = (
        Run.objects.select_for_update(of=("self",), no_key=True)
        .select_related("project")
        .filter(pk=run_id)
        .first()
    )
    if run is None:
        return None
    loose = _loose(Alert.objects.filter(run=run))
    fresh = list(loose.order_by("attempt", "seq")[:MOST_AT_ONCE])
    incident = (
        Incident.objects.select_for_update()
        .filter(run=run, key__startswith=_prefix(run))
        .exclude(state=_State.RESOLVED)
        .first()
    )
    if incident is not None:
        incident.run, incident.project = run, run.project
    cause = _cause(run, incident, fresh)
    if incident is None:
        if not fresh and not _failed_anew(run, cause):
            return None
        incident = _open(run, cause, fresh)
    elif cause is not None:
        _move(incident, cause)
    _join(incident, fresh)
    incident.save()
    return incident


def incidents_sweep() -> int:
    """Settle the runs with alerts in no incident, or with evidence newer than their open incident.

    Every few seconds, by the scheduler. Returns how many runs were looked at. One that cannot be
    settled is logged and holds up no other.
    """
    since = timezone.now() - SWEEP_WINDOW
    loose = _loose(Alert.objects.filter(run__heard_at__gte=since))
    late = RunEvent.objects.filter(
        type="Evidence",
        run__incidents__state__in=(_State.OPEN, _State.ACKNOWLEDGED),
        at__gt=F("run__incidents__updated_at"),
    )
    runs = {*loose.values_list("run_id", flat=True), *late.values_list("run_id", flat=True)}
    for run_id in sorted(runs):
        _settle_after(run_id)
    return len(runs)


def _loose(alerts: QuerySet[Alert]) -> QuerySet[Alert]:
    """Those that no incident has taken; what somebody has seen already needs none, nor what an
    experiment about another run brought back."""
    return alerts.filter(
        entry__isnull=True, acknowledged_at__isnull=True, run__about__isnull=True
    ).exclude(severity="info")


def _prefix(run: Run) -> str:
    return f"run:{run.pk}:"


def _cause(run: Run, incident: Incident | None, fresh: list[Alert]) -> Finding | None:
    """What broke first; None where no alert's rule is on the chain. A diagnosis that fails names no
    cause, and the alert stands for itself: better told without a cause than not told."""
    alerts = [alert.pk for alert in fresh]
    if incident is not None:
        joined = incident.entries.filter(alert__isnull=False)
        alerts += joined.values_list("alert_id", flat=True)
    try:
        found = verdict(findings_of(run, alerts=alerts, after=evidence_after(run)))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        log.exception("run %s: its evidence could not be judged", run.pk)
        return None
    return found.first if found is not None else None


def _failed_anew(run: Run, cause: Finding | None) -> bool:
    """Whether the run ended by breaking a contract of which no incident has been opened."""
    if cause is None or cause.rule != run.failure_kind:
        return False
    return not Incident.objects.filter(run=run, rule=cause.rule).exists()


def _open(run: Run, cause: Finding | None, fresh: list[Alert]) -> Incident:
    now = timezone.now()
    first = fresh[0] if fresh else None
    incident = Incident(
        project=run.project,
        run=run,
        rule=first.rule if first is not None else run.failure_kind,
        message=first.message if first is not None else run.failure_message,
        severity=first.severity if first is not None else "critical",
        onset_step=first.step if first is not None else run.step,
        opened_at=now,
        heard_at=now,
    )
    _describe(incident, cause)
    incident.save(force_insert=True)
    if first is None:  # the run failed by a contract and raised no alert of it
        said = notifications.said_of(incident, step=run.step)
        body = said | notifications.Teller(incident).told(said, escalates=False)
        incident.entries.create(kind="alert", at=now, body=body)
    return incident


def _describe(incident: Incident, cause: Finding | None) -> None:
    """Say what the incident is about; without a cause on the chain, the rule that spoke."""
    run, link = incident.run, cause.stage if cause is not None else ""
    assert run is not None  # noqa: S101 — incidents of this module are of runs
    incident.link = link
    incident.key = f"{_prefix(run)}{link or incident.rule}"[:120]
    incident.title = (cause.title if cause is not None else title_of(incident.rule))[:200]
    if cause is not None:
        incident.rule, incident.onset_step = cause.rule, cause.start_step
        if cause.detail:
            incident.message = cause.detail


def _move(incident: Incident, cause: Finding) -> None:
    """An earlier or more outward cause came to light: from now on the incident is about it."""
    if (incident.link, incident.rule) == (cause.stage, cause.rule):
        incident.onset_step = cause.start_step
        if cause.detail:
            incident.message = cause.detail
        return
    before = {"link": incident.link, "rule": incident.rule, "title": incident.title}
    _describe(incident, cause)
    after = {"link": incident.link, "rule": incident.rule, "title": incident.title}
    incident.entries.create(
        kind="state", at=timezone.now(), body={"moved": True, "from": before, "to_cause": after}
    )


def _join(incident: Incident, fresh: list[Alert]) -> None:
    """Enter the alerts, raise the severity where they are worse, and tell of the first few."""
    if not fresh:
        return
    teller = notifications.Teller(incident)
    entries = []
    for alert in fresh:
        escalates = notifications.RANKS[alert.severity] > notifications.RANKS[incident.severity]
        if escalates:
            incident.severity = alert.severity
        said = notifications.said_of_alert(alert, link=rule_stage(alert.rule))
        incident.alerts += 1
        body = said | teller.told(said, escalates=escalates)
        entries.append(
            IncidentEntry(
                incident=incident, kind="alert", alert=alert, at=alert.raised_at, body=body
            )
        )
    IncidentEntry.objects.bulk_create(entries)
    incident.heard_at = timezone.now()
