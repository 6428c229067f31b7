"""Pairs that a model labelled, in the form of the files. Every row says who labelled it."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from apps.common.errors import DomainError
from apps.labeling.texts import loose_key
from apps.snapshots.assembling.imported import (
    REPEATS,
    Given,
    Parsed,
    Placed,
    bad_row,
    ends_with_answer,
    messages_at,
    place_rows,
)
from apps.snapshots.assembling.rows import Row, own_columns
from apps.snapshots.recipe import DEV, TRAIN, in_order
from workers.contract.jobs import PEOPLE

AI = "ai:"  # what begins the name of a model that labels
LABELLED_BY, PRINCIPLE = "labelled_by", "principle"  # columns
LONGEST_LABELLER = 120
LONGEST_PRINCIPLE = 200  # of its name
_COLUMNS = (
    "prompt",
    "chosen",
    "rejected",
    "label_probability",
    "weight",
    "group",
    PRINCIPLE,
    "comparison",
    "sources",
)


def parse_ai_rows(rows: Iterable[Mapping[str, Any]], *, labelled_by: str) -> Parsed:
    """Rows as `ai_feedback_freeze` takes them, numbered from 1. Rows that are the same in every
    column are one."""
    found, seen = Parsed(), set[str]()
    for number, given in enumerate(rows, start=1):
        try:
            row = _row(given, number, labelled_by)
        except DomainError as error:
            found.refused.append(error)
            continue
        key = json.dumps(row, sort_keys=True)
        if key in seen:
            found.dropped[REPEATS] += 1
            continue
        seen.add(key)
        found.rows.append(Given(number, row, ""))
    if all(one.row["label_probability"] == 1 for one in found.rows):
        for one in found.rows:  # the labels are hard, and no loss needs to be told otherwise
            del one.row["label_probability"]
    return found


def place_ai_rows(parsed: Parsed) -> Placed:
    """Training rows, and a dev split without which nothing could be trained on these rows alone.

    What the hash of a group would put into any held-out split of people's rows goes there, so that
    these rows are not trained on where people's are measured on.
    """
    placed = place_rows(parsed)
    held = [name for name in placed.files if name != TRAIN]
    files = {
        TRAIN: placed.files.get(TRAIN, []),
        DEV: [one for name in held for one in placed.files[name]],
    }
    units = {
        TRAIN: placed.units.get(TRAIN, 0),
        DEV: sum(placed.units.get(name, 0) for name in held),
    }
    kept = {name: of for name, of in in_order(files).items() if of}
    return replace(placed, files=kept, units={name: units[name] for name in kept})


def is_peoples(row: Mapping[str, Any]) -> bool:
    return str(row.get(LABELLED_BY) or PEOPLE) == PEOPLE


def labelled_counts(rows: Sequence[Row]) -> dict[str, Any]:
    """How many training rows people and which models labelled, and by which principle; nothing
    where no row says who did."""
    if not any(LABELLED_BY in row for row in rows):
        return {}
    by = Counter(str(row[LABELLED_BY]) for row in rows)
    principles = Counter(str(row.get(PRINCIPLE) or "") for row in rows)
    del principles[""]
    return {LABELLED_BY: dict(by.most_common()), "by_principle": dict(principles.most_common())}


def _row(given: Any, number: int, labelled_by: str) -> Row:
    if not isinstance(given, Mapping):
        raise DomainError(
            f"Row {number} is no object.", code="bad_row", row=number, details="is no object"
        )
    for name in given:
        if name not in _COLUMNS:
            known = ", ".join(_COLUMNS)
            raise bad_row(number, str(name)[:80], f"is no column; there are {known}")
    prompt = messages_at(given, "prompt", number, role="user")
    if prompt[-1]["role"] != "user":
        raise bad_row(number, "prompt", "must end with a message of the user")
    answers = {}
    for name in ("chosen", "rejected"):
        answers[name] = messages_at(given, name, number, role="assistant")
        ends_with_answer(answers[name], name, number)
    if answers["chosen"] == answers["rejected"]:
        raise bad_row(number, "rejected", "is the same text as the other answer")
    probability = _share(given, "label_probability", number)
    if probability <= 0.5:
        raise bad_row(
            number, "label_probability", "must be over 0.5: the chosen answer is likelier"
        )
    weight = _share(given, "weight", number)
    texts = {
        name: _text(given, name, number, most)
        for name, most in (("group", 400), (PRINCIPLE, LONGEST_PRINCIPLE), ("comparison", 40))
    }
    sources = given.get("sources") or ["", ""]
    if not isinstance(sources, list | tuple) or len(sources) != 2:
        raise bad_row(number, "sources", "must hold one origin per answer, the chosen one's first")
    group = texts["group"] or loose_key(prompt)
    return {
        "prompt": prompt,
        **answers,
        "weight": weight,
        "confidence": probability,
        "label_probability": probability,
        "votes": 0,
        "group": group,
        "cluster": group,
        "source": "",
        "licence": "",
        "sources": [str(one or "") for one in sources],
        "comparison": texts["comparison"],
        **own_columns(None, None),
        "annotator": "",
        LABELLED_BY: labelled_by,
        PRINCIPLE: texts[PRINCIPLE],
    }


def _share(given: Mapping[str, Any], name: str, number: int) -> float:
    """Over 0 and at most 1, which is what a person's row weighs."""
    value = given.get(name, 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise bad_row(number, name, "must be a number")
    if not 0 < value <= 1:
        raise bad_row(number, name, "must be over 0 and at most 1, which is a person's")
    return float(value)


def _text(given: Mapping[str, Any], name: str, number: int, most: int) -> str:
    value = given.get(name) or ""
    if not isinstance(value, str):
        raise bad_row(number, name, "must be text")
    if len(value) > most or "\x00" in value:
        raise bad_row(number, name, f"must be a text of at most {most} characters")
    return value
