"""Who is notified of an incident, and of what: a message is stored with what it reports.

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

import logging
import math
import random
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connections, transaction
from django.db.models import Exists, Min, OuterRef, QuerySet
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Project, Role, User
from apps.accounts.services import audit_record, notice_give
from apps.common.errors import Conflict, DomainError, Missing
from apps.monitoring import dispatch
from apps.monitoring.models import Channel, Delivery, Incident
from apps.monitoring.selectors.incidents import mute_of
from apps.monitoring.services.sending import SendError, email_send, post, signed
from apps.monitoring.stages import stage_name
from apps.training.models import Alert

MOST_TOLD = 3
RANKS = {"info": 0, "warning": 1, "critical": 2}
OPENED, ESCALATED, RESOLVED, TEST = "opened", "escalated", "resolved", "test"
_Tells = Channel.Tells
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
    """The same of a problem that came without an alert."""
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
    if event in (OPENED, ESCALATED):
        _bell(incident, event)
    channels = _channels(incident.project, _Tells.INCIDENTS)
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


def project_tell(
    *,
    project: Project,
    about: str,
    event: str,
    body: dict[str, Any],
    only: Channel | None = None,
) -> int:
    """Write a message for each channel that hears of this (a value of `Channel.Tells`), or for one
    of them; returns for how many. event: such as `stage.changed`, of at most 24 characters. `body`
    holds what changed; it is sent after the transaction, each call once to each channel.
    """
    wanted = [one for one in _channels(project, about) if only in (None, one)]
    if not wanted:
        return 0
    now = timezone.now()
    head = {
        "version": 1,
        "event": event,
        "at": iso(now),
        "project": {"slug": project.slug, "name": project.name},
    }
    busy = _busy(wanted)
    Delivery.objects.bulk_create(
        [
            Delivery(
                channel=channel,
                event=event,
                body=head | body,
                next_at=busy.get(channel.pk) or now,
            )
            for channel in wanted
        ]
    )
    send_soon()
    return len(wanted)


def _channels(project: Project, about: str) -> QuerySet[Channel]:
    return Channel.objects.filter(project=project, enabled=True, tells__contains=[about])


def _bell(incident: Incident, event: str) -> None:
    notice_give(
        project=incident.project,
        roles=(Role.ENGINEER, Role.ADMIN),
        kind=f"incident.{event}",
        text=f"{incident.title}: {incident.severity}"
        + (", worse than before" if event == ESCALATED else ""),
        path=reverse("monitoring:incident", args=[incident.project.slug, incident.pk]),
    )


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
            "link_name": stage_name(incident.link),
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


# Sending what was written: each message once per channel, again after a failure, never lost.
#
# A message is claimed (its try is counted, its next one set) and committed before it is sent, and
# marked after. Killed in between, it is sent again with the same id: at most a duplicate, never a
# loss. Rows are claimed with SKIP LOCKED, so any number of senders may run. A channel that fails is
# left alone until its next try, with everything that waits for it, so that a dead receiver holds up
# nobody else.

log = logging.getLogger(__name__)
# Seconds between tries, and up to a fifth more: given up after about three days, as Standard
# Webhooks has it; the first ones are closer, since an alert is wanted now.
WAITS = (15, 60, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
LEASE = 60  # seconds after which a message that was claimed, and not marked, is sent again
MOST_SECONDS = 120.0  # of one waking
_State = Delivery.State


def deliveries_send(*, most_seconds: float = MOST_SECONDS) -> int:
    """Send what is due, channel by channel; returns how many were sent."""
    sent, ends = 0, time.monotonic() + most_seconds
    while time.monotonic() < ends:
        row = _claim()
        if row is None:
            break
        sent += delivery_try(row)
    return sent


def _claim() -> Delivery | None:
    """The next message that is due, of a channel that nobody else is claiming for."""
    while True:
        with transaction.atomic():
            now = timezone.now()
            channel = _channel_due(now)
            if channel is None:
                return None
            row = (
                _due(now)
                .filter(channel=channel)
                .select_for_update(skip_locked=True)
                .order_by("pk")
                .first()
            )
            if row is not None:
                row.channel = channel
                row.tries += 1
                row.next_at = now + timedelta(seconds=LEASE)
                row.save(update_fields=["tries", "next_at"])
                # Whoever serves a channel serves all that waits for it: nobody else begins.
                _postpone(channel, row.next_at)
                return row
        # Another claimed it between our look and our lock. It may have sent, found our lock and
        # gone, so look again.


def _channel_due(now: datetime) -> Channel | None:
    failing = Delivery.objects.filter(state=_State.PENDING, channel=OuterRef("pk"), tries__gt=0)
    return (
        Channel.objects.select_for_update(skip_locked=True, no_key=True)
        .filter(Exists(_due(now).filter(channel=OuterRef("pk"))), enabled=True)
        .order_by(Exists(failing), "pk")  # who answers first; who does not costs seconds
        .first()
    )


def _due(now: datetime) -> QuerySet[Delivery]:
    return Delivery.objects.filter(state=_State.PENDING, next_at__lte=now)


def delivery_try(row: Delivery) -> bool:
    """Send a claimed message and mark it. Whatever goes wrong is kept with it, in words."""
    try:
        _send(row)
    except SendError as error:
        _failed(row, str(error), final=error.final)
        if error.gone:
            _switch_off(row.channel, str(error))
        return False
    except DomainError as error:
        _failed(row, error.message, final=False)
        return False
    except Exception as error:
        log.exception("delivery %s", row.pk)
        _failed(row, f"{type(error).__name__}", final=False)
        return False
    now = timezone.now()
    Delivery.objects.filter(pk=row.pk).update(state=_State.SENT, sent_at=now, error="")
    _waiting(row.channel).filter(next_at__gt=now).update(next_at=now)
    return True


def _send(row: Delivery) -> None:
    channel = row.channel
    body = row.body | {"id": str(row.pk), "try": row.tries}
    if channel.kind == Channel.Kind.EMAIL:
        email_send(channel.address, body, delivery=str(row.pk))
        return
    raw, headers = signed(
        channel.keys,
        delivery=str(row.pk),
        event=str(body.get("event", "")),
        body=body,
        timestamp=int(time.time()),
    )
    post(channel.address, raw, headers)


def _failed(row: Delivery, error: str, *, final: bool) -> None:
    now = timezone.now()
    over = final or row.tries > len(WAITS)
    wait = WAITS[min(row.tries, len(WAITS)) - 1] * random.uniform(1.0, 1.2)
    again = now + timedelta(seconds=wait)
    Delivery.objects.filter(pk=row.pk).update(
        state=_State.FAILED if over else _State.PENDING, error=error[:300], next_at=again
    )
    log.warning("delivery %s, try %s: %s", row.pk, row.tries, error)
    # What was put off at the claim continues: at once where only this message is refused, with the
    # next try where the channel does not answer.
    put_off = _waiting(row.channel).filter(next_at__lte=row.next_at)
    put_off.update(next_at=now if final else again)


@transaction.atomic
def _switch_off(channel: Channel, why: str) -> None:
    """The receiver asked for nothing more: what waits is given up, and the bell says so."""
    if not Channel.objects.filter(pk=channel.pk, enabled=True).update(enabled=False):
        return
    _waiting(channel).update(state=_State.FAILED, error="The channel was switched off.")
    audit_record(
        action="channel.gone",
        actor=None,
        project=channel.project,
        subject=str(channel.pk),
        details={"address": channel.address},
    )
    notice_give(
        project=channel.project,
        roles=(Role.ENGINEER, Role.ADMIN),
        kind="channel.gone",
        text=f"The channel {channel.address} is switched off. {why}",
        path=reverse("monitoring:channels", args=[channel.project.slug]),
    )


def _waiting(channel: Channel) -> QuerySet[Delivery]:
    return Delivery.objects.filter(channel=channel, state=_State.PENDING)


def _postpone(channel: Channel, until: datetime) -> None:
    _waiting(channel).filter(next_at__lt=until).update(next_at=until)


def delivery_again(*, channel: Channel, delivery_id: int, user: User) -> Delivery:
    """Send a message that was given up, from the start."""
    row = Delivery.objects.filter(channel=channel, pk=delivery_id).first()
    if row is None:
        raise Missing("There is no such message of this channel.", field="delivery")
    if not channel.enabled:
        raise Conflict("The channel is switched off.", field="channel")
    with transaction.atomic():
        Delivery.objects.filter(pk=row.pk, state=_State.FAILED).update(
            state=_State.PENDING, tries=0, next_at=timezone.now(), error=""
        )
        send_soon()
    row.refresh_from_db()
    return row


class Sender:
    """At most one thread at a time; whoever asks while it works is served by it before it ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        with self._lock:
            self._wanted = True
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether it was done within the time."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return thread is None or not thread.is_alive()

    def _run(self) -> None:
        try:
            while self._goes_on():
                try:
                    deliveries_send()
                except Exception:  # the database is away: the beat wakes us again
                    log.exception("messages could not be sent")
        finally:
            connections.close_all()  # this thread's own

    def _goes_on(self) -> bool:
        with self._lock:
            if not self._wanted:
                self._thread = None  # under the lock, so nobody relies on a thread about to end
            going, self._wanted = self._wanted, False
            return going


sender = Sender()
