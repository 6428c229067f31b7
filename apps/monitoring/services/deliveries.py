"""Sending what was written: each message once per channel, again after a failure, never lost.

A message is claimed (its try is counted, its next one set) and committed before it is sent, and
marked after. Killed in between, it is sent again with the same id: at most a duplicate, never a
loss. Rows are claimed with SKIP LOCKED, so any number of senders may run. A channel that fails is
left alone until its next try, with everything that waits for it, so that a dead receiver holds up
nobody else.
"""

import logging
import time
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from apps.accounts.models import User
from apps.common.errors import Conflict, Missing
from apps.monitoring.models import Channel, Delivery
from apps.monitoring.services import telling
from apps.monitoring.services.emails import email_send
from apps.monitoring.services.webhooks import SendError, post, signed

log = logging.getLogger(__name__)
MOST_TRIES = 16
FIRST_WAIT, LONGEST_WAIT = 15, 900  # seconds, doubling: given up after about two hours
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
        channel.secret,
        delivery=str(row.pk),
        event=str(body.get("event", "")),
        body=body,
        timestamp=int(time.time()),
    )
    post(channel.address, raw, headers)


def _failed(row: Delivery, error: str, *, final: bool) -> None:
    now = timezone.now()
    again = now + timedelta(seconds=min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(row.tries - 1, 10)))
    over = final or row.tries >= MOST_TRIES
    Delivery.objects.filter(pk=row.pk).update(
        state=_State.FAILED if over else _State.PENDING, error=error[:300], next_at=again
    )
    log.warning("delivery %s, try %s: %s", row.pk, row.tries, error)
    # What was put off at the claim goes on: at once where only this message is refused, with the
    # next try where the channel does not answer.
    put_off = _waiting(row.channel).filter(next_at__lte=row.next_at)
    put_off.update(next_at=now if final else again)


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
        telling.send_soon()
    row.refresh_from_db()
    return row
