"""Datasets and models by name and address, as other apps show them (`apps.common.registry.Use`)."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.urls import NoReverseMatch, reverse

from apps.accounts.models import Project
from apps.common.registry import Use
from apps.snapshots.lineage import Made, comparison_rows, made_from, origins, read_by, rows_behind
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import PRIVATE_SPLITS
from apps.snapshots.vote_changes import changed_counts

_WINNERS = {"a": "A won", "b": "B won", "tie": "tie", "both_bad": "both bad"}


def comparison_trace(project: Project, comparison: int) -> list[Use]:
    """Every dataset that looked at the comparison, with what became of it and who read it."""
    rows = comparison_rows(project=project, comparison=comparison)
    runs = _direct(row.snapshot for row in rows if row.split)
    return [_dataset(row, runs.get(row.snapshot_id, ()) if row.split else ()) for row in rows]


def comparison_tree(rows: Iterable[SnapshotRow]) -> list[Use]:
    """The same for these rows of it, down to the last run and model."""
    return [_dataset(row, runs_used(made_from(row.snapshot)) if row.split else ()) for row in rows]


def vote_trace(votes: Collection[int]) -> dict[int, list[Use]]:
    """{vote: frozen datasets that it decided a row of}; votes in none are left out."""
    behind = rows_behind(votes)
    runs = _direct(row.snapshot for _, row in behind)
    found: dict[int, dict[str, Use]] = {}
    for vote, row in behind:
        use = _dataset(row, runs.get(row.snapshot_id, ()))
        found.setdefault(vote, {})[row.snapshot_id] = use
    return {vote: list(uses.values()) for vote, uses in found.items()}


def _direct(snapshots: Iterable[Snapshot]) -> dict[str, tuple[Use, ...]]:
    once = {snapshot.pk: snapshot for snapshot in snapshots}
    return {key: tuple(map(_run, links)) for key, links in read_by(once.values()).items()}


def _dataset(row: SnapshotRow, later: tuple[Use, ...]) -> Use:
    snapshot: Snapshot = row.snapshot
    return Use(
        kind="dataset",
        name=snapshot.name,
        url=_address("snapshots:detail", snapshot.project.slug, snapshot.pk),
        words=fate_words(row),
        tone="good" if row.split else "",
        later=later,
    )


def fate_words(row: SnapshotRow) -> str:
    """What became of a comparison in a dataset: "train, A won, 0.80", or why it was left out."""
    if not row.split:
        return f"left out: {row.dropped_because}"
    if row.split in PRIVATE_SPLITS:
        return "kept private"
    sure = row.share if row.confidence is None else row.confidence
    parts = [row.split, _WINNERS.get(row.winner, ""), "" if sure is None else f"{sure:.2f}"]
    return ", ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Behind:
    """A dataset that a run stands on, at any distance, and the votes in it changed since."""

    snapshot: Snapshot
    n_changed: int


def datasets_behind(run: Any) -> list[Behind]:
    """Every dataset that the run, or a run before it, has read."""
    snapshots = origins(run).snapshots
    changed = changed_counts(snapshots)
    return [Behind(snapshot, changed.get(snapshot.pk, 0)) for snapshot in snapshots]


def runs_used(made: Iterable[Made]) -> tuple[Use, ...]:
    """Runs as a tree, each with the checkpoints that people may find under Models."""
    return tuple(
        _run(one, (*(_model(c, one.run) for c in one.checkpoints), *runs_used(one.later)))
        for one in made
    )


def _run(link: Any, later: tuple[Use, ...] = ()) -> Use:
    run = link.run
    return Use(
        kind="run",
        name=run.name,
        url=_address("training:run", run.project.slug, run.pk),
        words=f"{run.get_kind_display()}, {run.get_state_display()}",
        later=later,
    )


def _model(checkpoint: Any, run: Any) -> Use:
    return Use(
        kind="model",
        name=f"step {checkpoint.step:,}",
        url=_address("training:model", run.project.slug, checkpoint.pk),
        words=", ".join(checkpoint.tags),
    )


def n_models(uses: Iterable[Use]) -> int:
    """How many checkpoints stand below these."""
    return sum((use.kind == "model") + n_models(use.later) for use in uses)


def _address(name: str, *args: Any) -> str:
    """The app that runs belong to may be left out of an installation."""
    try:
        return reverse(name, args=args)
    except NoReverseMatch:
        return ""
