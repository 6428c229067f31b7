"""Where a run comes from, and what was built on it."""

from dataclasses import dataclass, field

from django.db.models import Q

from apps.training.models import Run, RunInput

DEPTH = 12  # runs in a row; a chain longer than that is cut, not followed for ever


@dataclass(frozen=True, slots=True)
class Ancestor:
    """Something a run read: a snapshot, or a run through one of its checkpoints."""

    role: str
    kind: str  # snapshot | run
    id: str
    name: str
    detail: str  # the snapshot's or run's kind
    state: str
    checkpoint_id: str | None = None
    step: int | None = None
    inputs: list["Ancestor"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Descendant:
    """A run that reads this one."""

    role: str
    id: str
    name: str
    kind: str
    state: str
    outputs: list["Descendant"] = field(default_factory=list)


def lineage_up(run: Run, *, depth: int = DEPTH) -> list[Ancestor]:
    """The inputs of `run`, each with its own inputs, down to the snapshots."""
    if depth == 0:
        return []
    rows = RunInput.objects.filter(run=run).order_by("role")
    return [
        _ancestor(row, depth)
        for row in rows.select_related("snapshot", "checkpoint__run", "upstream", "artifact__run")
    ]


def _ancestor(row: RunInput, depth: int) -> Ancestor:
    if row.snapshot is not None:
        snapshot = row.snapshot
        return Ancestor(
            role=row.role,
            kind="snapshot",
            id=snapshot.pk,
            name=snapshot.name,
            detail=snapshot.kind,
            state=snapshot.state,
        )
    if row.artifact is not None:
        run = row.artifact.run
        return Ancestor(
            role=row.role,
            kind="run",
            id=run.pk,
            name=run.name,
            detail=f"{run.kind}, its {row.artifact.name}",
            state=run.state,
        )
    run = row.checkpoint.run if row.checkpoint is not None else row.upstream
    return Ancestor(
        role=row.role,
        kind="run",
        id=run.pk,
        name=run.name,
        detail=run.kind,
        state=run.state,
        checkpoint_id=row.checkpoint_id,
        step=row.checkpoint.step if row.checkpoint is not None else None,
        inputs=lineage_up(run, depth=depth - 1),
    )


def lineage_down(run: Run, *, depth: int = DEPTH) -> list[Descendant]:
    """The runs that read `run` or one of its checkpoints, each with those that read it. Checks and
    probes only look, so nothing is built on them."""
    if depth == 0:
        return []
    rows = RunInput.objects.filter(Q(upstream=run) | Q(checkpoint__run=run)).exclude(
        run__kind__in=(Run.Kind.CHECK, Run.Kind.PROBE)
    )
    return [
        Descendant(
            role=row.role,
            id=row.run.pk,
            name=row.run.name,
            kind=row.run.kind,
            state=row.run.state,
            outputs=lineage_down(row.run, depth=depth - 1),
        )
        for row in rows.select_related("run").order_by("run__created_at", "role")
    ]
