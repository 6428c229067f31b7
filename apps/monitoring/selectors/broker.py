"""One look at the broker: what waits in its queues, and who serves them."""

import base64
import json
from dataclasses import dataclass

import redis
from django.conf import settings

from workers.contract import wire
from workers.contract.scores import SCORER
from workers.contract.wire import (
    SCHEDULER,
    alive_key,
)

QUEUES = (
    *wire.JOB_QUEUES,
    *(wire.QUEUE_EVENTS, wire.QUEUE_HOUSE, wire.QUEUE_IMPORTS, wire.QUEUE_FIGURES),
)


@dataclass(frozen=True, slots=True)
class BrokerLook:
    """lengths: messages by queue; seen: whether a process serves it; oldest_event_at: Unix seconds
    of the newest event in the oldest batch that waits, None when none does or it cannot be
    read; refused: batches that the worker of their run had not signed."""

    lengths: dict[str, int]
    seen: dict[str, bool]
    oldest_event_at: float | None
    refused: int = 0


def broker_look() -> BrokerLook:
    """Raises what Redis raises when it is away. One round trip."""
    served = (*QUEUES, SCHEDULER, SCORER)
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
    try:
        pipe = client.pipeline(transaction=False)
        for queue in QUEUES:
            pipe.llen(queue)
        pipe.mget([alive_key(name) for name in served])
        pipe.lindex(wire.QUEUE_EVENTS, -1)  # messages are taken from this end
        pipe.get(wire.REFUSED_KEY)
        *lengths, beats, oldest, refused = pipe.execute()
    finally:
        client.close()
    return BrokerLook(
        lengths=dict(zip(QUEUES, lengths, strict=True)),
        seen={name: beat is not None for name, beat in zip(served, beats, strict=True)},
        oldest_event_at=_newest_event_at(oldest),
        refused=int(refused or 0),
    )


def _newest_event_at(message: bytes | None) -> float | None:
    """Of a batch of events as kombu stores it. A sign of life has no events."""
    if message is None:
        return None
    try:
        body = json.loads(base64.b64decode(json.loads(message)["body"]))
        return float(body[0][0]["events"][-1]["at"])
    except (ValueError, KeyError, TypeError, IndexError):
        return None
