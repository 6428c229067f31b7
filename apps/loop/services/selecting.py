"""Putting only some of the pairs that a generation wrote into the label queue, by a plan.

Measuring pairs are drawn first, from all candidates, so nothing that was chosen decides what is
measured; training pairs are drawn from the rest. Both are simple random samples, and the
probability with which a pair was drawn into its slice stands beside it. What a model then chooses
is certain once the two are drawn, so it has no such probability, and no estimate may use it.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.db import transaction

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.labeling.models import Comparison, PairSelection
from apps.labeling.services import SliceRows, batch_comparable, batch_select, selection_known
from apps.loop import selectors
from apps.loop.plan import Ints, SelectionPlan, slices_draw
from apps.loop.services import Row, pair_rows, rows_said
from apps.snapshots.selectors.selection import newest_replay
from apps.snapshots.services.selection import Told, pool_with_fresh
from apps.snapshots.storage import artifact_store
from apps.training.models import Run
from measures.acquisition import choose
from measures.selection import START
from workers.config import recipe_config

__all__ = ["PairsSelected", "SelectionPlan", "pairs_select"]

RIDGE = 3.0  # where no replay has tuned it: the argument pairs' best
MOST_PAST = 5_000  # pairs with votes that a model learns from; a random part of more
Slice = Comparison.Slice


@dataclass(frozen=True, slots=True)
class PairsSelected:
    """What became of a run's pairs. queued: by this call; known: that a call before it had queued;
    refused: could not be compared; candidates: could; left: were not chosen.

    ridge, n_past: of the model that chose, and the voted pairs it was fitted on; None without one.
    """

    queued: int
    known: int
    refused: int
    candidates: int
    measuring: int
    training: int
    selected: int
    left: int
    ridge: float | None = None
    n_past: int | None = None

    @classmethod
    def of(cls, found: PairSelection, *, made: bool) -> "PairsSelected":
        n = sum(found.report[name] for name in Slice.values)
        return cls(queued=n if made else 0, known=0 if made else n, **found.report)


def pairs_select(
    *, run: Run, plan: SelectionPlan, by: User | None = None, priority: float | None = None
) -> PairsSelected:
    """Queue the pairs of a finished generation that the plan chooses, all or none. A second call
    with the same plan changes nothing. priority: the run's own, where it is not given.

    Errors: `Conflict` with code `no_pairs` (the run has not finished with any) or `pairs_queued`
    (by another plan, or all of them); `DomainError` with code `no_candidates` (no pair could be
    compared), `few_past_votes` (a model shall choose and has nothing to learn from) or `bad_votes`
    (more than the project allows); `ArtifactError` when the file is gone or not what was reported.
    """
    batch, project = selectors.batch_of(run), run.project
    if known := selection_known(project=project, batch=batch, plan=plan.to_json()):
        return PairsSelected.of(known, made=False)
    every = _rows(run)
    said = rows_said(every)
    rows = [said[place] for place in batch_comparable(project=project, rows=said)]
    if not rows:
        raise DomainError("None of the run's pairs could be compared.", code="no_candidates")
    slices, model = _slices(run, plan, rows)
    report = {
        "refused": len(every) - len(rows),
        "candidates": len(rows),
        **{one.name: len(one.rows) for one in slices},
        "left": len(rows) - sum(len(one.rows) for one in slices),
        **model,
    }
    if priority is None:
        priority = recipe_config(run.kind, run.config).get("queue_priority", 0.0)
    with transaction.atomic():
        found, made = batch_select(
            project=project,
            batch=batch,
            slices=slices,
            plan=plan.to_json(),
            report=report,
            priority=priority,
        )
        result = PairsSelected.of(found, made=made)
        if made:
            audit_record(
                action=selectors.SELECTED,
                actor=by,
                project=project,
                subject=run.pk,
                details={"pairs": result.queued, **report, "plan": plan.to_json()},
            )
    return result


def _rows(run: Run) -> list[Row]:
    artifact = selectors.pairs_file(run)
    if run.state != Run.State.FINISHED or artifact is None:
        raise Conflict("The run has not finished with pairs to send.", code="no_pairs")
    text = artifact_store().read_bytes(artifact.uri, sha256=artifact.sha256).decode("utf-8")
    return pair_rows(text, run=run)


def _slices(
    run: Run, plan: SelectionPlan, rows: list[Row]
) -> tuple[list[SliceRows], dict[str, Any]]:
    """The slices, and what is to be known of the model that chose the last one."""
    n = len(rows)
    n_measuring, n_training, n_selected = plan.sizes(n)
    seed = [plan.seed, int.from_bytes(hashlib.sha256(run.pk.encode()).digest()[:4], "big")]
    measuring, training = slices_draw(n, measuring=n_measuring, training=n_training, seed=seed)
    picked: Ints = np.arange(0)
    model: dict[str, Any] = {}
    if n_selected:
        drawn = np.concatenate([measuring, training])
        picked, model = _chosen(run.project, plan, rows, drawn, n_selected)

    def of(places: Ints) -> list[Row]:
        return [rows[place] for place in sorted(places.tolist())]

    return [
        SliceRows(
            Slice.MEASURING.value,
            of(measuring),
            plan.measuring_votes,
            n_measuring / n if n_measuring else None,
            votes_field="measuring_votes",
        ),
        SliceRows(Slice.TRAINING.value, of(training), 1, n_training / n if n_training else None),
        SliceRows(Slice.SELECTED.value, of(picked), 1, None),
    ], model


def _chosen(
    project: Project, plan: SelectionPlan, rows: list[Row], drawn: Ints, n: int
) -> tuple[Ints, dict[str, Any]]:
    """Places of at most n rows that were not drawn. Those that were count as asked: what they will
    tell need not be asked again."""
    fresh = [Told.of(row["prompt"], row["response_a"], row["response_b"]) for row in rows]
    pool, n_past = pool_with_fresh(project, fresh, most=MOST_PAST)
    if n_past < START:
        raise DomainError(
            f"A model shall choose pairs, and {n_past:,} pairs of this project have a vote for one "
            f"of their answers; it needs {START}. Label pairs first, or select none.",
            code="few_past_votes",
            field="selected",
        )
    replay = newest_replay(project)
    ridge = (replay.result.get("ridge") if replay else None) or RIDGE
    left = np.setdiff1d(np.arange(len(rows)), drawn)
    picked = choose(
        plan.strategy,
        pool.pairs,
        asked=np.concatenate([np.arange(n_past), n_past + drawn]),
        left=n_past + left,
        n=n,
        ridge=ridge,
        most_per_prompt=plan.most_per_prompt,
        seed=plan.seed,
    )
    return picked - n_past, {"ridge": ridge, "n_past": n_past}
