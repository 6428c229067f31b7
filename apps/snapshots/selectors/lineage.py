"""From a vote to the checkpoints it touched, and from a checkpoint back to its votes.

Runs and checkpoints belong to an app further down the pipeline, so nothing of it is imported: the
links are followed through the relations that point here (`snapshot.used_by` and on).
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q
from django.urls import NoReverseMatch, reverse

from apps.accounts.models import Project
from apps.common.registry import Use
from apps.labeling.models import Vote
from apps.snapshots.models import AI_FEEDBACK, MIXTURE, READ_ONLY_KINDS, Snapshot, SnapshotRow
from apps.snapshots.recipe import PRIVATE_SPLITS
from apps.snapshots.selectors.comparing import changed_counts


@dataclass(slots=True)
class Downstream:
    """What was made from some snapshots: runs in the order found, their checkpoints."""

    runs: list[Any] = field(default_factory=list)
    checkpoints: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Made:
    """A run that reads something, its checkpoints, and what was made of it in turn.

    `role` is what it reads that something as. A run met a second time has no `later`.
    """

    role: str
    run: Any
    checkpoints: tuple[Any, ...]
    later: tuple["Made", ...]


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


def comparison_rows(*, project: Project, comparison: int) -> list[SnapshotRow]:
    """Its fate in every dataset that was frozen or is being made, oldest dataset first."""
    return list(
        SnapshotRow.objects.filter(comparison=comparison, snapshot__project=project)
        .exclude(snapshot__state="failed")
        .select_related("snapshot__project")
        .order_by("snapshot__created_at", "pk")
    )


def vote_lineage(vote: Vote) -> VoteLineage:
    """vote → snapshot rows → runs → checkpoints, over any number of runs in between."""
    rows = [
        row
        for row in comparison_rows(project=vote.project, comparison=vote.comparison_id)
        if vote.pk in row.vote_ids
    ]
    used = {row.snapshot_id: row.snapshot for row in rows if row.split}
    after = downstream(used.values())
    return VoteLineage(vote, rows, after.runs, after.checkpoints)


def frozen_in(votes: Collection[int]) -> dict[int, int]:
    """{vote: how many frozen snapshots a file of which it decided}; votes in none are left out.

    Registered with `apps.common.registry`, so that labeling can say so before a vote is changed.
    """
    seen = {(vote, row.snapshot_id) for vote, row in rows_behind(votes)}
    return dict(Counter(vote for vote, _ in seen))


def rows_behind(votes: Collection[int]) -> list[tuple[int, SnapshotRow]]:
    """(vote, row of a frozen file that it decided), with the row's snapshot, oldest first."""
    if not votes:
        return []
    wanted = set(votes)
    comparisons = Vote.objects.filter(pk__in=wanted).values("comparison")
    rows = SnapshotRow.objects.filter(comparison__in=comparisons, snapshot__state="frozen")
    found = rows.exclude(split="").select_related("snapshot__project")
    found = found.order_by("snapshot__created_at", "pk")
    return [(vote, row) for row in found for vote in row.vote_ids if vote in wanted]


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
        found.checkpoints.extend(run.checkpoints.order_by("step"))
        queue.extend(link.run for link in _readers(run))
    return found


def made_from(snapshot: Snapshot) -> list[Made]:
    """The same as a tree: the runs that read the snapshot, with what was made of each."""
    seen: set[str] = set()
    return [_made(link, seen) for link in _links(snapshot.used_by)]


def _made(link: Any, seen: set[str]) -> Made:
    run = link.run
    if run.pk in seen:
        return Made(link.role, run, (), ())
    seen.add(run.pk)
    checkpoints = tuple(run.checkpoints.order_by("step"))
    later = tuple(
        _made(after, seen) for after in _readers(run) if after.run.project_id == run.project_id
    )  # copies in other projects show where they come from themselves
    return Made(link.role, run, checkpoints, later)


def read_by(snapshots: Collection[Snapshot]) -> dict[str, list[Any]]:
    """{dataset: links to the runs that read it themselves}, in one question."""
    found: dict[str, list[Any]] = {}
    for first in list(snapshots)[:1]:
        links = _links(first.used_by.model.objects.filter(snapshot__in=snapshots))
        for link in links:
            found.setdefault(link.snapshot_id, []).append(link)
    return found


