"""Keeping quiet for a while: mutes always have an end, and hide nothing."""

from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import DomainError, Missing
from apps.monitoring.chain import LINK_NAMES
from apps.monitoring.models import Incident, Mute
from apps.training.models import Run

PRESETS: dict[str, tuple[str, timedelta]] = {
    "1h": ("1 hour", timedelta(hours=1)),
    "8h": ("8 hours", timedelta(hours=8)),
    "1d": ("1 day", timedelta(days=1)),
    "1w": ("1 week", timedelta(weeks=1)),
}
LONGEST = timedelta(days=90)


def preset_end(name: str) -> datetime:
    if name not in PRESETS:
        raise DomainError("Say for how long, or until when.", field="until")
    return timezone.now() + PRESETS[name][1]


@transaction.atomic
def mute_create(
    *,
    project: Project,
    user: User,
    until: datetime | None,
    reason: str,
    run: Run | None = None,
    link: str = "",
    rule: str = "",
) -> Mute:
    """Tell nobody of what fits, until then. Empty fields fit everything; the same mute again, from
    a second tab or a double click, is the one that is there."""
    now = timezone.now()
    if until is None:
        raise DomainError("A mute needs an end.", field="until")
    if until <= now:
        raise DomainError("That is in the past.", field="until")
    if until > now + LONGEST:
        raise DomainError(f"At most {LONGEST.days} days; renew it then.", field="until")
    reason = reason.strip()
    if not reason:
        raise DomainError("Say why, for whoever wonders at the silence.", field="reason")
    if link and link not in LINK_NAMES:
        raise DomainError("That is no link of the chain.", field="link")
    same = Mute.objects.filter(
        project=project,
        run=run,
        link=link,
        rule=rule[:60],
        reason=reason[:300],
        ended_at__isnull=True,
        until__range=(until - timedelta(minutes=1), until + timedelta(minutes=1)),
    ).first()
    if same is not None:
        return same
    mute = Mute.objects.create(
        project=project,
        run=run,
        link=link,
        rule=rule[:60],
        reason=reason[:300],
        until=until,
        by=user,
    )
    audit_record(
        action="mute.created",
        actor=user,
        project=project,
        subject=str(mute.pk),
        details={
            "run": run.pk if run else "",
            "link": link,
            "rule": rule[:60],
            "until": until.isoformat(),
            "reason": reason[:300],
        },
    )
    return mute


@transaction.atomic
def incident_mute(
    *, incident: Incident, user: User, what: str, until: datetime | None, reason: str
) -> Mute:
    """Mute by what the incident is about: its `run`, its `link`, its `rule`, or its rule in its run
    only (`here`). The incident's timeline says so."""
    if what not in ("run", "link", "rule", "here"):
        raise DomainError("Say what to mute.", field="what")
    if what in ("run", "here") and incident.run is None:
        raise DomainError("This incident is about no run.", field="what")
    if what == "link" and not incident.link:
        raise DomainError("This incident is about no link.", field="what")
    mute = mute_create(
        project=incident.project,
        user=user,
        until=until,
        reason=reason,
        run=incident.run if what in ("run", "here") else None,
        link=incident.link if what == "link" else "",
        rule=incident.rule if what in ("rule", "here") else "",
    )
    if not incident.entries.filter(kind="state", body__mute=mute.pk).exists():
        incident.entries.create(
            kind="state",
            at=timezone.now(),
            by=user,
            body={"mute": mute.pk, "until": mute.until.isoformat(), "reason": mute.reason},
        )
    return mute


def mute_lift(*, project: Project, mute_id: int, user: User) -> Mute:
    """End it now. Lifting what has ended changes nothing."""
    mute = Mute.objects.filter(project=project, pk=mute_id).first()
    if mute is None:
        raise Missing("There is no such mute in this project.", field="mute")
    now = timezone.now()
    lifted = Mute.objects.filter(pk=mute.pk, ended_at__isnull=True, until__gt=now).update(
        ended_at=now
    )
    if lifted:
        audit_record(action="mute.lifted", actor=user, project=project, subject=str(mute.pk))
    mute.refresh_from_db()
    return mute
