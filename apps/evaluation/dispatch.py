"""The web side's end of the queues of resident processes, scorer and answerer: requests out,
answers back in.

Where Redis is away everything here raises `Unavailable`, within a few seconds.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import redis

from apps.common.errors import Conflict, Unavailable
from apps.common.redis_now import redis_now
from workers.contract import asking
from workers.contract import scores as contract
from workers.contract.asking import AskReply, AskRequest
from workers.contract.channel import to_json
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
            to_json(request),
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


# Questions to models.


def answerer_alive() -> bool:
    with _connected() as client:
        return client.get(alive_key(asking.ANSWERER)) is not None


def question_send(request: AskRequest, *, person: str, asked: dict[str, Any]) -> None:
    """Put it in line. Raises `Conflict` while the person's last question is not answered."""
    with _connected() as client:
        taken = client.eval(
            asking.SUBMIT,
            3,
            asking.STREAM,
            asking.asked_key(request.id),
            asking.person_key(person),
            asking.MAX_WAITING,
            asking.KEPT_SECONDS,
            json.dumps(asked),
            request.id,
            to_json(request),
            asking.GIVEN_UP_SECONDS,
            asking.asked_key(""),
            asking.reply_key(""),
        )
    if taken == 0:
        raise Unavailable(
            f"{asking.MAX_WAITING} questions wait already. Try again in a moment.",
            code="answerer_busy",
        )
    if taken < 0:
        raise Conflict(
            "Your last question is still being answered. Stop it, or wait for its end.",
            code="question_running",
        )


def question_read(question_id: str) -> tuple[dict[str, Any] | None, AskReply | None, bool, bool]:
    """(what was asked, what is said so far, whether that is the reply, whether an answerer gives
    signs of life). What was asked is None when it is unknown or was forgotten."""
    names = (asking.asked_key, asking.said_key, asking.reply_key)
    keys = [*(name(question_id) for name in names), alive_key(asking.ANSWERER)]
    with _connected() as client:
        asked, said, reply, alive = client.mget(keys)
    text = reply or said
    told = asking.reply_from_json(text) if text else None
    return json.loads(asked) if asked else None, told, reply is not None, alive is not None


def question_stop(question_id: str, *, unbegun: AskReply) -> None:
    """Have it stop; one that nobody has begun to answer gets the reply `unbegun` at once."""
    with _connected() as client:
        client.set(asking.stop_key(question_id), 1, ex=asking.KEPT_SECONDS)
        if not client.exists(asking.said_key(question_id)):
            reply = asking.reply_key(question_id)
            client.set(reply, to_json(unbegun), ex=asking.KEPT_SECONDS, nx=True)


@contextlib.contextmanager
def _connected() -> Iterator["redis.Redis[Any]"]:
    client = redis_now()
    try:
        yield client
    except (redis.RedisError, OSError) as error:
        raise Unavailable("The queue of requests does not answer.") from error
    finally:
        client.close()
