"""Datasets of pairs that a model labelled: by a judge, or by rewriting its own answers.

No person compared them. Every row says who labelled it, they weigh at most what a person's rows do,
and they are for training: the one split that is held out of them is there to stop by.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.snapshots.assembling.ai_feedback import (
    AI,
    LABELLED_BY,
    LONGEST_LABELLER,
    labelled_counts,
    parse_ai_rows,
    place_ai_rows,
)
from apps.snapshots.models import AI_FEEDBACK, IMPORTED, Snapshot
from apps.snapshots.recipe import TRAIN
from apps.snapshots.services.drafts import draft_make
from apps.snapshots.services.importing import leave_out_overlap, placed_freeze, require_rows

LABELLED = "AI feedback"  # of a snapshot's counts


def ai_feedback_freeze(
    *,
    project: Project,
    name: str,
    rows: Iterable[Mapping[str, Any]],
    about: Mapping[str, Any],
    user: User | None,
    labelled_by: str,
    finish: Callable[[Snapshot], None] | None = None,
) -> Snapshot:
    """Freeze pairs that a model labelled. All rows or none: `DomainError` names row and field.

    rows: `prompt`, `chosen` and `rejected` (messages), `label_probability` (P(chosen is preferred),
    over 0.5, at most 1), `weight` (over 0; at most 1, which a person's row weighs), `group`, and
    perhaps `principle` (its name), `comparison` (number) and `sources` (which model each answer is
    from, the chosen one's first). labelled_by: "ai:" and who labelled them, written into every row.
    about: what else the recipe, the card and the counts say, such as ids of runs. finish: called in
    the transaction that freezes it.

    Rows of a share of the groups become the split `dev`, by the hash that holds out people's rows.
    Training rows whose prompts other datasets of the project hold out, or nearly, are left out and
    counted, as are repeats.
    """
    if not labelled_by.startswith(AI) or not len(AI) < len(labelled_by) <= LONGEST_LABELLER:
        raise DomainError(
            f"Who labelled the rows is '{AI}' and a name, of at most {LONGEST_LABELLER} "
            "characters together.",
            code="bad_labeller",
            field=LABELLED_BY,
        )
    parsed = parse_ai_rows(rows, labelled_by=labelled_by)
    if parsed.refused:
        raise parsed.refused[0]
    placed = place_ai_rows(parsed)
    leave_out_overlap(project, placed, parsed)
    require_rows(placed)
    training = [one.row for one in placed.files[TRAIN]]
    said = {
        **about,
        "labelled": LABELLED,
        **labelled_counts(training),
    }
    warning = (
        f"No person labelled these pairs: {labelled_by} did. Accuracy on them is agreement with "
        "it, and says nothing of people."
    )
    snapshot = draft_make(
        project=project,
        name=name,
        kind=Snapshot.Kind.PREFERENCES,
        recipe={IMPORTED: True, AI_FEEDBACK: {**about, LABELLED_BY: labelled_by}},
        user=user,
    )
    placed_freeze(
        snapshot,
        replace(placed, warnings=(warning, *placed.warnings)),
        parsed.dropped,
        about=said,
        finish=None if finish is None else partial(finish, snapshot),
    )
    return snapshot
