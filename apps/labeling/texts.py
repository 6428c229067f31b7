"""Messages: their one stored form, their fingerprints, and short excerpts for lists.

A text is kept as given. Two fingerprints say when two texts are "the same": `fingerprint` ignores
only what nobody can see (Unicode composition, line ends, outer and trailing blanks); it identifies
rows, so an answer that differs in indentation or case stays an answer of its own. `loose_key` also
ignores case and all runs of blanks; it groups near-identical prompts into one split.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from measures.messages import Message, Messages, canonical, said

ROLES = ("system", "user", "assistant", "tool")
MOST_CHARACTERS = 400_000  # of one text; more is a file, not something to compare
EMPTY = "(empty answer)"  # how one is shown
MOST_MESSAGES = 2_000  # of one prompt or answer: a trajectory of 1,000 calls with their results
MOST_IN_ALL = 80_000_000  # characters of one prompt or answer
MOST_CALLS = 100  # of tools, in one message
LONGEST_NAME = 200  # characters of a tool's name or of a call's id

# What only some messages have, in the order in which it counts in their fingerprints.
PARTS = ("reasoning_content", "tool_calls", "name", "error")

_FEW = MOST_IN_ALL // MOST_CHARACTERS  # messages that cannot be too long in all
_TRAILING = re.compile(r"[^\S\n]+$", re.MULTILINE)
_as_json = json.JSONEncoder(ensure_ascii=False).encode
_BLANKS = re.compile(r"\s+")
_BLANK_ENDS = tuple(f"{blank}\n" for blank in " \t\v\f\x1c\x1d\x1e\x1f")


class BadMessages(ValueError):
    """A value that is neither a text nor a list of messages; the text says what is wrong."""


def messages_from(value: Any, *, role: str) -> Messages:
    """`value` as messages: a text becomes one message of `role`, a list is checked and kept.

    Raises BadMessages.
    """
    if isinstance(value, str):
        return [_message({"role": role, "content": value}, "the text")]
    if not isinstance(value, list):
        raise BadMessages("must be a text or a list of messages")
    if not value:
        raise BadMessages("is an empty list of messages")
    if len(value) > MOST_MESSAGES:
        raise BadMessages(f"has {len(value):,} messages; at most {MOST_MESSAGES}")
    messages = [_message(entry, f"message {number}") for number, entry in enumerate(value, start=1)]
    if len(value) > _FEW and (size := sum(len(m["content"]) for m in messages)) > MOST_IN_ALL:
        raise BadMessages(f"has {size:,} characters in all; at most {MOST_IN_ALL:,}")
    return messages


def _message(entry: Any, where: str) -> Message:
    if not isinstance(entry, dict):
        raise BadMessages(f"{where} must be an object with role and content")
    role, content = entry.get("role"), entry.get("content")
    if role not in ROLES:
        raise BadMessages(f"{where} has role {role!r}; one of {', '.join(ROLES)} is expected")
    parts = _parts(entry, role, where) if len(entry) > 2 or content is None else {}
    if content is None and parts:  # an agent may call a tool and say nothing
        content = ""
    if not isinstance(content, str):
        raise BadMessages(f"{where} has no text as its content")
    if role in ("system", "user") and not content.strip():  # models and tools may answer nothing
        raise BadMessages(f"{where} is empty")
    _checked(content, where)
    return {"role": role, "content": content, **parts}


def _checked(text: str, where: str) -> str:
    if len(text) > MOST_CHARACTERS:
        raise BadMessages(f"{where} has {len(text):,} characters; at most {MOST_CHARACTERS:,}")
    if "\x00" in text:
        raise BadMessages(f"{where} contains a NUL character, which no database text can hold")
    return text


def _parts(entry: Mapping[str, Any], role: str, where: str) -> Message:
    """What a message of an agent or a tool has beside its text; other keys are left out."""
    parts: Message = {}
    if role == "assistant":
        if thought := entry.get("reasoning_content"):
            parts["reasoning_content"] = _text(thought, "reasoning_content", where)
        if calls := entry.get("tool_calls"):
            parts["tool_calls"] = _calls(calls, where)
    elif role == "tool":
        for name in ("tool_call_id", "name"):
            if value := entry.get(name):
                parts[name] = _text(value, name, where, LONGEST_NAME)
        if entry.get("error"):
            parts["error"] = True
    return parts


def _text(value: Any, name: str, where: str, longest: int = MOST_CHARACTERS) -> str:
    if not isinstance(value, str):
        raise BadMessages(f"{where}: {name} must be a text")
    if len(value) > longest:
        raise BadMessages(f"{where}: {name} has {len(value):,} characters; at most {longest:,}")
    return _checked(value, f"{where}: {name}")


def _calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise BadMessages(f"{where}: tool_calls must be a list")
    if len(calls) > MOST_CALLS:
        raise BadMessages(f"{where} calls {len(calls):,} tools; at most {MOST_CALLS}")
    return [_call(call, f"{where}, call {n}") for n, call in enumerate(calls, start=1)]


def _call(call: Any, where: str) -> dict[str, Any]:
    """A call as the chat templates have it; name and arguments may also stand in it directly."""
    inner = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(inner, dict):
        raise BadMessages(f"{where} must be an object with name and arguments")
    name = _text(inner.get("name"), "name", where, LONGEST_NAME)
    if not name.strip():
        raise BadMessages(f"{where} names no tool")
    number = call.get("id")
    given = {"id": _text(number, "id", where, LONGEST_NAME)} if number else {}
    asked = {"name": name, "arguments": _arguments(inner.get("arguments"), where)}
    return {"type": "function", **given, "function": asked}


def _arguments(given: Any, where: str) -> dict[str, Any] | str:
    """An object, also where it was written as JSON text; a text that is no object stays one."""
    text = given if isinstance(given, str) else ""
    if text:
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            given = text
        if not isinstance(given, dict):
            return _checked(text, f"{where}: arguments")
    if not given:
        return {}
    if not isinstance(given, dict):
        raise BadMessages(f"{where}: arguments must be an object")
    try:
        written = canonical(given)
    except (TypeError, ValueError, RecursionError):
        raise BadMessages(f"{where}: arguments are no JSON object") from None
    _checked(written.replace("\\u0000", "\x00"), f"{where}: arguments")
    return given


MOST_TOOLS = 500  # offered with one prompt


def tools_from(value: Any) -> list[dict[str, Any]]:
    """The tools that were offered: a list of JSON schemas. Raises BadMessages."""
    if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
        raise BadMessages("must be a list of JSON schemas of tools")
    if len(value) > MOST_TOOLS:
        raise BadMessages(f"has {len(value):,} tools; at most {MOST_TOOLS}")
    try:
        text = canonical(value)
    except (TypeError, ValueError, RecursionError):
        raise BadMessages("is no JSON") from None
    _checked(text.replace("\\u0000", "\x00"), "the list")
    return value


def fingerprint(messages: Messages, tools: Sequence[Any] | None = None) -> str:
    """sha256 of the messages, blind only to invisible differences (see the module's text).

    tools: the schemas that were offered; they are part of what a prompt asks.
    """
    return _digest([(m["role"], _visible(m["content"]), _rest(m)) for m in messages], tools)


def loose_key(messages: Messages) -> str:
    """sha256 of the messages, blind to case, blanks and compatibility forms as well."""
    return _digest([(m["role"], loose_text(m["content"]), _rest(m)) for m in messages])


def _rest(message: Message) -> str:
    """The parts of a message as they count in its fingerprint, "" where it has none. Ids of calls
    are left out, since two runs of one agent draw different ones."""
    if len(message) == 2:
        return ""
    parts = {name: message[name] for name in PARTS if name in message}
    if calls := parts.get("tool_calls"):
        parts["tool_calls"] = [list(call["function"].values()) for call in calls]
    return canonical(parts) if parts else ""


def loosely_equal(one: Messages, other: Messages) -> bool:
    """Whether two texts have the same `loose_key`, without hashing where the first words differ."""
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        if a["role"] != b["role"] or _beginning(a["content"]) != _beginning(b["content"]):
            return False
    return loose_key(one) == loose_key(other)


def _beginning(text: str) -> str:
    return loose_text(" ".join(text.split(None, 3)[:3]))


def loose_text(text: str) -> str:
    if text.isascii():
        return " ".join(text.lower().split())
    return _BLANKS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()


def _visible(text: str) -> str:
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():
        # Nothing to compose, and blanks before a line's end are rare: look for them first.
        if "\n" in text and any(blank in text for blank in _BLANK_ENDS):
            text = _TRAILING.sub("", text)
        return text.strip()
    return _TRAILING.sub("", unicodedata.normalize("NFC", text)).strip()


def _digest(turns: list[tuple[str, str, str]], tools: Sequence[Any] | None = None) -> str:
    # The JSON of the turns, put together from that of the texts: three times as fast.
    text = ", ".join(
        f'["{role}", {_as_json(words)}, {rest}]' if rest else f'["{role}", {_as_json(words)}]'
        for role, words, rest in turns
    )
    offered = f", {canonical(tools)}" if tools else ""
    return hashlib.sha256(f"[{text}{offered}]".encode("utf-8", "replace")).hexdigest()


def messages_json(messages: Messages) -> str:
    """The JSON of checked messages, faster than `json.dumps` of the list."""
    turns = (
        f'{{"role": "{m["role"]}", "content": {json.dumps(m["content"])}}}'
        if len(m) == 2
        else json.dumps(m)
        for m in messages
    )
    return f"[{', '.join(turns)}]"


def excerpt(messages: Messages, length: int = 140) -> str:
    """The beginning of the last turn on one line, for lists; what a tool gave back last says less
    than what was asked."""
    turn = messages[-1]
    if turn["role"] == "tool":
        turn = next((m for m in reversed(messages) if m["role"] == "user"), turn)
    text = _BLANKS.sub(" ", said(turn)[: 4 * length]).strip() or EMPTY
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"
