"""Datasets and models by name and address, as other apps show them (`apps.common.registry.Use`)."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.urls import NoReverseMatch, reverse

from apps.accounts.models import Project
from apps.common.registry import Use
from apps.snapshots.lineage import Made, comparison_rows, made_from, origins, rows_behind
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.vote_changes import changed_counts

_WINNERS = {"a": "A won", "b": "B won", "tie": "tie", "both_bad": "both bad"}


def comparison_trace(project: Project, comparison: int) -> list[Use]:
    """Every dataset that looked at the comparison, with what became of it and what was made."""
    return [_dataset(row) for row in comparison_rows(project=project, comparison=comparison)]


def vote_trace(votes: Collection[int]) -> dict[int, list[Use]]:
    """{vote: frozen datasets that it decided a row of}; votes in none are left out."""
    found: dict[int, dict[str, Use]] = {}
    known: dict[str, tuple[Use, ...]] = {}
    for vote, row in rows_behind(votes):
        if row.snapshot_id not in known:
            known[row.snapshot_id] = runs_used(made_from(row.snapshot))
        found.setdefault(vote, {})[row.snapshot_id] = _dataset(row, known[row.snapshot_id])
    return {vote: list(uses.values()) for vote, uses in found.items()}


def _dataset(row: SnapshotRow, later: tuple[Use, ...] | None = None) -> Use:
    snapshot: Snapshot = row.snapshot
    slug = snapshot.project.slug
    if later is None:
        later = runs_used(made_from(snapshot)) if row.split else ()
    return Use(
        kind="dataset",
        name=snapshot.name,
        url=_address("snapshots:detail", slug, snapshot.pk),
        words=fate_words(row),
        tone="good" if row.split else "",
        later=later,
    )


def fate_words(row: SnapshotRow) -> str:
    """What became of a comparison in a dataset: "train, A won, 0.80", or why it was left out."""
    if not row.split:
        return f"left out: {row.dropped_because}"
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
        Use(
            kind="run",
            name=one.run.name,
            url=_address("training:run", one.run.project.slug, one.run.pk),
            words=f"{one.run.get_kind_display()}, {one.run.get_state_display()}",
            later=(*map(_model, one.checkpoints), *runs_used(one.later)),
        )
        for one in made
    )


def _model(checkpoint: Any) -> Use:
    tags = ", ".join(checkpoint.tags)
    return Use(
        kind="model",
        name=f"step {checkpoint.step:,}",
        url=_address("training:model", checkpoint.project.slug, checkpoint.pk),
        words=tags,
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
