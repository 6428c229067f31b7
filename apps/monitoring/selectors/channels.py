"""Reads: a project's channels, and what was sent to them."""

from django.conf import settings
from django.db.models import Count, Q, QuerySet

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.monitoring.models import Channel, Delivery

SHOWN = 10  # messages of a channel


def channels(*, project: Project) -> QuerySet[Channel]:
    """Each with how many messages wait, and how many were given up."""
    return (
        Channel.objects.filter(project=project)
        .annotate(
            waiting=Count("deliveries", filter=Q(deliveries__state=Delivery.State.PENDING)),
            given_up=Count("deliveries", filter=Q(deliveries__state=Delivery.State.FAILED)),
            sent=Count("deliveries", filter=Q(deliveries__state=Delivery.State.SENT)),
        )
        .order_by("kind", "address")
    )


def channel_get(*, project: Project, channel_id: int, lock: bool = False) -> Channel:
    """Raises `Missing`."""
    rows = Channel.objects.select_related("project")
    if lock:
        rows = rows.select_for_update(of=("self",), no_key=True)
    found = rows.filter(project=project, pk=channel_id).first()
    if found is None:
        raise Missing("There is no such channel in this project.", field="channel")
    return found


def messages_to(channel: Channel) -> list[Delivery]:
    """The last ones, newest first."""
    return list(channel.deliveries.select_related("incident").order_by("-pk")[:SHOWN])


def mail_missing() -> str:
    """What to say where an e-mail channel cannot reach anybody; empty where it can."""
    if settings.EMAIL_URL:
        return ""
    if not settings.MAIL_READY:
        return "No mail server is configured, so no e-mail is sent. Set EMAIL_URL."
    return (
        "No mail server is configured: e-mails are written as files to the folder mail below "
        "VAR_DIR, and reach nobody. Set EMAIL_URL."
    )


def channels_without_mail() -> int:
    """E-mail channels that are switched on although no mail server is configured."""
    if settings.EMAIL_URL:
        return 0
    return Channel.objects.filter(kind=Channel.Kind.EMAIL, enabled=True).count()
