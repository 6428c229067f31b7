"""From a vote to the checkpoints it touched, and from a checkpoint back to its votes.

Runs and checkpoints belong to an app further down the pipeline, so nothing of it is imported: the
links are followed through the relations that point here (`snapshot.used_by` and on).
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from apps.labeling.models import Vote
from apps.snapshots.models import Snapshot, SnapshotRow


@dataclass(slots=True)
class Downstream:
    """What was made from some snapshots: runs in the order found, their checkpoints."""

    runs: list[Any] = field(default_factory=list)
    checkpoints: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class VoteLineage:
    """Where a vote ended up. `rows` are its rows in snapshots, dropped ones included."""

    vote: Vote
    rows: list[SnapshotRow]
    runs: list[Any]
    checkpoints: list[Any]

    @property
    def trained_on(self) -> list[SnapshotRow]:
        return [row for row in self.rows if row.split]


@dataclass(frozen=True, slots=True)
class Origins:
    """What a run stands on: runs before it, the snapshots they all read, how many votes."""

    runs: list[Any]
    snapshots: list[Snapshot]
    n_votes: int


def vote_lineage(vote: Vote) -> VoteLineage:
    """vote → snapshot rows → runs → checkpoints, over any number of runs in between."""
    rows = [
        row
        for row in SnapshotRow.objects.filter(comparison=vote.comparison_id)
        .exclude(snapshot__state="failed")
        .select_related("snapshot")
        .order_by("snapshot__created_at", "pk")
        if vote.pk in row.vote_ids
    ]
    used = {row.snapshot_id: row.snapshot for row in rows if row.split}
    after = downstream(used.values())
    return VoteLineage(vote, rows, after.runs, after.checkpoints)


def frozen_in(votes: Collection[int]) -> dict[int, int]:
    """{vote: how many frozen snapshots a file of which it decided}; votes in none are left out.

    Registered with `apps.common.registry`, so that labeling can say so before a vote is changed.
    """
    if not votes:
        return {}
    wanted = set(votes)
    comparisons = Vote.objects.filter(pk__in=wanted).values("comparison")
    rows = SnapshotRow.objects.filter(comparison__in=comparisons, snapshot__state="frozen")
    seen = {
        (vote, snapshot)
        for snapshot, ids in rows.exclude(split="").values_list("snapshot", "vote_ids")
        for vote in ids
        if vote in wanted
    }
    return dict(Counter(vote for vote, _ in seen))


def downstream(snapshots: Iterable[Snapshot]) -> Downstream:
    """Every run that reads one of the snapshots, or a run or checkpoint that does."""
    found = Downstream()
    queue = deque(link.run for snapshot in snapshots for link in _links(snapshot.used_by))
    seen: set[str] = set()
    while queue:
        run = queue.popleft()
        if run.pk in seen:
            continue
        seen.add(run.pk)
        found.runs.append(run)
        queue.extend(link.run for link in _links(run.downstream))
        for checkpoint in run.checkpoints.order_by("step"):
            found.checkpoints.append(checkpoint)
            queue.extend(link.run for link in _links(checkpoint.used_by))
    return found


def origins(run: Any) -> Origins:
    """Run (or the run of a checkpoint) → every run and snapshot before it, and their votes."""
    runs: list[Any] = []
    snapshots: dict[str, Snapshot] = {}
    queue, seen = deque([run]), {run.pk}
    while queue:
        current = queue.popleft()
        for link in current.inputs.select_related("snapshot", "checkpoint__run", "upstream"):
            if link.snapshot is not None:
                snapshots[link.snapshot_id] = link.snapshot
                continue
            before = link.checkpoint.run if link.checkpoint is not None else link.upstream
            if before.pk not in seen:
                seen.add(before.pk)
                runs.append(before)
                queue.append(before)
    return Origins(runs, list(snapshots.values()), len(snapshot_votes(snapshots)))


def snapshot_votes(snapshots: Iterable[str]) -> set[int]:
    """Ids of the votes behind every row that a file holds."""
    rows = SnapshotRow.objects.filter(snapshot__in=list(snapshots)).exclude(split="")
    return {vote for votes in rows.values_list("vote_ids", flat=True) for vote in votes}


def _links(manager: Any) -> Any:
    return manager.select_related("run").order_by("run__created_at", "pk")
