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
from typing import Any

ROLES = ("system", "user", "assistant", "tool")
MOST_CHARACTERS = 400_000  # of one text; more is a file, not something to compare
EMPTY = "(empty answer)"  # how one is shown
MOST_MESSAGES = 500  # of one prompt or answer; a page shows them all

Messages = list[dict[str, str]]

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
    return [_message(entry, f"message {number}") for number, entry in enumerate(value, start=1)]


def _message(entry: Any, where: str) -> dict[str, str]:
    if not isinstance(entry, dict):
        raise BadMessages(f"{where} must be an object with role and content")
    role, content = entry.get("role"), entry.get("content")
    if role not in ROLES:
        raise BadMessages(f"{where} has role {role!r}; one of {', '.join(ROLES)} is expected")
    if not isinstance(content, str):
        raise BadMessages(f"{where} has no text as its content")
    if role != "assistant" and not content.strip():  # a model may answer nothing
        raise BadMessages(f"{where} is empty")
    if len(content) > MOST_CHARACTERS:
        raise BadMessages(f"{where} has {len(content):,} characters; at most {MOST_CHARACTERS:,}")
    if "\x00" in content:
        raise BadMessages(f"{where} contains a NUL character, which no database text can hold")
    return {"role": role, "content": content}


def fingerprint(messages: Messages) -> str:
    """sha256 of the messages, blind only to invisible differences (see the module's text)."""
    return _digest([(m["role"], _visible(m["content"])) for m in messages])


def loose_key(messages: Messages) -> str:
    """sha256 of the messages, blind to case, blanks and compatibility forms as well."""
    return _digest([(m["role"], loose_text(m["content"])) for m in messages])


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


def _digest(turns: list[tuple[str, str]]) -> str:
    # The JSON of the turns, put together from that of the texts: three times as fast.
    text = ", ".join(f'["{role}", {_as_json(words)}]' for role, words in turns)
    return hashlib.sha256(f"[{text}]".encode("utf-8", "replace")).hexdigest()


def messages_json(messages: Messages) -> str:
    """The JSON of checked messages, faster than `json.dumps` of the list."""
    turns = (f'{{"role": "{m["role"]}", "content": {json.dumps(m["content"])}}}' for m in messages)
    return f"[{', '.join(turns)}]"


def plain(messages: Messages) -> str:
    """The texts of all turns, one after another."""
    return "\n\n".join(message["content"] for message in messages)


def excerpt(messages: Messages, length: int = 140) -> str:
    """The beginning of the last turn on one line, for lists."""
    text = _BLANKS.sub(" ", messages[-1]["content"][: 4 * length]).strip() or EMPTY
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"
