"""Values as other tools write them, turned into ours: messages, choices, numbers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from apps.labeling.formats.records import BadValue

# Names that ShareGPT-like files use for roles ({"from": …, "value": …}).
_ROLES = {
    "human": "user",
    "user": "user",
    "prompter": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
}
_A = {"a", "left", "1", "first", "model_a", "response_a", "answer_a", "a_is_better", "option_a"}
_B = {"b", "right", "2", "second", "model_b", "response_b", "answer_b", "b_is_better", "option_b"}
_TIE = {"tie", "equal", "same", "draw", "tied", "both", "both_good", "no_preference", "similar"}
_BAD = {"both_bad", "bothbad", "tie_bothbad", "neither", "none", "both_are_bad", "tie_both_bad"}


def folded(value: Any) -> str:
    """A name without case, blanks and punctuation: `Response 1` and `response-1` are one."""
    text = "".join(c if c.isalnum() else "_" for c in str(value).strip().casefold())
    return "_".join(part for part in text.split("_") if part)


def choice_from(value: Any, *, a: Sequence[str] = (), b: Sequence[str] = ()) -> str:
    """a, b, tie or both_bad; `a` and `b` are further names of the two. Raises BadValue.

    A Label Studio choice may come as a list of one.
    """
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
        value = value[0]
    word = folded(value)
    if word in {folded(name) for name in a if name}:
        return "a"
    if word in {folded(name) for name in b if name}:
        return "b"
    for choice, words in (("a", _A), ("b", _B), ("tie", _TIE), ("both_bad", _BAD)):
        if word in words:
            return choice
    raise BadValue("choice", f"{str(value)[:60]!r} says neither of the two, tie or both bad")


def content_from(value: Any) -> Any:
    """A text as it is, a list of messages in our form; also one that was written as JSON text.

    `{"from": "human", "value": …}` is taken as well. What is neither is handed back: the import
    says what is wrong with it.
    """
    if isinstance(value, str):
        return (
            _from_json_text(value)
            if value[:1] in "[{" and value[:40].lstrip("[{ \n")[:1] in ("'\"")
            else value
        )
    if isinstance(value, Mapping):
        value = [value]
    if isinstance(value, Sequence):
        return [_message(entry) for entry in value]
    return value


def _from_json_text(text: str) -> Any:
    """Messages that a spreadsheet column holds as JSON; any other text stays a text."""
    value = _json(text)
    entries = value if isinstance(value, list) else [value]
    if entries and all(
        isinstance(e, dict) and ({"role", "content"} <= set(e) or {"from", "value"} <= set(e))
        for e in entries
    ):
        return content_from(entries)
    return text


def _message(entry: Any) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    if "role" in entry:
        role, content = entry["role"], entry.get("content")
    elif "from" in entry:
        role, content = entry["from"], entry.get("value")
    else:
        return dict(entry)
    return {"role": _ROLES.get(str(role).casefold(), role), "content": content}


def number_from(value: Any) -> Any:
    """A number that a spreadsheet holds as text; what is no number is handed back."""
    if not isinstance(value, str):
        return value
    try:
        return int(value)
    except ValueError:
        try:
            return float(value.replace(",", ".") if "." not in value else value)
        except ValueError:
            return value


def object_from(value: Any) -> Any:
    """An object that a column holds as JSON text; what is none is handed back."""
    return _json(value) if isinstance(value, str) else value


def _json(text: str) -> Any:
    """What a cell says in JSON; the text itself where that is none, or cannot be stored."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return text
    return value


def is_blank(value: Any) -> bool:
    """Nothing there: null, an empty text or list."""
    return value is None or (isinstance(value, str | list) and not value)
