"""Images that a file brings along: as data URLs in its texts, or in a column beside them.

Source: TRL, "Dataset formats" (vision): a column `images` (or `image`) in the order of the parts
`{"type": "image"}` of the messages; `datasets` writes each as a struct of `bytes` and `path`.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from apps.labeling.formats.conversations import as_list
from apps.labeling.formats.records import BadValue, Record

COLUMNS = ("images", "image")
DATA_URL = re.compile(
    r"!\[((?:[^\]\\\n]|\\.)*)\]\(data:image/[a-z+.-]{1,20};base64,([A-Za-z0-9+/=\s]*)\)"
)
_PLACE = re.compile(r"<image>\n?")
_PARTS = ("image", "image_url", "input_image")
_BEGINNINGS = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"RIFF", "webp"))


def data_url(content: bytes) -> str:
    """Of the bytes of a PNG, a JPEG or a WebP; empty of anything else."""
    for begin, kind in _BEGINNINGS:
        if content.startswith(begin):
            return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return ""


def without_data(value: Any) -> Any:
    """A text, or messages, with the words of its images alone: what counts as its length."""
    if isinstance(value, str):
        return DATA_URL.sub(r"![\1]", value) if "](data:image/" in value else value
    if isinstance(value, list):
        return [
            {**one, "content": without_data(one["content"])}
            if isinstance(one, Mapping) and "content" in one
            else one
            for one in value
        ]
    return value


def images_placed(record: Record, mapping: Mapping[str, str]) -> Record:
    """The record with the images of its column in their places: the parts of its messages that
    hold none themselves, else `<image>` in its texts, else before its prompt. Raises `BadValue`.

    mapping: field to column; a column that fills a field is no column of images.
    """
    name = next(
        (one for one in COLUMNS if record.get(one) and one not in mapping.values()),
        "",
    )
    held = record.get(name)
    values = held if isinstance(held, list) else [held]
    found = [_address(value) for value in values]
    brought = any(isinstance(value, Mapping) and value.get("bytes") for value in values)
    if not name or not (brought or any(found)):  # paths and addresses: nothing is fetched
        return record
    if not all(found):
        number = found.index("") + 1
        raise BadValue(name, f"holds no PNG, JPEG or WebP at place {number}")
    texts = {one: _messages(value) for one, value in record.items() if one != name}
    for fill in (_in_parts, _in_words):
        filled = {one: fill(value, found, name) for one, value in texts.items()}
        if filled != texts:
            return filled
    first = [mapping[one] for one in ("prompt", "messages") if mapping.get(one) in texts]
    first = first or [mapping[one] for one in ("chosen", "rejected") if one in mapping]
    if not first:
        raise BadValue(name, "has images, and there is no prompt to show them in")
    for one in first:
        texts[one] = _before(texts.get(one), found, name)
    return texts


def _messages(value: Any) -> Any:
    """Messages that a column holds as JSON text; anything else as it is."""
    if isinstance(value, str) and value.lstrip().startswith("[{"):
        read = as_list(value)
        return read if isinstance(read, list) and "role" in read[0] else value
    return value


def _address(value: Any) -> str:
    """A data URL: as such, or as `{"bytes": …}` that a reader of Parquet or Arrow has made one."""
    said = value.get("bytes") if isinstance(value, Mapping) else value
    return said if isinstance(said, str) and said.startswith("data:image/") else ""


def _in_parts(value: Any, found: Sequence[str], name: str) -> Any:
    """From the first image on for each column: chosen and rejected may both hold the prompt."""
    left = iter(found)
    return [_with_parts(one, left, name) for one in value] if isinstance(value, list) else value


def _with_parts(message: Any, left: Iterator[str], name: str) -> Any:
    if not isinstance(message, Mapping) or not isinstance(message.get("content"), list):
        return message
    parts = []
    for part in message["content"]:
        if (
            isinstance(part, Mapping)
            and part.get("type") in _PARTS
            and not any(part.get(source) for source in ("image_url", "source", "image"))
        ):
            address = next(left, None)
            if address is None:
                raise BadValue(name, "holds fewer images than the messages have places for")
            part = {"type": "image", "image": address}
        parts.append(part)
    return {**message, "content": parts}


def _in_words(value: Any, found: Sequence[str], name: str) -> Any:
    left = iter(found)

    def place(match: re.Match[str]) -> str:
        address = next(left, None)
        if address is None:
            raise BadValue(name, "holds fewer images than the texts have places for")
        return f"![]({address})\n"

    if isinstance(value, str):
        return _PLACE.sub(place, value)
    if isinstance(value, list):
        return [
            {**one, "content": _PLACE.sub(place, one["content"])}
            if isinstance(one, Mapping) and isinstance(one.get("content"), str)
            else one
            for one in value
        ]
    return value


def _before(value: Any, found: Sequence[str], name: str) -> Any:
    """The images before a text, or before what the user says first."""
    shown = "\n".join(f"![]({address})" for address in found)
    if isinstance(value, str):
        return f"{shown}\n{value}"
    turns = list(value) if isinstance(value, list) else []
    for place, turn in enumerate(turns):
        if isinstance(turn, Mapping) and turn.get("role", "user") in ("user", "human"):
            if isinstance(turn.get("content"), str):
                turns[place] = {**turn, "content": f"{shown}\n{turn['content']}"}
                return turns
            if isinstance(turn.get("content"), list):
                parts = [{"type": "image", "image": address} for address in found]
                turns[place] = {**turn, "content": list(chain(parts, turn["content"]))}
                return turns
    raise BadValue(name, "has images, and there is no message of a user to show them in")
