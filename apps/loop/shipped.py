"""The data in `data/`: public votes and texts that anyone may use (see data/LICENCES.md)."""

import gzip
import json
from collections.abc import Iterator
from typing import Any

from django.conf import settings

Row = dict[str, Any]

SOURCE, LICENCE = "UKPConvArg1", "CC-BY-4.0"
# The debates' prompts end with the first of these. Four ways to ask make 32 prompts of 8 stances,
# enough to answer at every evaluation, and none of them stands in a demonstration.
PHRASINGS = (
    "Write a convincing argument for this stance.",
    "Give one strong argument for this stance.",
    "Argue for this stance in a few sentences.",
    "Convince a sceptic of this stance.",
)


def _rows(name: str) -> Iterator[Row]:
    path = settings.BASE_DIR / "data" / f"{name}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def comparison_rows() -> list[Row]:
    """For `comparisons_import`: 2,200 pairs of arguments with their published labels."""
    rows = []
    for row in _rows("comparisons"):
        first, second = row["source"].split("_")  # ids of the two arguments at the source
        rows.append(
            {
                "id": row["item"],
                "prompt": row["prompt"],
                "response_a": row["response_a"],
                "response_b": row["response_b"],
                "gold": row["gold"],
                "group": row["debate"],
                "topic": row["topic"],
                "language": "en",
                "source": SOURCE,
                "licence": LICENCE,
                "origin": "human",
                "origin_ref_a": first,
                "origin_ref_b": second,
            }
        )
    return rows


def vote_rows() -> list[Row]:
    """For `votes_import`: 10,967 votes of 2,134 people."""
    return [
        {"comparison": row["item"], "annotator": row["annotator"], "choice": row["choice"]}
        for row in _rows("votes")
    ]


def demonstration_rows() -> list[Row]:
    """For `snapshot_import`: winning arguments of other debates, GSM8K, seed tasks."""
    return list(_rows("demonstrations"))


def prompt_rows() -> list[Row]:
    """For `snapshot_import`: the stances that were voted on, each asked in four ways."""
    rows = []
    for row in _rows("prompts"):
        if row["voted"]:
            asked = row["prompt"].removesuffix(PHRASINGS[0])
            rows += [
                {"prompt": asked + phrasing, **{k: row[k] for k in ("group", "source", "licence")}}
                for phrasing in PHRASINGS
            ]
    return rows
