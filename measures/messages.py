"""What messages say: of text alone, or of agents with their calls of tools, results and images.

A message has a `role` and a `content`, always a text. What else it may have, and how an image
stands in the text, is in docs/adr/0021-messages-with-parts.md.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Message = dict[str, Any]
Messages = list[Message]

# An image among the words, as Markdown writes one: (alternative text, sha256).
IMAGE = re.compile(r"!\[((?:[^\]\\\n]|\\.)*)\]\(image:([0-9a-f]{64})\)")


def canonical(value: Any) -> str:
    """JSON that is the same for equal values: keys in order, no blanks."""
    return json.dumps(
        value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    )


LONG_RESULT = 4_000  # characters of what a tool gave back that stay with its message
_BEGINNING = 1_000


def briefly(messages: Messages) -> tuple[Messages, dict[int, str]]:
    """The messages with the beginnings of long results of tools, and those results whole by the
    places of their messages. Such a message has `cut`: the `length` of the whole in characters and
    its sha256 as `hash`. One with an image stays whole."""
    whole = {n: message["content"] for n, message in enumerate(messages) if _is_long(message)}
    if not whole:
        return messages, whole
    return [_cut(m) if n in whole else m for n, m in enumerate(messages)], whole


def _is_long(message: Mapping[str, Any]) -> bool:
    text = message["content"]
    return message["role"] == "tool" and len(text) > LONG_RESULT and "](image:" not in text


def _cut(message: Mapping[str, Any]) -> Message:
    text = message["content"]
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    cut = {"length": len(text), "hash": digest}
    return {**message, "content": text[:_BEGINNING], "cut": cut}


def with_results(brief: Messages, whole: Mapping[int, str]) -> Messages:
    """The messages that `briefly` was given."""
    messages = [
        {name: value for name, value in message.items() if name != "cut"} for message in brief
    ]
    for place, text in whole.items():
        messages[place]["content"] = text
    return messages


def length_of(message: Mapping[str, Any]) -> int:
    """Characters of its text, also where only the beginning is there."""
    cut = message.get("cut")
    return int(cut["length"]) if cut else len(message["content"])


def said(message: Mapping[str, Any]) -> str:
    """Everything that a message says, in words: what was thought, the text with its images by their
    alternative texts, and each call of a tool. Of a message of text alone, that text."""
    text: str = message["content"]
    if "](image:" in text:
        text = IMAGE.sub(lambda found: f"[{found[1] or 'image'}]", text)
    if len(message) == 2:
        return text
    calls = (call_said(call) for call in message.get("tool_calls", ()))
    return "\n".join(part for part in (message.get("reasoning_content"), text, *calls) if part)


def recognised(message: Mapping[str, Any]) -> str:
    """What a message says for comparing texts: two images with the same words beside them are not
    the same. Of a long result of a tool the beginning and the hash of the whole."""
    if _is_long(message):
        message = _cut(message)
    if "cut" in message:
        return f"{message['content']} {message['cut']['hash'][:16]}"
    if "](image:" not in message["content"]:
        return said(message)
    named = IMAGE.sub(lambda found: f"[{found[1]} {found[2][:16]}]", message["content"])
    return said({**message, "content": named})


def call_said(call: Mapping[str, Any]) -> str:
    """A call of a tool on one line: `name({"x": 1})`."""
    name, given = call["function"]["name"], call["function"]["arguments"]
    return f"{name}({given if isinstance(given, str) else canonical(given)})"


def plain(messages: Sequence[Mapping[str, Any]]) -> str:
    """What all turns say, one after another."""
    return "\n\n".join(said(message) for message in messages)


def said_length(message: Mapping[str, Any]) -> int:
    """Characters of `said`, also where of a long result only the beginning is there."""
    return len(said(message)) - len(message["content"]) + length_of(message)


def plain_length(messages: Sequence[Mapping[str, Any]]) -> int:
    """Characters of `plain`, likewise."""
    return sum(map(said_length, messages)) + 2 * max(0, len(messages) - 1)


def written(messages: Sequence[Mapping[str, Any]]) -> str:
    """An answer as one text: what it says first, then each further turn after its role."""
    first, *rest = messages
    turns = (f"{turn['role'].capitalize()}: {said(turn)}" for turn in rest)
    return "\n\n".join([said(first), *turns])


def has_parts(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there is more than plain text: a call, its result, an image."""
    return any(
        len(m) > 2 or m["role"] == "tool" or IMAGE.search(m["content"]) is not None
        for m in messages
    )


def images_in(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The sha256 of each image, in order; one that comes twice twice."""
    for message in messages:
        if "](image:" in message["content"]:
            yield from (found[2] for found in IMAGE.finditer(message["content"]))
