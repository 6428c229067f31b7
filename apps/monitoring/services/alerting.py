"""From alerts to incidents: one open incident for a run's trouble, however many alerts it raises.

An alert is stored by the transaction that applies its batch of events. What follows from it is
settled right after that commit, in a transaction of its own, for three reasons. A bug here can
then neither lose an alert nor fail a run, nor hold up the events behind it. The evidence of the
same batch is there by then, on whichever side of the alert it lay. And people who acknowledge an
incident never wait for a batch. What is cut off between the two commits, and evidence that comes a
batch late, `incidents_sweep` picks up within seconds.
"""

import logging
from datetime import timedelta
from functools import partial

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from apps.monitoring.models import Incident, IncidentEntry
from apps.monitoring.services import causes, telling
from apps.training.models import Alert, Run, RunEvent
from workers.diagnosis.verdict import Finding, verdict

log = logging.getLogger(__name__)
MOST_AT_ONCE = 1000  # alerts of a run in one transaction; the sweep takes the rest
LOOK_BACK = timedelta(days=2)  # how far the sweep looks for alerts that belong to no incident
_State = Incident.State


def alert_take(run: Run, alert: Alert) -> None:
    """Hear of an alert, inside the transaction that stores it: settle the run after it. What comes
    back in an experiment about another run is what the experiment asks, and no trouble of its
    own."""
    if alert.severity != "info" and run.about_id is None:
        transaction.on_commit(partial(_settle_after, run.pk))


def end_take(run: Run) -> None:
    """Hear of a run that has ended: a contract it broke is a trouble without an alert."""
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
    since = timezone.now() - LOOK_BACK
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
        found = verdict(causes.findings_of(run, alerts=alerts, after=causes.evidence_after(run)))
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
        said = telling.said_of(incident, step=run.step)
        body = said | telling.Teller(incident).told(said, escalates=False)
        incident.entries.create(kind="alert", at=now, body=body)
    return incident


def _describe(incident: Incident, cause: Finding | None) -> None:
    """Say what the incident is about; without a cause on the chain, the rule that spoke."""
    run, link = incident.run, cause.link if cause is not None else ""
    assert run is not None  # noqa: S101 — incidents of this module are of runs
    incident.link = link
    incident.key = f"{_prefix(run)}{link or incident.rule}"[:120]
    incident.title = (cause.title if cause is not None else causes.rule_title(incident.rule))[:200]
    if cause is not None:
        incident.rule, incident.onset_step = cause.rule, cause.onset
        if cause.detail:
            incident.message = cause.detail


def _move(incident: Incident, cause: Finding) -> None:
    """An earlier or more outward cause came to light: from now on the incident is about it."""
    if (incident.link, incident.rule) == (cause.link, cause.rule):
        incident.onset_step = cause.onset
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
    teller = telling.Teller(incident)
    entries = []
    for alert in fresh:
        escalates = telling.RANKS[alert.severity] > telling.RANKS[incident.severity]
        if escalates:
            incident.severity = alert.severity
        said = telling.said_of_alert(alert, link=causes.rule_link(alert.rule))
        incident.alerts += 1
        body = said | teller.told(said, escalates=escalates)
        entries.append(
            IncidentEntry(
                incident=incident, kind="alert", alert=alert, at=alert.raised_at, body=body
            )
        )
    IncidentEntry.objects.bulk_create(entries)
    incident.heard_at = timezone.now()
