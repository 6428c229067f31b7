"""What an inference server answered, believed nothing: one wrong field and the answer is none."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LONGEST = 200_000  # characters of one text
LONGEST_NAME = 200  # of a model's name
ENDED = {"stop": True, "eos_token": True, "stop_sequence": True, "length": False}


class BadAnswer(ValueError):
    """The answer is not what the interface promises; the text names the field."""


@dataclass(frozen=True, slots=True)
class Given:
    """One text. `ended`: it came to its end within the tokens it was allowed. `tokens`: as the
    server counts; None where it does not say, or counts several texts together."""

    text: str
    ended: bool
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """`model`: what the server says that it is, empty where it says nothing."""

    given: list[Given]
    model: str


def read_answer(body: bytes, *, chat: bool, count: int) -> Read:
    """The `count` texts of a chat completion, or of a completion. Raises `BadAnswer`."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"is no JSON ({str(error)[:80]})") from error
    if not isinstance(answer, Mapping):
        raise BadAnswer("is no object")
    choices = answer.get("choices")
    if not isinstance(choices, list):
        raise BadAnswer("choices: is no list")
    if len(choices) != count:
        hint = ": it gives one at a time, so set server.n to 1" if len(choices) == 1 else ""
        raise BadAnswer(f"choices: are {len(choices)}, and {count} were asked for{hint}")
    tokens = _tokens(answer.get("usage")) if count == 1 else None
    given = [_choice(choice, f"choices[{i}]", chat) for i, choice in enumerate(choices)]
    model = answer.get("model")
    return Read(
        [Given(text, ended, tokens) for text, ended in given],
        _written(model)[:LONGEST_NAME] if isinstance(model, str) else "",
    )


def _choice(choice: Any, where: str, chat: bool) -> tuple[str, bool]:
    if not isinstance(choice, Mapping):
        raise BadAnswer(f"{where}: is no object")
    if chat:
        message = choice.get("message")
        text = message.get("content") if isinstance(message, Mapping) else None
        field = f"{where}.message.content"
    else:
        text, field = choice.get("text"), f"{where}.text"
    if not isinstance(text, str):
        raise BadAnswer(f"{field}: is no text")
    if len(text) > LONGEST:
        raise BadAnswer(f"{field}: has {len(text):,} characters, over {LONGEST:,}")
    reason = choice.get("finish_reason")
    if not isinstance(reason, str) or reason not in ENDED:
        words = ", ".join(ENDED)
        raise BadAnswer(f"{where}.finish_reason: is {str(reason)[:40]!r}, none of {words}")
    return _written(text), ENDED[reason]


def _written(text: str) -> str:
    """What can be stored: JSON may name halves of characters, which become the sign that our own
    decoding gives them, and the character 0."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\x00", "")


def _tokens(usage: Any) -> int | None:
    """usage.completion_tokens, where it is a number that can be one."""
    found = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return int(found) if math.isfinite(found) and 0 <= found < 10**9 else None
