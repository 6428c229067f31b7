"""Questions that a person puts to one or two models by hand, and their answers, in Redis. The web
side asks, an answerer answers (workers.answering).

    stream    questions that wait or are being answered; the group's pending list says by whom
    asked     what a question was, and when, for as long as anything of it is kept
    said      what has been written so far, again with every few tokens
    reply     the answers, set once
    stop      whether somebody pressed stop
    person    the question that a person asked last: the next one waits until it is answered

Nothing of this is in the database, and after `KEPT_SECONDS` nothing of it is left.
A question is `{"version", "id", "models": [{"uri", "sha256"}], "messages", "temperature", "top_p",
"max_new_tokens", "seed", "answer_seconds", "artifacts_url"}`; what was said and the reply are
`{"version", "id", "answers": [Answer], "error"}`. Standard library only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.contract.channel import Channel, from_json
from workers.contract.wire import ContractError, build

STREAM = "concord:ask:requests"
GROUP = "answerers"
ANSWERER = "answerer"  # the name it gives its sign of life under (workers.alive)
STATS = "concord:ask:stats"

KEPT_SECONDS = 3600  # of a question and its answers
MAX_WAITING = 20  # questions of everybody together
MAX_MODELS = 2
MAX_MESSAGES = 50
MAX_CHARACTERS = 50_000  # of all messages together
MAX_NEW_TOKENS = 2048
MAX_TEMPERATURE = 5.0
MAX_SEED = 2**31 - 1
ANSWER_SECONDS = 120.0  # an answer that takes longer ends there, if not before
GIVEN_UP_SECONDS = 900  # a question without an end by then keeps nobody from asking another

# KEYS stream, asked, person; ARGV most waiting, seconds, what was asked, id, request, seconds until
# given up, prefixes of the keys asked and reply.
# 1 taken, 0 too many wait already, -1 the person's last question is not answered yet.
SUBMIT = """
local last = redis.call('GET', KEYS[3])
if last and redis.call('EXISTS', ARGV[7] .. last) == 1
  and redis.call('EXISTS', ARGV[8] .. last) == 0 then return -1 end
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[2], ARGV[3], 'EX', ARGV[2])
redis.call('SET', KEYS[3], ARGV[4], 'EX', ARGV[6])
redis.call('XADD', KEYS[1], '*', 'id', ARGV[4], 'request', ARGV[5])
return 1
"""


def asked_key(question: str) -> str:
    return f"concord:ask:asked:{question}"


def said_key(question: str) -> str:
    return f"concord:ask:said:{question}"


def reply_key(question: str) -> str:
    return f"concord:ask:reply:{question}"


def stop_key(question: str) -> str:
    return f"concord:ask:stop:{question}"


def person_key(person: str) -> str:
    return f"concord:ask:person:{person}"


@dataclass(frozen=True, slots=True)
class AskRequest:
    """One conversation for each of the models, whose answers are drawn alike."""

    id: str
    models: Sequence[Mapping[str, str]]
    messages: Sequence[Mapping[str, str]]
    artifacts_url: str
    temperature: float = 0.7
    top_p: float = 1.0
    max_new_tokens: int = 256
    seed: int = 0
    answer_seconds: float = ANSWER_SECONDS


# States of an answer. A stopped one keeps what was written.
WAITING, LOADING, WRITING = "waiting", "loading", "writing"
ENDED, CUT, OUT_OF_TIME, STOPPED, FAILED = "ended", "cut", "out_of_time", "stopped", "failed"
FINAL = frozenset({ENDED, CUT, OUT_OF_TIME, STOPPED, FAILED})


@dataclass(frozen=True, slots=True)
class Answer:
    """`tokens` and `seconds` of writing; `error`: code and message of one that failed."""

    state: str = WAITING
    text: str = ""
    tokens: int = 0
    seconds: float = 0.0
    error: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class AskReply:
    """In the order of the models; `error` where no model was asked at all."""

    id: str
    answers: Sequence[Answer] = field(default_factory=tuple)
    error: Mapping[str, str] | None = None


def request_from_json(text: str | bytes) -> AskRequest:
    """Raises `ContractError` naming the field."""
    asked: AskRequest = build(AskRequest, from_json(text, where="question"), where="question")
    _require(isinstance(asked.id, str) and isinstance(asked.artifacts_url, str), "id: is no text")
    _require(_is_list(asked.models, {"uri", "sha256"}), "models: must be a list of uri and sha256")
    _require(len(asked.models) <= MAX_MODELS, f"models: are more than {MAX_MODELS}")
    _require(
        _is_list(asked.messages, {"role", "content"}), "messages: must be a list of role, content"
    )
    _require(_is_within(asked.temperature, 0, MAX_TEMPERATURE), "temperature: is none")
    _require(_is_within(asked.top_p, 0, 1) and asked.top_p > 0, "top_p: is none")
    _require(
        type(asked.max_new_tokens) is int and 1 <= asked.max_new_tokens <= MAX_NEW_TOKENS,
        f"max_new_tokens: must be 1 to {MAX_NEW_TOKENS}",
    )
    _require(type(asked.seed) is int and 0 <= asked.seed <= MAX_SEED, "seed: is none")
    _require(
        _is_within(asked.answer_seconds, 0, ANSWER_SECONDS) and asked.answer_seconds > 0,
        "answer_seconds: is none",
    )
    return asked


def reply_from_json(text: str | bytes) -> AskReply:
    data = from_json(text, where="answer")
    rows = data.get("answers") or []
    if not isinstance(rows, list):
        raise ContractError("answer.answers: is no list")
    data["answers"] = [
        build(Answer, row, where=f"answer.answers[{place}]") for place, row in enumerate(rows)
    ]
    reply: AskReply = build(AskReply, data, where="answer")
    return reply


def _require(fits: bool, why: str) -> None:
    if not fits:
        raise ContractError(f"question.{why}")


def _is_list(given: Any, names: set[str]) -> bool:
    return (
        isinstance(given, list)
        and bool(given)
        and all(isinstance(one, dict) and set(one) == names for one in given)
        and all(isinstance(value, str) for one in given for value in one.values())
    )


def _is_within(given: Any, low: float, high: float) -> bool:
    return type(given) in (int, float) and low <= given <= high


def _refusal(name: str, code: str, message: str) -> AskReply:
    return AskReply(name, error={"code": code, "message": message})


CHANNEL = Channel(
    stream=STREAM,
    group=GROUP,
    sign=ANSWERER,
    stats=STATS,
    reply_key=reply_key,
    reply_seconds=KEPT_SECONDS,
    read=request_from_json,
    refusal=_refusal,
    rows=lambda _: 1,
    fewest=1,
    most=1,
)
