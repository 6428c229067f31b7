"""What is done about an incident: opened by other causes than alerts, seen, noted, resolved."""

from collections.abc import Collection, Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.monitoring.models import Incident, IncidentEntry
from apps.monitoring.selectors.incidents import incident_get
from apps.monitoring.services import notifications
from apps.monitoring.services.alerting import (
    alert_take,
    end_take,
    evidence_until,
    incidents_sweep,
    run_settle,
)
from apps.training.models import Alert, Checkpoint, Run

__all__ = [
    "LEARNED",
    "alert_take",
    "end_take",
    "incident_acknowledge",
    "incident_note",
    "incident_open",
    "incident_resolve",
    "incident_write_up",
    "incidents_resolve",
    "incidents_sweep",
    "run_settle",
]

# What a closed incident keeps, in the order in which it is asked for.
LEARNED = ("symptom", "assumption", "root_cause", "fix", "lesson")
LONGEST = 10_000  # characters of each
_REQUIRED = {
    "root_cause": "A critical incident needs a root cause.",
    "fix": "A critical incident needs a fix.",
}
_State = Incident.State


def incident_open(
    *,
    project: Project,
    key: str,
    link: str,
    rule: str,
    title: str,
    message: str,
    severity: str,
    run: Run | None = None,
    checkpoint: Checkpoint | None = None,
    onset_step: int | None = None,
    value: float | None = None,
    threshold: float | None = None,
) -> Incident:
    """Record a problem that is no alert of a run: a probe that fired, an outcome that fell.

    While an incident of `key` is open, the problem joins it. Two callers at once make one incident.
    """
    if severity not in notifications.RANKS:
        raise ValueError(f"severity: {severity!r} is unknown")
    key = key[:120]
    with transaction.atomic():
        incident = _open_one(project, key)
        if incident is None:
            now = timezone.now()
            made = Incident(
                project=project,
                key=key,
                run=run,
                checkpoint=checkpoint,
                link=link,
                rule=rule[:60],
                title=title[:200],
                message=message,
                severity=severity,
                onset_step=onset_step,
                opened_at=now,
                heard_at=now,
            )
            try:
                with transaction.atomic():
                    made.save(force_insert=True)
                incident = made
            except IntegrityError:  # somebody else has just opened it: join theirs
                incident = _open_one(project, key)
                if incident is None:
                    raise
        _hear(incident, rule, link, severity, message, onset_step, value, threshold)
    return incident


def _open_one(project: Project, key: str) -> Incident | None:
    return (
        Incident.objects.select_for_update(of=("self",))
        .select_related("project", "run")
        .filter(project=project, key=key)
        .exclude(state=_State.RESOLVED)
        .first()
    )


def _hear(
    incident: Incident,
    rule: str,
    link: str,
    severity: str,
    message: str,
    step: int | None,
    value: float | None,
    threshold: float | None,
) -> None:
    escalates = notifications.RANKS[severity] > notifications.RANKS[incident.severity]
    if escalates:
        incident.severity = severity
    incident.alerts += 1
    incident.heard_at = timezone.now()
    said = notifications.said_of(incident, step=step) | {
        "rule": rule[:60],
        "link": link,
        "severity": severity,
        "message": message,
        "value": notifications.finite(value),
        "threshold": notifications.finite(threshold),
    }
    body = said | notifications.Teller(incident).told(said, escalates=escalates)
    incident.entries.create(kind="alert", at=incident.heard_at, body=body)
    incident.save()


@transaction.atomic
def incident_acknowledge(*, project: Project, incident_id: str, user: User) -> Incident:
    """Say that somebody looks into it; the first to say so stays. Its alerts count as seen."""
    incident = incident_get(project=project, incident_id=incident_id, lock=True)
    if incident.state != _State.OPEN:
        return incident
    now = timezone.now()
    incident.state = _State.ACKNOWLEDGED
    incident.acknowledged_at, incident.acknowledged_by = now, user
    incident.save()
    _see_alerts(incident, user)
    _note_state(incident, user, "acknowledged")
    return incident


@transaction.atomic
def incident_note(*, project: Project, incident_id: str, user: User, text: str) -> IncidentEntry:
    """Write something into its timeline. The same words twice in a row by the same person are a
    double click."""
    incident = incident_get(project=project, incident_id=incident_id, lock=True)
    text = text.strip()
    if not text:
        raise DomainError("The note is empty.", field="text")
    if len(text) > LONGEST:
        raise DomainError(f"At most {LONGEST:,} characters.", field="text")
    last = incident.entries.order_by("-pk").first()
    mine = last is not None and last.kind == "note" and last.by_id == user.pk
    if last is not None and mine and last.body.get("text") == text:
        return last
    return incident.entries.create(kind="note", at=timezone.now(), by=user, body={"text": text})


