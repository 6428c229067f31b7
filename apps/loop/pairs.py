"""A generation's file of pairs, as rows for the label queue."""

import json
from typing import Any

from apps.common.errors import DomainError
from apps.labeling.models import Comparison, Response
from apps.snapshots.recipe import TRAIN
from apps.snapshots.storage import artifact_store
from apps.training.models import Run

Row = dict[str, Any]

# Before what is drawn at random, and out of the random stratum, on which agreement is computed:
# these pairs are chosen by being new, and they are another kind of text.
PRIORITY = 1.0


def pair_rows(text: str, *, run: Run) -> list[Row]:
    """Rows for `comparisons_import`. `text`: JSON Lines as the recipe `generate` writes them.

    The id is the run's and the line's, so that queueing twice adds nothing; the group is that of
    the prompt in the run's prompts, so that splits keep what belongs together. Raises
    `DomainError` naming the line of a file that is not of this form.
    """
    groups = _groups(run)
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            pair = json.loads(line)
            rows.append(_row(pair, run, number, groups))
        except (ValueError, KeyError, TypeError) as error:
            raise DomainError(
                f"Line {number} of the generated pairs is not as expected: {error!r}.",
                code="bad_pairs",
                row=number,
            ) from error
    return rows


def _row(pair: Row, run: Run, number: int, groups: dict[str, Row]) -> Row:
    about = groups.get(_key(pair["prompt"]), {})
    return {
        "id": f"{run.pk}-{number}",
        "prompt": pair["prompt"],
        "response_a": pair["response_a"]["text"],
        "response_b": pair["response_b"]["text"],
        "origin": Response.Origin.MODEL.value,
        "origin_ref_a": pair["response_a"]["origin"]["checkpoint"],
        "origin_ref_b": pair["response_b"]["origin"]["checkpoint"],
        "group": about.get("group", ""),
        "source": about.get("source", ""),
        "licence": about.get("licence", ""),
        "stratum": Comparison.Stratum.PRIORITY.value,
        "priority": PRIORITY,
    }


def _groups(run: Run) -> dict[str, Row]:
    """What the run's prompts say of themselves, by prompt."""
    link = run.inputs.filter(role="prompts", snapshot__isnull=False).select_related("snapshot")
    snapshot = next((row.snapshot for row in link), None)
    if snapshot is None:
        return {}
    rows = artifact_store().lines(f"{snapshot.uri}/{TRAIN}.jsonl")
    return {_key(row["prompt"]): row for row in rows if "prompt" in row}


def _key(messages: Any) -> str:
    return json.dumps(messages, sort_keys=True)
