"""Where a project's incidents are told: made, changed, tested, switched off."""

import secrets

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.monitoring.models import Channel, Delivery
from apps.monitoring.selectors.channels import channel_get
from apps.monitoring.services import telling
from apps.monitoring.services.webhooks import SendError, address_of

MOST = 50  # channels of a project
_Kind = Channel.Kind


def channel_create(
    *, project: Project, user: User, kind: str, address: str, least_severity: str = "warning"
) -> Channel:
    """A new channel; a webhook's secret is in the answer, and shown to people this once."""
    address = _checked(kind, address)
    _check_severity(least_severity)
    if Channel.objects.filter(project=project).count() >= MOST:
        raise Conflict(f"A project has at most {MOST} channels.", field="address")
    try:
        with transaction.atomic():
            channel = Channel.objects.create(
                project=project,
                kind=kind,
                address=address,
                secret=_secret() if kind == _Kind.WEBHOOK else "",
                least_severity=least_severity,
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
    enabled: bool | None = None,
) -> Channel:
    """Change how severe an incident must be, or switch the channel on or off. What waits for a
    channel that is switched off is given up."""
    with transaction.atomic():
        channel = channel_get(project=project, channel_id=channel_id, lock=True)
        if least_severity is not None:
            _check_severity(least_severity)
            channel.least_severity = least_severity
        if enabled is not None:
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
    """A new secret, from the next message on, those that wait included."""
    channel = channel_get(project=project, channel_id=channel_id, lock=True)
    if channel.kind != _Kind.WEBHOOK:
        raise DomainError("Only a webhook has a secret.", field="kind")
    channel.secret = _secret()
    channel.save(update_fields=["secret"])
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
        event=telling.TEST, state=Delivery.State.PENDING, tries=0
    ).first()
    if under_way is not None:
        return under_way
    body = {
        "version": 1,
        "event": telling.TEST,
        "at": telling.iso(timezone.now()),
        "project": {"slug": project.slug, "name": project.name},
        "url": telling.page_url("monitoring:channels", project.slug),
        "by": user.username,
    }
    made = Delivery.objects.create(
        channel=channel, event=telling.TEST, body=body, next_at=timezone.now()
    )
    telling.send_soon()
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


def _secret() -> str:
    return f"whsec_{secrets.token_urlsafe(32)}"


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
            "enabled": channel.enabled,
        },
    )