@transaction.atomic
def incident_write_up(
    *,
    project: Project,
    incident_id: str,
    user: User,
    learned: Mapping[str, str],
    seen: Mapping[str, str] | None = None,
) -> Incident:
    """Keep what is known so far, or add to what was learned. `seen` is what the fields held when
    the person began to write: who would overwrite somebody else's words is told."""
    incident = incident_get(project=project, incident_id=incident_id, lock=True)
    changed = _learn(incident, learned, seen)
    if changed:
        _check_required(incident, when=incident.state == _State.RESOLVED)
        incident.save()
        incident.entries.create(
            kind="state", at=timezone.now(), by=user, body={"wrote": sorted(changed)}
        )
    return incident


@transaction.atomic
def incident_resolve(
    *,
    project: Project,
    incident_id: str,
    user: User,
    learned: Mapping[str, str],
    seen: Mapping[str, str] | None = None,
) -> Incident:
    """Resolve an incident with its root cause, fix and lesson. A critical one needs its root cause
    and its fix.

    Resolving again with the same words (a double click) changes nothing; with other words it is a
    conflict, since somebody else was first.
    """
    incident = incident_get(project=project, incident_id=incident_id, lock=True)
    if incident.state == _State.RESOLVED:
        told = {name: learned[name].strip() for name in LEARNED if name in learned}
        if all(getattr(incident, name) == text for name, text in told.items()):
            return incident
        raise Conflict(
            f"{incident.resolved_by or 'Somebody'} resolved it meanwhile. Your text is still in "
            "the form: save it to add it.",
            code="already_resolved",
        )
    _learn(incident, learned, seen)
    _check_required(incident, when=True)
    now = timezone.now()
    incident.state = _State.RESOLVED
    incident.resolved_at, incident.resolved_by = now, user
    if incident.acknowledged_at is None:
        incident.acknowledged_at, incident.acknowledged_by = now, user
    incident.save()
    _see_alerts(incident, user)
    _note_state(incident, user, "resolved")
    notifications.tell_resolved(incident)
    return incident


def incidents_resolve(
    *, project: Project, incident_ids: Collection[str], user: User, learned: Mapping[str, str]
) -> tuple[list[Incident], list[tuple[Incident, DomainError]]]:
    """Resolve many with one reason; (resolved, those that stay open and why)."""
    done: list[Incident] = []
    refused: list[tuple[Incident, DomainError]] = []
    for incident_id in dict.fromkeys(incident_ids):
        found = incident_get(project=project, incident_id=incident_id)
        if found.state == _State.RESOLVED:
            continue
        try:
            done.append(
                incident_resolve(
                    project=project, incident_id=incident_id, user=user, learned=learned
                )
            )
        except DomainError as error:
            refused.append((found, error))
    return done, refused


def _learn(
    incident: Incident, learned: Mapping[str, str], seen: Mapping[str, str] | None
) -> list[str]:
    """Take over the fields; returns those that changed. Fields that are not sent stay."""
    changed = []
    for name in LEARNED:
        if name not in learned:
            continue
        text, stands = learned[name].strip(), getattr(incident, name)
        if len(text) > LONGEST:
            raise DomainError(f"At most {LONGEST:,} characters.", field=name)
        if text == stands:
            continue
        if seen is not None and name in seen and seen[name].strip() != stands:
            raise Conflict(
                f"This was changed meanwhile to: “{stands[:200]}”. Save again to replace it.",
                field=name,
                code="changed_meanwhile",
            )
        setattr(incident, name, text)
        changed.append(name)
    return changed


def _check_required(incident: Incident, *, when: bool) -> None:
    if not when or incident.severity != "critical":
        return
    for name, sentence in _REQUIRED.items():
        if not getattr(incident, name):
            raise DomainError(sentence, field=name, code="required")


def _see_alerts(incident: Incident, user: User) -> None:
    Alert.objects.filter(entry__incident=incident, acknowledged_at__isnull=True).update(
        acknowledged_at=timezone.now(), acknowledged_by=user
    )


def _note_state(incident: Incident, user: User, to: str) -> None:
    body: dict[str, Any] = {"to": to}
    if to == "resolved" and incident.run is not None:
        body["evidence_until"] = evidence_until(incident.run)
    incident.entries.create(kind="state", at=timezone.now(), by=user, body=body)
    audit_record(
        action=f"incident.{to}",
        actor=user,
        project=incident.project,
        subject=incident.pk,
        details={"rule": incident.rule, "title": incident.title},
    )
