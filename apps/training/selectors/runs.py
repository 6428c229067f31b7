"""Reading runs for pages and API."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from django.db.models import Q, QuerySet

from apps.accounts.models import Project
from apps.common.errors import Conflict, Missing
from apps.snapshots.models import Snapshot
from apps.snapshots.selectors.lineage import frozen_from, runs_behind
from apps.training.models import PARKED, Checkpoint, Run, RunAttempt, RunEvent, RunInput, Sample
from workers.contract.events import OUTPUT

# Which of a run's checkpoints count, over all its attempts.

PREFERENCE = ("final", "best", "last")


def attempt_ends(run: Run) -> dict[int, float]:
    """attempt -> the last step of it that counts: where a later attempt resumed from.

    An attempt that resumed from nothing started over: nothing before it counts any more.
    """
    attempts = RunAttempt.objects.filter(run=run).order_by("-number")
    ends: dict[int, float] = {}
    end = inf
    for number, resumed_from in attempts.values_list("number", "resumed_from_step"):
        ends[number] = end
        end = min(end, resumed_from or 0)
    return ends


def checkpoints(run: Run) -> list[Checkpoint]:
    """Those that count, newest step first. What a superseded attempt saved beyond the step its
    successor resumed from belongs to a past that did not happen."""
    ends = attempt_ends(run)
    rows = Checkpoint.objects.filter(run=run).order_by("-step", "-attempt")
    return [row for row in rows if row.step <= ends.get(row.attempt, inf)]


def checkpoint_for_use(run: Run) -> Checkpoint | None:
    """What others build on: the final model, else the best, else the last one."""
    return _by_tag(checkpoints(run), PREFERENCE)


def _by_tag(rows: Iterable[Checkpoint], tags: Iterable[str]) -> Checkpoint | None:
    rows = list(rows)
    return next((row for tag in tags for row in rows if tag in row.tags), None)


EVENTS_PAGE = 500
LOG_LINES = 200


def run_list(
    *, project: Project, states: Iterable[str] = (), kinds: Iterable[str] = ()
) -> QuerySet[Run]:
    """Newest first."""
    runs = Run.objects.filter(project=project).select_related("created_by")
    if states := list(states):
        runs = runs.filter(state__in=states)
    if kinds := list(kinds):
        runs = runs.filter(kind__in=kinds)
    return runs


def run_get(*, project: Project, run_id: str) -> Run:
    """Raises `Missing`."""
    run = (
        Run.objects.filter(project=project, pk=run_id)
        .select_related("project", "created_by")
        .first()
    )
    if run is None:
        raise Missing("There is no such run in this project.", field="run")
    return run


def run_events_after(
    *, run: Run, cursor: int = 0, limit: int = EVENTS_PAGE
) -> tuple[list[RunEvent], int]:
    """(events in the order they were committed, cursor for the next call)."""
    events = list(RunEvent.objects.filter(run=run, pk__gt=cursor).order_by("pk")[:limit])
    return events, events[-1].pk if events else cursor


def parked_count(run: Run) -> int:
    """Events of a newer worker that wait until this side is upgraded."""
    return RunEvent.objects.filter(run=run, type=PARKED).count()


def samples(*, run: Run, bucket: str | None = None, limit: int = 50) -> list[Sample]:
    """Latest step first, of one bucket or of all; only steps that count (see `attempt_ends`)."""
    rows = Sample.objects.filter(run=run)
    if bucket is not None:
        rows = rows.filter(bucket=bucket)
    ends = attempt_ends(run)
    kept = (row for row in rows.order_by("-step", "-pk") if row.step <= ends.get(row.attempt, inf))
    return [row for row, _ in zip(kept, range(limit), strict=False)]


def log_tail(*, run: Run, lines: int = LOG_LINES, source: str = "") -> list[dict[str, Any]]:
    """The last `lines` lines of all attempts, oldest first: {attempt, at, level, text}. `source`:
    "run" for what Concord says of it, "output" for what its process printed, else both."""
    tail: list[dict[str, Any]] = []
    rows = RunEvent.objects.filter(run=run, type="Log").order_by("-attempt", "-seq")
    if source == "output":
        rows = rows.filter(body__level=OUTPUT)
    elif source == "run":
        rows = rows.exclude(body__level=OUTPUT)
    for event in rows[:lines].iterator(chunk_size=100):  # each holds at least one line
        said = event.body.get("lines") or []
        for text in reversed(said):
            tail.append(
                {
                    "attempt": event.attempt,
                    "at": event.at,
                    "level": event.body.get("level", "info"),
                    "text": str(text),
                }
            )
        if len(tail) >= lines:
            break
    return tail[:lines][::-1]


# Where a run comes from, and what was built on it.

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
    project: str = ""  # slug of another project, of whose model this one is a copy
    inputs: list["Ancestor"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Descendant:
    """A run that reads this one, or a dataset (kind snapshot) that was frozen from it."""

    role: str
    id: str
    name: str
    kind: str
    state: str
    project: str = ""  # slug of another project, whose copy of the model this is
    outputs: list["Descendant"] = field(default_factory=list)


def lineage_up(run: Run, *, depth: int = DEPTH, home: str = "") -> list[Ancestor]:
    """The inputs of `run`, each with its own inputs, down to the snapshots; of a copied model also
    what the other project made it of. `home`: the project that looks, that of `run` unless given.
    """
    if depth == 0:
        return []
    rows = RunInput.objects.filter(run=run).order_by("role")
    return [
        _ancestor(row, depth, home or run.project_id)
        for row in rows.select_related(
            "snapshot__project", "checkpoint__run__project", "upstream__project", "artifact__run"
        )
    ]


def _elsewhere(project: Project, home: str) -> str:
    return project.slug if project.pk != home else ""


def _ancestor(row: RunInput, depth: int, home: str) -> Ancestor:
    if row.snapshot is not None:
        snapshot = row.snapshot
        return Ancestor(
            role=row.role,
            kind="snapshot",
            id=snapshot.pk,
            name=snapshot.name,
            detail=snapshot.kind,
            state=snapshot.state,
            project=_elsewhere(snapshot.project, home),
            inputs=_behind_dataset(snapshot, depth, home),
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
    made_by = row.checkpoint.run if row.checkpoint is not None else row.upstream
    assert made_by is not None  # noqa: S101 — a constraint
    return Ancestor(
        role=row.role,
        kind="run",
        id=made_by.pk,
        name=made_by.name,
        detail=made_by.kind,
        state=made_by.state,
        checkpoint_id=row.checkpoint_id,
        step=row.checkpoint.step if row.checkpoint is not None else None,
        project=_elsewhere(made_by.project, home),
        inputs=lineage_up(made_by, depth=depth - 1, home=home),
    )


def _behind_dataset(snapshot: Snapshot, depth: int, home: str) -> list[Ancestor]:
    """The run whose rewritten answers, or a judge's verdicts, the dataset's rows are."""
    made_by = Run.objects.filter(pk__in=runs_behind(snapshot), project=snapshot.project_id)
    return [
        Ancestor(
            role="labelled by",
            kind="run",
            id=run.pk,
            name=run.name,
            detail=run.kind,
            state=run.state,
            inputs=lineage_up(run, depth=depth - 1, home=home),
        )
        for run in made_by.order_by("created_at")
        if run.project_id == home
    ]


def lineage_down(run: Run, *, depth: int = DEPTH) -> list[Descendant]:
    """The runs that read `run` or one of its checkpoints, each with those that read it. Checks and
    probes only look, so nothing is built on them; what another project built on its copy is its
    own business."""
    if depth == 0:
        return []
    rows = RunInput.objects.filter(Q(upstream=run) | Q(checkpoint__run=run))
    return _readers(rows, run, depth) + [
        Descendant(
            role="dataset",
            id=snapshot.pk,
            name=snapshot.name,
            kind="snapshot",
            state=snapshot.state,
            outputs=_readers(RunInput.objects.filter(snapshot=snapshot), run, depth),
        )
        for snapshot in frozen_from(run.pk, project=run.project)
    ]


def _readers(rows: QuerySet[RunInput], run: Run, depth: int) -> list[Descendant]:
    built = rows.exclude(run__kind__in=(Run.Kind.CHECK, Run.Kind.PROBE))
    return [
        Descendant(
            role=row.role,
            id=row.run.pk,
            name=row.run.name,
            kind=row.run.kind,
            state=row.run.state,
            project=(away := _elsewhere(row.run.project, run.project_id)),
            outputs=[] if away else lineage_down(row.run, depth=depth - 1),
        )
        for row in built.select_related("run__project").order_by("run__created_at", "role")
    ]


def no_run_goes_on(project: Project) -> None:
    """A project is not deleted under a run that waits or trains."""
    live = Run.objects.filter(project=project, state__in=Run.LIVE_STATES).count()
    if live:
        raise Conflict(
            f"{live} of its runs wait or train. Restore the project and cancel them first.",
            code="project_busy",
        )
