"""Where a project's incidents are told: made, changed, tested, switched off."""

from collections.abc import Collection
from datetime import datetime, timedelta

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Missing
from apps.monitoring.models import Channel, Delivery, Incident, Mute
from apps.monitoring.selectors.incidents import channel_get
from apps.monitoring.services import notifications
from apps.monitoring.services.sending import SendError, address_of, secret_make
from apps.monitoring.stages import STAGE_NAMES
from apps.training.models import Run

MOST = 50  # channels of a project
OVERLAP = timedelta(hours=24)  # in which the secret before a new one signs as well
_Kind = Channel.Kind


def channel_create(
    *,
    project: Project,
    user: User,
    kind: str,
    address: str,
    least_severity: str = "warning",
    tells: Collection[str] = (Channel.Tells.INCIDENTS,),
) -> Channel:
    """A new channel; a webhook's secret is in the answer, and shown to people this once."""
    address = _checked(kind, address)
    _check_severity(least_severity)
    tells = _checked_tells(tells)
    if Channel.objects.filter(project=project).count() >= MOST:
        raise Conflict(f"A project has at most {MOST} channels.", field="address")
    try:
        with transaction.atomic():
            channel = Channel.objects.create(
                project=project,
                kind=kind,
                address=address,
                secret=secret_make() if kind == _Kind.WEBHOOK else "",
                least_severity=least_severity,
                tells=tells,
                created_by=user,
            )
            _record("created", channel, user)
    except IntegrityError:
        raise Conflict(
            "The project has this channel already.", field="address", code="exists"
        ) from None
    return channel


def channel_update(
    *,
    project: Project,
    channel_id: int,
    user: User,
    least_severity: str | None = None,
    tells: Collection[str] | None = None,
    enabled: bool | None = None,
) -> Channel:
    """Change how severe an incident must be or what is told, or switch the channel on or off. What
    waits for a channel that is switched off is given up."""
    with transaction.atomic():
        channel = channel_get(project=project, channel_id=channel_id, lock=True)
        if least_severity is not None:
            _check_severity(least_severity)
            channel.least_severity = least_severity
        if tells is not None:
            channel.tells = _checked_tells(tells)
        if enabled is not None:
            if enabled and not channel.enabled:
                channel.told_until = timezone.now()
            channel.enabled = enabled
        channel.save()
        if not channel.enabled:
            Delivery.objects.filter(channel=channel, state=Delivery.State.PENDING).update(
                state=Delivery.State.FAILED, error="The channel was switched off."
            )
        _record("changed", channel, user)
    return channel


@transaction.atomic
def channel_secret_rotate(*, project: Project, channel_id: int, user: User) -> Channel:
    """A new secret, from the next message on, those that wait included. Messages are signed with
    the one before as well for `OVERLAP`, so that receivers can change over."""
    channel = channel_get(project=project, channel_id=channel_id, lock=True)
    if channel.kind != _Kind.WEBHOOK:
        raise DomainError("Only a webhook has a secret.", field="kind")
    channel.secret_before, channel.secret = channel.secret, secret_make()
    channel.secret_before_until = timezone.now() + OVERLAP
    channel.save(update_fields=["secret", "secret_before", "secret_before_until"])
    _record("secret_rotated", channel, user)
    return channel


@transaction.atomic
def channel_delete(*, project: Project, channel_id: int, user: User) -> None:
    """With the record of what was sent to it."""
    channel = channel_get(project=project, channel_id=channel_id, lock=True)
    _record("deleted", channel, user)
    channel.delete()


@transaction.atomic
def channel_test(*, project: Project, channel_id: int, user: User) -> Delivery:
    """Send a test the way incidents are sent. While one is under way, that is the one."""
    channel = channel_get(project=project, channel_id=channel_id, lock=True)
    if not channel.enabled:
        raise Conflict("The channel is switched off: switch it on first.", field="channel")
    under_way = channel.deliveries.filter(
        event=notifications.TEST, state=Delivery.State.PENDING, tries=0
    ).first()
    if under_way is not None:
        return under_way
    body = {
        "version": 1,
        "event": notifications.TEST,
        "at": notifications.iso(timezone.now()),
        "project": {"slug": project.slug, "name": project.name},
        "url": notifications.page_url("monitoring:channels", project.slug),
        "by": user.username,
    }
    made = Delivery.objects.create(
        channel=channel, event=notifications.TEST, body=body, next_at=timezone.now()
    )
    notifications.send_soon()
    return made


def _checked(kind: str, address: str) -> str:
    address = address.strip()
    if len(address) > 500:
        raise DomainError("At most 500 characters.", field="address")
    if kind == _Kind.EMAIL:
        try:
            validate_email(address)
        except ValidationError:
            raise DomainError("This is no e-mail address.", field="address") from None
    elif kind == _Kind.WEBHOOK:
        try:
            address_of(address)
        except SendError as error:
            raise DomainError(str(error), field="address") from None
    else:
        raise DomainError("Choose e-mail or webhook.", field="kind")
    return address


def _check_severity(severity: str) -> None:
    if severity not in ("warning", "critical"):
        raise DomainError("Choose warning or critical.", field="least_severity")


def _checked_tells(tells: Collection[str]) -> list[str]:
    if not tells or not set(tells) <= set(Channel.Tells.values):
        raise DomainError(f"Choose of {', '.join(Channel.Tells.values)}.", field="tells")
    return [one for one in Channel.Tells.values if one in tells]


def _record(verb: str, channel: Channel, user: User) -> None:
    audit_record(
        action=f"channel.{verb}",
        actor=user,
        project=channel.project,
        subject=str(channel.pk),
        details={
            "kind": channel.kind,
            "address": channel.address,
            "least_severity": channel.least_severity,
            "tells": channel.tells,
            "enabled": channel.enabled,
        },
    )


# Keeping quiet for a while: mutes always have an end, and hide nothing.

PRESETS: dict[str, tuple[str, timedelta]] = {
    "1h": ("1 hour", timedelta(hours=1)),
    "8h": ("8 hours", timedelta(hours=8)),
    "1d": ("1 day", timedelta(days=1)),
    "1w": ("1 week", timedelta(weeks=1)),
}
LONGEST = timedelta(days=90)


def preset_end(name: str) -> datetime:
    if name not in PRESETS:
        raise DomainError("Choose a duration or an end.", field="until")
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
        raise DomainError("Give a reason, so that others know why it is muted.", field="reason")
    if link and link not in STAGE_NAMES:
        raise DomainError("There is no such stage.", field="link")
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
        raise DomainError("This incident has no stage.", field="what")
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