def runs_behind(snapshot: Snapshot) -> list[str]:
    """Ids of the runs in which a model labelled the dataset's rows."""
    about = snapshot.recipe.get(AI_FEEDBACK) or {}
    return [str(one) for one in (about.get("run"), *(about.get("runs") or ())) if one]


def frozen_from(run: str, *, project: Project) -> list[Snapshot]:
    """Datasets whose rows a model labelled in the run, oldest first."""
    named = Q(recipe__contains={AI_FEEDBACK: {"run": run}})
    named |= Q(recipe__contains={AI_FEEDBACK: {"runs": [run]}})
    rows = Snapshot.objects.filter(named, project=project)
    return list(rows.exclude(state=Snapshot.State.FAILED).order_by("created_at"))


def labelled_in(snapshot: Snapshot) -> list[Use]:
    """The same runs by name and address."""
    name = (snapshot.recipe.get(AI_FEEDBACK) or {}).get("run_name", "")
    return [
        Use("run", name or one, _address("training:run", snapshot.project.slug, one), "")
        for one in runs_behind(snapshot)
    ]


def origins(run: Any) -> Origins:
    """Run (or the run of a checkpoint) → every run and snapshot before it, and their votes."""
    runs, snapshots = before_run(run)
    return Origins(runs, snapshots, len(snapshot_votes(one.pk for one in snapshots)))


def before_run(run: Any) -> tuple[list[Any], list[Snapshot]]:
    """Every run and every dataset before a run, without its votes."""
    runs: list[Any] = []
    snapshots: dict[str, Snapshot] = {}
    queue, seen = deque([run]), {run.pk}
    while queue:
        current = queue.popleft()
        links = current.inputs.select_related(
            "snapshot", "checkpoint__run", "upstream", "artifact__run"
        )
        for link in links:
            if link.snapshot is not None:
                snapshots[link.snapshot_id] = link.snapshot
                behind = run.__class__.objects.filter(
                    pk__in=runs_behind(link.snapshot), project=link.snapshot.project_id
                )
            else:
                source = link.checkpoint or link.artifact
                behind = [source.run if source is not None else link.upstream]
            for before in behind:
                if before.pk not in seen:
                    seen.add(before.pk)
                    runs.append(before)
                    queue.append(before)
    return runs, list(snapshots.values())


def with_parts(snapshots: Iterable[Snapshot]) -> set[str]:
    """Ids of these datasets, and of the parts of mixtures among them."""
    found = set()
    for one in snapshots:
        parts = (one.recipe.get(MIXTURE) or {}).get("parts", [])
        found |= {one.pk, *(part["snapshot"] for part in parts)}
    return found


def snapshot_votes(snapshots: Iterable[str]) -> set[int]:
    """Ids of the votes behind every row that a file holds."""
    rows = SnapshotRow.objects.filter(snapshot__in=list(snapshots)).exclude(split="")
    return {vote for votes in rows.values_list("vote_ids", flat=True) for vote in votes}


def _links(manager: Any) -> Any:
    """Without checks and probes, which make nothing: a probe an hour would bury the rest."""
    rows = manager.exclude(run__kind__in=READ_ONLY_KINDS)
    return rows.select_related("run__project").order_by("run__created_at", "pk")


def _readers(run: Any) -> list[Any]:
    """Links to the runs that read this one or a checkpoint of it, each role of a run once."""
    links = run.downstream.model.objects.filter(Q(upstream=run) | Q(checkpoint__run=run))
    return list({(link.run_id, link.role): link for link in _links(links)}.values())


# Datasets and models by name and address, as other apps show them (`apps.common.registry.Use`).

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
class ChangedBehind:
    """A dataset that a run stands on, at any distance, and the votes in it changed since."""

    snapshot: Snapshot
    n_changed: int


def datasets_behind(run: Any) -> list[ChangedBehind]:
    """Every dataset that the run, or a run before it, has read."""
    _, snapshots = before_run(run)
    changed = changed_counts(snapshots)
    return [ChangedBehind(snapshot, changed.get(snapshot.pk, 0)) for snapshot in snapshots]


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
