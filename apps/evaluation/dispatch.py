"""The web side's end of the scoring queue: requests out, answers back in.

Where Redis is away everything here raises `Unavailable`, within a few seconds.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import redis

from apps.common.errors import Unavailable
from apps.common.redis_now import redis_now
from workers.contract import scores as contract
from workers.contract.scores import ScoreReply, ScoreRequest
from workers.contract.wire import alive_key


def scorer_alive() -> bool:
    with _connected() as client:
        return client.get(alive_key(contract.SCORER)) is not None


def request_send(request: ScoreRequest, *, asked: dict[str, Any]) -> None:
    """Put it in line, with `asked` kept beside it for as long as the answer may be fetched."""
    with _connected() as client:
        taken = client.eval(
            contract.SUBMIT,
            2,
            contract.STREAM,
            contract.asked_key(request.id),
            contract.MAX_WAITING,
            contract.REPLY_SECONDS,
            json.dumps(asked),
            request.id,
            contract.to_json(request),
        )
    if not taken:
        raise Unavailable(
            f"{contract.MAX_WAITING} requests wait for the scorer already. Try again in a moment.",
            code="scorer_busy",
        )


def asked_get(request_id: str) -> dict[str, Any] | None:
    """What the id was asked for; None when it is unknown or was forgotten."""
    with _connected() as client:
        text = client.get(contract.asked_key(request_id))
    return json.loads(text) if text else None


def reply_get(request_id: str) -> ScoreReply | None:
    """None while there is none."""
    with _connected() as client:
        text = client.get(contract.reply_key(request_id))
    return contract.reply_from_json(text) if text else None


@contextlib.contextmanager
def _connected() -> Iterator["redis.Redis[Any]"]:
    client = redis_now()
    try:
        yield client
    except (redis.RedisError, OSError) as error:
        raise Unavailable("The queue of scoring requests does not answer.") from error
    finally:
        client.close()
