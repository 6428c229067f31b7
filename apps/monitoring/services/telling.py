"""Who is told of an incident, and what: messages are written with what they tell of.

A `Delivery` row is written in the transaction that changes the incident, and sent after it
(`services.deliveries`). Of one incident people hear at most three times because of alerts, then
once that it is resolved:

- the first alert opens it (`opened`);
- the one that makes it critical says so (`escalated`), once;
- others are told (`alert_2`, `alert_3`) as long as nobody has acknowledged it. While it could still
  become critical, the third message is kept for that.

Everything else is counted and listed, and told to nobody. A muted incident is recorded in full and
told to nobody either.
"""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Min
from django.urls import reverse
from django.utils import timezone

from apps.monitoring import dispatch
from apps.monitoring.chain import link_name
from apps.monitoring.models import Channel, Delivery, Incident
from apps.monitoring.selectors.mutes import mute_of
from apps.training.models import Alert

MOST_TOLD = 3
RANKS = {"info": 0, "warning": 1, "critical": 2}
OPENED, ESCALATED, RESOLVED, TEST = "opened", "escalated", "resolved", "test"
PROBE_AGAIN = 60  # seconds after which a failing channel is tried with something new


def said_of_alert(alert: Alert, *, link: str) -> dict[str, Any]:
    """What an entry keeps of an alert, in values that JSON can hold."""
    return {
        "rule": alert.rule,
        "link": link,
        "step": alert.step,
        "severity": alert.severity,
        "message": alert.message,
        "value": finite(alert.value),
        "threshold": finite(alert.threshold),
        "raised_at": iso(alert.raised_at),
    }


def said_of(incident: Incident, *, step: int | None = None) -> dict[str, Any]:
    """The same of a trouble that came without an alert."""
    return {
        "rule": incident.rule,
        "link": incident.link,
        "step": step,
        "severity": incident.severity,
        "message": incident.message,
        "value": None,
        "threshold": None,
        "raised_at": iso(timezone.now()),
    }


class Teller:
    """Tells of the alerts of one incident that are entered in one transaction."""

    def __init__(self, incident: Incident) -> None:
        self.incident = incident
        self._told = incident.entries.filter(kind="alert", body__told=True).count()
        self._muted = mute_of(incident) is not None

    def told(self, said: dict[str, Any], *, escalates: bool) -> dict[str, Any]:
        """Tell of an alert, if it is one of the few; returns what its entry keeps of that."""
        if self._muted:
            return {"muted": True}
        event = self._event(escalates)
        if not event:
            return {}
        self._told += 1
        tell(self.incident, event=event, alert=said)
        return {"told": True, "event": event}

    def _event(self, escalates: bool) -> str:
        if self._told == 0:
            return OPENED
        if self._told >= MOST_TOLD:
            return ""
        if escalates:
            return ESCALATED
        kept = 0 if self.incident.severity == "critical" else 1
        waits = self.incident.state == Incident.State.OPEN
        return f"alert_{self._told + 1}" if waits and self._told < MOST_TOLD - kept else ""


def tell_resolved(incident: Incident) -> None:
    """To those who have heard of it, unless it is muted."""
    if mute_of(incident) is None:
        heard = Delivery.objects.filter(incident=incident).values_list("channel_id", flat=True)
        tell(incident, event=RESOLVED, only=set(heard))


def tell(
    incident: Incident,
    *,
    event: str,
    alert: dict[str, Any] | None = None,
    only: set[int] | None = None,
) -> None:
    """Write a message for each channel that wants to hear of incidents this severe. One per
    channel, incident and event, however often this is called."""
    channels = Channel.objects.filter(project=incident.project, enabled=True)
    if only is not None:
        channels = channels.filter(pk__in=only)
    wanted = [one for one in channels if _is_severe(incident, one)]
    if not wanted:
        return
    body = message(incident, event=event, alert=alert)
    busy = _busy(wanted)
    Delivery.objects.bulk_create(
        [
            Delivery(
                channel=channel,
                incident=incident,
                event=event,
                body=body,
                next_at=busy.get(channel.pk) or timezone.now(),
            )
            for channel in wanted
        ],
        ignore_conflicts=True,
    )
    send_soon()


def send_soon() -> None:
    """Have waiting messages sent once this transaction is committed; the beat is the safety net."""
    transaction.on_commit(dispatch.deliveries_send, robust=True)


def message(
    incident: Incident, *, event: str, alert: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What is sent: plain JSON, documented in docs/alerts.md."""
    project, run = incident.project, incident.run
    return {
        "version": 1,
        "event": f"incident.{'alert' if event.startswith('alert_') else event}",
        "at": iso(timezone.now()),
        "project": {"slug": project.slug, "name": project.name},
        "incident": {
            "id": incident.pk,
            "url": page_url("monitoring:incident", project.slug, incident.pk),
            "title": incident.title,
            "message": incident.message,
            "severity": incident.severity,
            "state": incident.state,
            "link": incident.link,
            "link_name": link_name(incident.link),
            "rule": incident.rule,
            "onset_step": incident.onset_step,
            "alerts": incident.alerts,
            "opened_at": iso(incident.opened_at),
            "root_cause": incident.root_cause,
            "fix": incident.fix,
        },
        "run": {
            "id": run.pk,
            "name": run.name,
            "kind": run.kind,
            "url": page_url("training:run", project.slug, run.pk),
        }
        if run is not None
        else None,
        "alert": alert,
    }


def page_url(name: str, *args: Any) -> str:
    return settings.SITE_URL.rstrip("/") + reverse(name, args=args)


def _is_severe(incident: Incident, channel: Channel) -> bool:
    return RANKS[incident.severity] >= RANKS[channel.least_severity]


def _busy(channels: list[Channel]) -> dict[int, datetime]:
    """When channels that do not answer, or are being served, are to be tried with something new."""
    now = timezone.now()
    rows = Delivery.objects.filter(
        channel__in=channels, state=Delivery.State.PENDING, tries__gt=0, next_at__gt=now
    )
    latest = now + timedelta(seconds=PROBE_AGAIN)
    found = rows.values("channel").annotate(at=Min("next_at")).values_list("channel", "at")
    return {channel: min(at, latest) for channel, at in found}


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
