"""Chosen and rejected: TRL's preference format, explicit and implicit prompt, text or messages.

Source: TRL, "Dataset formats", and `trl.data_utils.maybe_extract_prompt`: a prompt that is a text
beside answers that are whole conversations is not the prompt but a copy of it; their common turns
are. Which of the two becomes A is drawn by a seeded hash of the pair, so that A is not always the
better one. What the file prefers is kept as the comparison's published label ("gold") and said so
in its explanation: it is one more opinion to compare decisions with, not one of our votes.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from apps.labeling.formats.conversations import content_from
from apps.labeling.formats.mapping import Mapper, mapping_of, prompt_apart
from apps.labeling.formats.records import (
    COMMON,
    BadValue,
    Converted,
    Options,
    Record,
    RecordFault,
)
from measures.splits import unit_hash

KEY, LABEL = "preference", "chosen and rejected (TRL)"
FIELDS = (
    "prompt",
    "chosen",
    "rejected",
    "chosen_model",
    "rejected_model",
    "chosen_score",
    "rejected_score",
    *COMMON,
)
REQUIRED = ("chosen", "rejected")
EXPLANATION = "Imported preference: it was chosen over the other in the file it came from."


def fits(columns: Iterable[str], sample: Iterable[Record]) -> bool:
    found = mapping_of(Options(), REQUIRED, columns)
    return "chosen" in found and "rejected" in found


def choices(sample: Iterable[Record], columns: Iterable[str]) -> tuple[str, ...]:
    return tuple(columns)


def mapper(options: Options, columns: Iterable[str]) -> Mapper:
    return Mapper(options, FIELDS, columns)


def convert(number: int, record: Record, read: Mapper) -> Iterator[Converted]:
    try:
        parts = [read.value(record, name) for name in ("prompt", "chosen", "rejected")]
        yield Converted(number, row_of(*_explicit(*parts), record, read))
    except BadValue as error:
        yield Converted(number, fault=RecordFault(error.field, error.message))


def _explicit(prompt: Any, chosen: Any, rejected: Any) -> tuple[Any, Any, Any]:
    for name, value in (("chosen", chosen), ("rejected", rejected)):
        if value is None:
            raise BadValue(name, "is missing")
    return prompt_apart(prompt, chosen, rejected, where="rejected")


def row_of(prompt: Any, chosen: Any, rejected: Any, record: Record, read: Mapper) -> dict[str, Any]:
    """The comparison, with the chosen answer on the side that the hash says."""
    row = read.common(record) | {"prompt": prompt}
    sides = ("a", "b") if chosen_is_a(chosen, rejected, read.options.seed) else ("b", "a")
    for name, answer, side in zip(("chosen", "rejected"), (chosen, rejected), sides, strict=True):
        row[f"response_{side}"] = answer
        model = read.value(record, f"{name}_model")
        if isinstance(model, str):
            row[f"model_{side}"] = model
        score = read.value(record, f"{name}_score")
        if score is not None:
            row[f"metadata_{side}"] = {"score": score}
    if read.options.preference:
        row["gold"] = sides[0]
        row.setdefault("explanation", EXPLANATION)
    return row


def chosen_is_a(chosen: Any, rejected: Any, seed: int) -> bool:
    """A fair draw from the two texts, whatever their order in the file.

    The same two answers with the preference turned round keep their sides, and the label moves.
    """
    texts = [json.dumps(content_from(x), sort_keys=True, default=str) for x in (chosen, rejected)]
    first_in_order = texts[0] <= texts[1]
    heads = unit_hash("\0".join(sorted(texts)), f"imported preference:{seed}") < 0.5
    return heads == first_in_order
