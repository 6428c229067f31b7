"""Having a reward model score text: what is asked is checked, put in line, and waited for."""

import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from apps.accounts.models import User
from apps.common.errors import Conflict, DomainError, Missing, Unavailable
from apps.evaluation import dispatch
from apps.evaluation.selectors.models import scoring_model_get
from workers.contract import scores as contract
from workers.contract.jobs import PRECISIONS
from workers.contract.scores import ScoreReply, ScoreRequest

ROLES = ("system", "user", "assistant")
LONGEST_WAIT_S = 30.0
# Of the few threads of a web process at most so many wait for scores; others are told to come back.
_waiters = threading.BoundedSemaphore(2)
_PAUSE_S = (0.01, 0.1)  # at first, and at last


class ScoringFailed(DomainError):
    """The scorer answered, and had no scores."""

    status = 502
    code = "scorer_failed"


@dataclass(frozen=True, slots=True)
class Scoring:
    """A request in line; `reply` is None while it waits there."""

    id: str
    model: str
    reply: ScoreReply | None
    scorer_alive: bool = True


def scores_request(
    *,
    user: User,
    checkpoint_id: str,
    items: Sequence[Any],
    precision: str = "float32",
    wait_s: float = 0.0,
) -> Scoring:
    """Ask, and wait up to `wait_s` for the answer. Nothing is sent where nobody would take it."""
    model = scoring_model_get(user=user, checkpoint_id=checkpoint_id)
    if precision not in PRECISIONS:
        words = ", ".join(PRECISIONS)
        raise DomainError(f"precision: '{precision}' is none of {words}", field="precision")
    checked = _checked(items)
    if not dispatch.scorer_alive():
        raise Unavailable(
            "No scorer gives a sign of life. It runs as 'scorer' beside the other workers.",
            code="no_scorer",
        )
    request = ScoreRequest(
        id=uuid.uuid4().hex,
        uri=model.uri,
        sha256=model.sha256,
        artifacts_url=settings.ARTIFACTS_URL,
        items=checked,
        precision=precision,
    )
    dispatch.request_send(request, asked={"model": model.pk})
    return Scoring(request.id, model.pk, _usable(_awaited(request.id, wait_s)))


def scores_get(*, user: User, request_id: str) -> Scoring:
    """The answer to an earlier request. Raises `Missing` for another project's, and when it was
    forgotten."""
    asked = dispatch.asked_get(request_id)
    if asked is None:
        minutes = contract.REPLY_SECONDS // 60
        raise Missing(f"There is no such request; answers are kept for {minutes} minutes.")
    model = scoring_model_get(user=user, checkpoint_id=asked["model"])
    reply = _usable(dispatch.reply_get(request_id))
    alive = reply is not None or dispatch.scorer_alive()
    return Scoring(request_id, model.pk, reply, alive)


def _awaited(request_id: str, wait_s: float) -> ScoreReply | None:
    if wait_s <= 0 or not _waiters.acquire(blocking=False):
        return dispatch.reply_get(request_id)
    try:
        deadline = time.monotonic() + min(wait_s, LONGEST_WAIT_S)
        pause, most = _PAUSE_S
        while (reply := dispatch.reply_get(request_id)) is None and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(most, 1.5 * pause)
        return reply
    finally:
        _waiters.release()


def _usable(reply: ScoreReply | None) -> ScoreReply | None:
    """Raises what the scorer refused."""
    if reply is None or reply.error is None:
        return reply
    code, message = reply.error["code"], reply.error["message"]
    if code == "precision_refused":
        raise Conflict(message, code=code, field="precision")
    raise ScoringFailed(message, code=code)


def _checked(items: Sequence[Any]) -> list[dict[str, Any]]:
    """Items as the scorer reads them. Raises `DomainError` naming item (from 1) and field."""
    if not items:
        raise DomainError("items: there is nothing to score", field="items")
    if len(items) > contract.MAX_ITEMS:
        raise DomainError(
            f"items: {len(items)} are more than the {contract.MAX_ITEMS} of one request",
            field="items",
        )
    total = 0
    checked = []
    for number, item in enumerate(items, start=1):
        prompt, response, size = _item(item, number)
        total += size
        checked.append({"prompt": prompt, "response": response})
    if total > contract.MAX_CHARACTERS:
        raise DomainError(
            f"items: {total:,} characters are more than the {contract.MAX_CHARACTERS:,} of one "
            "request",
            field="items",
            code="too_large",
        )
    return checked


def _item(item: Any, number: int) -> tuple[list[dict[str, str]], str, int]:
    """(prompt as messages, response, characters of both)."""
    if not isinstance(item, dict):
        raise _wrong(number, None, "must be an object with prompt and response")
    for name in item:
        if name not in ("prompt", "response"):
            raise _wrong(number, str(name), "is no field of an item")
    response = item.get("response")
    if not isinstance(response, str):
        raise _wrong(number, "response", "must be a text")
    prompt = _prompt(item.get("prompt"), number)
    size = len(response) + sum(len(message["content"]) for message in prompt)
    if size > contract.MAX_ITEM_CHARACTERS:
        most = f"{contract.MAX_ITEM_CHARACTERS:,}"
        raise _wrong(number, "response", f"with its prompt it has {size:,} characters, over {most}")
    return prompt, response, size


def _prompt(prompt: Any, number: int) -> list[dict[str, str]]:
    try:
        return messages_checked(prompt)
    except ValueError as error:
        raise _wrong(number, "prompt", str(error)) from error


def messages_checked(prompt: Any) -> list[dict[str, str]]:
    """A text, or messages that end with the user's, as messages. Raises `ValueError`."""
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    if not isinstance(prompt, list) or not prompt:
        raise ValueError("must be a text or a list of messages")
    for message in prompt:
        if (
            not isinstance(message, dict)
            or set(message) != {"role", "content"}
            or message["role"] not in ROLES
            or not isinstance(message["content"], str)
        ):
            raise ValueError(
                f"every message needs a role ({', '.join(ROLES)}) and a content that is a text"
            )
    if prompt[-1]["role"] != "user":
        raise ValueError("must end with a message of the user")
    return prompt


def _wrong(number: int, field: str | None, why: str) -> DomainError:
    where = f"item {number}" + (f", {field}" if field else "")
    return DomainError(f"{where}: {why}", row=number, field=field)
