"""Requests for scores and their answers, as they lie in Redis. The web side asks, a scorer answers.

    stream    requests that wait or are being worked on; the group's pending list says by whom
    asked     what an id was asked for, kept as long as its answer may be fetched
    reply     the answer, set once: a request that was delivered twice still has one

A request is `{"version", "id", "uri", "sha256", "artifacts_url", "precision", "items"}` with
`items` of `{"prompt": [messages], "response": str}`; an answer is `{"version", "id", "scores",
"cached", "precision"}` or `{"version", "id", "error": {"code", "message"}}`. Standard library only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.contract.channel import Channel, from_json
from workers.contract.jobs import PRECISIONS
from workers.contract.wire import ContractError, build

STREAM = "concord:score:requests"
GROUP = "scorers"
SCORER = "scorer"  # the name it gives its sign of life under (workers.alive)
STATS = "concord:score:stats"  # counters, by name

REPLY_SECONDS = 600
MAX_WAITING = 500  # requests; with MAX_CHARACTERS this bounds what Redis must hold
MAX_ITEMS = 256
MAX_CHARACTERS = 400_000  # of a whole request
MAX_ITEM_CHARACTERS = 100_000

# KEYS stream, asked; ARGV most waiting, seconds, what was asked, id, request.
# 1 taken, 0 too many wait already.
SUBMIT = """
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[2], ARGV[3], 'EX', ARGV[2])
redis.call('XADD', KEYS[1], '*', 'id', ARGV[4], 'request', ARGV[5])
return 1
"""


def asked_key(request: str) -> str:
    return f"concord:score:asked:{request}"


def reply_key(request: str) -> str:
    return f"concord:score:reply:{request}"


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """What one caller asks: `items` scored by one model in one precision."""

    id: str
    uri: str
    sha256: str
    artifacts_url: str
    items: Sequence[Mapping[str, Any]]
    precision: str = "float32"


@dataclass(frozen=True, slots=True)
class ScoreReply:
    """Scores in the order of the items, or why there are none. `cached` of them were remembered;
    `precision` is the one they were really made in."""

    id: str
    scores: list[dict[str, Any]] = field(default_factory=list)
    cached: int = 0
    precision: str = "float32"
    error: dict[str, str] | None = None  # code and message


def request_from_json(text: str | bytes) -> ScoreRequest:
    """`ContractError` naming the field when it does not fit."""
    data = from_json(text, where="score message")
    request: ScoreRequest = build(ScoreRequest, data, where="score request")
    for name in ("id", "uri", "sha256", "artifacts_url", "precision"):
        if not isinstance(getattr(request, name), str):
            raise ContractError(f"score request.{name}: is no text")
    if request.precision not in PRECISIONS:
        raise ContractError(f"score request.precision: {request.precision!r} is unknown")
    if not isinstance(request.items, list) or not request.items:
        raise ContractError("score request.items: must be a list that is not empty")
    for number, item in enumerate(request.items):
        if not isinstance(item, dict) or not isinstance(item.get("response"), str):
            raise ContractError(f"score request.items[{number}].response: is no text")
        if not isinstance(item.get("prompt"), list):
            raise ContractError(f"score request.items[{number}].prompt: is no list of messages")
    return request


def reply_from_json(text: str | bytes) -> ScoreReply:
    return build(ScoreReply, from_json(text, where="score message"), where="score reply")


def _refusal(name: str, code: str, message: str) -> ScoreReply:
    return ScoreReply(name, error={"code": code, "message": message})


CHANNEL = Channel(
    stream=STREAM,
    group=GROUP,
    sign=SCORER,
    stats=STATS,
    reply_key=reply_key,
    reply_seconds=REPLY_SECONDS,
    read=request_from_json,
    refusal=_refusal,
    rows=lambda request: len(request.items),
    fewest=32,
    most=64,
)
