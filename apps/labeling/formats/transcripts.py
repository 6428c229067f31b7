"""Anthropic HH: chosen and rejected are transcripts, "\\n\\nHuman: …\\n\\nAssistant: …".

Source: the dataset card of Anthropic/hh-rlhf. The common turns are the prompt, the rest are the
answers.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from apps.labeling.formats import preference
from apps.labeling.formats.mapping import Mapper, mapping_of, split_common
from apps.labeling.formats.records import COMMON, BadValue, Converted, Options, Record, RecordFault

KEY, LABEL = "transcripts", "Human / Assistant transcripts (HH)"
FIELDS = ("chosen", "rejected", *COMMON)
REQUIRED = ("chosen", "rejected")
_SPEAKER = re.compile(r"(?:^|\n\n)(Human|Assistant|System):[ \t]?")
_ROLE = {"Human": "user", "Assistant": "assistant", "System": "system"}


def fits(columns: Iterable[str], sample: Iterable[Record]) -> bool:
    found = mapping_of(Options(), REQUIRED, columns)
    if set(found) != set(REQUIRED):
        return False
    texts = [record.get(found["chosen"]) for record in sample]
    return bool(texts) and all(
        isinstance(text, str)
        and text.lstrip("\n").startswith("Human:")
        and "\n\nAssistant:" in text
        for text in texts
    )


def choices(sample: Iterable[Record], columns: Iterable[str]) -> tuple[str, ...]:
    return tuple(columns)


def mapper(options: Options, columns: Iterable[str]) -> Mapper:
    return Mapper(options, FIELDS, columns)


def convert(number: int, record: Record, read: Mapper) -> Iterator[Converted]:
    try:
        chosen, rejected = (turns_of(read, record, name) for name in REQUIRED)
        parts = split_common(chosen, rejected, where="rejected")
        yield Converted(number, preference.row_of(*parts, record, read))
    except BadValue as error:
        yield Converted(number, fault=RecordFault(error.field, error.message))


def turns_of(read: Mapper, record: Record, name: str) -> list[dict[str, Any]]:
    """The transcript as messages. Raises BadValue where it is none."""
    text = read.value(record, name)
    if not isinstance(text, str):
        raise BadValue(name, "is missing" if text is None else "is not a text")
    parts = _SPEAKER.split(text.lstrip("\n"))
    if len(parts) < 3 or parts[0].strip():
        raise BadValue(name, 'does not begin with a speaker ("Human:", "Assistant:")')
    return [
        {"role": _ROLE[speaker], "content": words.strip()}
        for speaker, words in zip(parts[1::2], parts[2::2], strict=True)
    ]
