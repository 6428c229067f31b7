"""Reads that only the pages need: searching, choices of a form, latest figures, models."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard
from zlib import crc32

from django.db.models import Count, Q, QuerySet

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.snapshots.models import Snapshot
from apps.training.models import Alert, Artifact, Checkpoint, Run, RunAttempt
from apps.training.selectors.metrics import Point, metric_latest, metric_series
from apps.training.selectors.queueing import queue_words, why_it_waits
from apps.training.selectors.runs import run_list
from measures.estimate import Interval
from measures.intervals import t_interval
from workers.contract.metrics import headline_names

CHOICES = 200  # of each sort in a form; older ones are found by the API
EVERYTHING = "everything"
HEARD_S = 10  # signs of life closer together than this change no page
READ_ONLY_KINDS = (Run.Kind.CHECK, Run.Kind.PROBE)  # they train nothing

Choices = list[tuple[str, str]]


def runs_for_list(
    *,
    project: Project,
    search: str = "",
    kind: str = "",
    states: Collection[str] = (),
    group: str = "",
    tag: str = "",
    archived: bool | None = False,
    with_checks: bool = False,
) -> QuerySet[Run]:
    """Newest first, with `open_alerts`; `search` looks at names, notes, tags, ids and groups.
    Checks and probes, of which there are many, are among them only when they are asked for,
    searched for included; the kind `everything` asks for them too. `archived`: only those, or none
    of them; None for all."""
    runs = run_list(
        project=project, states=states, kinds=[kind] if kind and kind != EVERYTHING else ()
    )
    if not (with_checks or kind or search):
        runs = runs.exclude(kind__in=READ_ONLY_KINDS)
    if search:
        named = Q(name__icontains=search) | Q(pk__startswith=search) | Q(group=search)
        runs = runs.filter(named | Q(note__icontains=search) | Q(tags__contains=[search]))
    if group:
        runs = runs.filter(group=group.replace("\x00", "\ufffd"))
    if tag:
        runs = runs.filter(tags__contains=[tag.replace("\x00", "\ufffd")])
    if archived is not None:
        runs = runs.filter(archived_at__isnull=not archived)
    unseen = Q(alerts__acknowledged_at__isnull=True) & ~Q(alerts__severity="info")
    return runs.annotate(open_alerts=Count("alerts", filter=unseen)).order_by("-created_at")


def tags_used(project: Project) -> list[str]:
    """Every tag of the project's runs, in alphabetical order."""
    rows = Run.objects.filter(project=project).exclude(tags=[]).values_list("tags", flat=True)
    return sorted({tag for tags in rows for tag in tags}, key=str.casefold)


def latest_metrics(run: Run, names: Collection[str]) -> dict[str, tuple[int, float]]:
    """name -> (step, value) of the newest number of each, without reading the curves."""
    return metric_latest(run=run, names=names)


def newest_event(run: Run) -> str:
    """Changes with every batch of events, and when old points are thinned: whether there is
    anything new to show."""
    return _newest(run, _heard([run.pk]))


def run_seen(run: Run, waits: str) -> str:
    """Changes with everything that the run's page would show. waits: why it has not begun."""
    return _seen(run, newest_event(run), waits)


def runs_seen(ids: Collection[str]) -> dict[str, str]:
    """`run_seen` of each of these runs that exists, in two queries where none of them waits."""
    runs = list(
        Run.objects.filter(pk__in=ids).only("state", "updated_at", "thinned_at", "heard_at")
    )
    heard = _heard(ids)
    queued = queue_words() if any(run.state == Run.State.QUEUED for run in runs) else {}
    waits = {
        run.pk: why_it_waits(run) if run.state == Run.State.WAITING else queued.get(run.pk, "")
        for run in runs
    }
    return {run.pk: _seen(run, _newest(run, heard), waits[run.pk]) for run in runs}


def _heard(ids: Collection[str]) -> dict[str, str]:
    """How far each attempt of these runs has been heard."""
    rows = RunAttempt.objects.filter(run__in=ids).order_by("number")
    found: dict[str, list[str]] = {}
    for run_id, number, last_seq in rows.values_list("run_id", "number", "last_seq"):
        found.setdefault(run_id, []).append(f"{number}.{last_seq}")
    return {run_id: "_".join(parts) for run_id, parts in found.items()}


def _newest(run: Run, heard: Mapping[str, str]) -> str:
    thinned = f"t{run.thinned_at.timestamp():.0f}" if run.thinned_at else ""
    return f"{heard.get(run.pk, 0)}{thinned}"


def _seen(run: Run, newest: str, waits: str) -> str:
    words = f"-{crc32(waits.encode())}" if waits else ""
    heard = f"-{run.heard_at.timestamp() // HEARD_S:.0f}" if run.heard_at else ""
    return f"{run.updated_at.timestamp()}-{newest}{heard}{words}"


def alerts_of(run: Run) -> list[Alert]:
    """Open ones first, then by step, newest first."""
    rows = Alert.objects.filter(run=run).select_related("acknowledged_by").order_by("-step", "-pk")
    return sorted(rows, key=lambda row: row.acknowledged_at is not None)


def artifacts_of(run: Run) -> list[Artifact]:
    """The files of a run. One that was announced twice, as generated rows (with their count) and
    as a saved file (with its size), is one file; of one that an attempt saved again and again, the
    newest counts."""
    found: dict[tuple[int, str], Artifact] = {}
    for row in Artifact.objects.filter(run=run).order_by("-attempt", "name", "-seq"):
        known = found.setdefault((row.attempt, row.name), row)
        if known.sha256 != row.sha256:
            continue
        known.size_bytes = known.size_bytes or row.size_bytes
        known.count = row.count if known.count is None else known.count
    return list(found.values())


def snapshot_choices(project: Project, kinds: Collection[str]) -> Choices:
    """Frozen snapshots of these kinds, newest first."""
    rows = Snapshot.objects.filter(
        project=project, kind__in=kinds, state=Snapshot.State.FROZEN
    ).order_by("-frozen_at")[:CHOICES]
    return [
        (f"snapshot:{row.pk}", f"{row.name} · {row.get_kind_display()} · {row.pk}") for row in rows
    ]


def run_choices(project: Project, kinds: Collection[str], without: Collection[str] = ()) -> Choices:
    """Finished and live runs of these kinds, newest first; a live one makes the new one wait."""
    rows = (
        Run.objects.filter(
            project=project,
            kind__in=kinds,
            state__in=[Run.State.FINISHED, *Run.LIVE_STATES],
            archived_at=None,
        )
        .exclude(pk__in=without)
        .order_by("-created_at")[:CHOICES]
    )
    return [
        (
            f"run:{row.pk}",
            f"{row.name} · {row.get_kind_display()} · {row.get_state_display()} · {row.pk}",
        )
        for row in rows
    ]


def checkpoint_choices(
    project: Project, kinds: Collection[str], without: Collection[str] = ()
) -> Choices:
    """Checkpoints of these kinds of run that carry a tag and were not rejected, newest first; not
    those of the runs `without`."""
    rows = (
        Checkpoint.objects.filter(
            project=project, run__kind__in=kinds, run__archived_at=None, files_removed_at=None
        )
        .exclude(tags=[])
        .exclude(status=Checkpoint.Status.REJECTED)
        .exclude(run__in=without)
        .select_related("run")
        .order_by("-created_at")[:CHOICES]
    )
    return [
        (
            f"checkpoint:{row.pk}",
            f"{row.run.name} · step {row.step:,} · {', '.join(row.tags)}{_judged(row)} · {row.pk}",
        )
        for row in rows
    ]


def _judged(model: Checkpoint) -> str:
    """Of a reward model: whether it may be optimised against without saying why."""
    if model.run.kind not in Run.REWARD_KINDS:
        return ""
    return (
        f" · {model.status}" if model.status != Checkpoint.Status.CANDIDATE else " · not approved"
    )


def input_resolve(project: Project, reference: str) -> Snapshot | Run | Checkpoint | Artifact:
    """What "snapshot:…", "run:…", "checkpoint:…" or "artifact:…" means in this project. Raises
    `Missing`."""
    sort, _, key = reference.partition(":")
    models: dict[str, type[Snapshot | Run | Checkpoint]] = {
        "snapshot": Snapshot,
        "run": Run,
        "checkpoint": Checkpoint,
    }
    row: Snapshot | Run | Checkpoint | Artifact | None = None
    if sort in models and "\x00" not in key:  # PostgreSQL refuses to look for a NUL
        row = models[sort].objects.filter(project=project, pk=key).first()
    if sort == "artifact" and key.isascii() and key.isdigit() and len(key) < 19:
        row = Artifact.objects.filter(run__project=project, pk=key).select_related("run").first()
    if row is None:
        raise Missing(f"There is no '{reference}' in this project.", field="inputs")
    return row


def models_for_list(
    *, project: Project, search: str = "", kind: str = "", status: str = ""
) -> QuerySet[Checkpoint]:
    """Checkpoints that carry a tag, newest first, with `uses`: how many runs read each, without
    those that only look. Those of archived runs only where they are searched for."""
    rows = (
        Checkpoint.objects.filter(project=project, **({} if search else {"run__archived_at": None}))
        .exclude(tags=[])
        .select_related("run")
        .annotate(
            uses=Count("used_by", distinct=True, filter=~Q(used_by__run__kind__in=READ_ONLY_KINDS))
        )
    )
    if kind:
        rows = rows.filter(run__kind=kind)
    if status:
        rows = rows.filter(status=status)
    if search:
        rows = rows.filter(
            Q(run__name__icontains=search)
            | Q(pk__startswith=search)
            | Q(run__pk__startswith=search)
        )
    return rows.order_by("-created_at")


def checkpoint_get(*, project: Project, checkpoint_id: str) -> Checkpoint:
    """Raises `Missing`."""
    row = Checkpoint.objects.filter(project=project, pk=checkpoint_id).select_related("run").first()
    if row is None:
        raise Missing("There is no such model in this project.", field="checkpoint")
    return row


# Groups of seeds: runs that differ in their seed only, and what their figures come to together.

EVALUATION = "eval/"  # every metric whose name begins so was measured on held-out data
EVERY_POINT = 10**9
LARGEST = 1e100  # beyond it a square is infinite; a model that measures so has diverged


@dataclass(frozen=True, slots=True)
class SeedMetric:
    """A metric over the runs of a group.

    final: over the last figures of the finished runs; last: {run id: (step, its last number)} of
    every run that has one; steps: (step, interval over the runs that measured there), ascending.
    broken: ids of runs whose figure was no number at some step.
    """

    name: str
    final: Interval
    last: dict[str, tuple[int, float]]
    curves: dict[str, list[tuple[int, float]]]
    steps: list[tuple[int, Interval]]
    broken: list[str]


def group_runs(*, project: Project, group: str) -> list[Run]:
    """The runs of a group by seed, then by age. Raises `Missing`."""
    rows = (
        Run.objects.filter(project=project, group=group) if _askable(group) else Run.objects.none()
    )
    runs = list(rows.select_related("project", "created_by").order_by("seed", "created_at"))
    if not runs:
        raise Missing("There is no such group of seeds in this project.", field="group")
    return runs


def _askable(group: str) -> bool:
    """PostgreSQL refuses to look for a NUL; the empty group is that of all runs without one."""
    return bool(group) and "\x00" not in group


def group_sizes(project: Project, groups: Iterable[str]) -> dict[str, int]:
    """How many runs each of these groups has."""
    rows = Run.objects.filter(project=project, group__in={one for one in groups if one})
    return dict(rows.order_by().values_list("group").annotate(Count("pk")))


def group_metrics(runs: Sequence[Run]) -> list[SeedMetric]:
    """The headline and evaluation metrics that any of the runs measured: headlines first.

    A run counts in `final` once it has finished; one that failed or was cancelled has no final
    figure, which the page says by name.
    """
    headlines = headline_names(runs[0].kind)
    places = {name: place for place, name in enumerate(headlines)}
    found = {
        run.pk: metric_series(run=run, names=headlines, prefix=EVALUATION, max_points=EVERY_POINT)
        for run in runs
    }
    names = {name for series in found.values() for name in series}
    order = sorted(names, key=lambda name: (places.get(name, len(places)), name))
    return [_seed_metric(name, runs, found) for name in order]


def _seed_metric(
    name: str, runs: Sequence[Run], found: dict[str, dict[str, list[Point]]]
) -> SeedMetric:
    points = {run.pk: found[run.pk].get(name, []) for run in runs}
    curves = {
        key: [(step, float(value)) for step, value in rows if _is_number(value)]
        for key, rows in points.items()
    }
    last = {key: rows[-1] for key, rows in curves.items() if rows}
    finished = [run.pk for run in runs if run.state == Run.State.FINISHED]
    at: dict[int, list[float]] = {}
    for rows in curves.values():
        for step, value in rows:
            at.setdefault(step, []).append(value)
    return SeedMetric(
        name=name,
        final=t_interval([last[key][1] for key in finished if key in last]),
        last=last,
        curves={key: rows for key, rows in curves.items() if rows},
        steps=[(step, t_interval(values)) for step, values in sorted(at.items())],
        broken=[key for key, rows in points.items() if any(_is_broken(v) for _, v in rows)],
    )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and abs(value) < LARGEST


def _is_broken(value: object) -> bool:
    """Measured, and no number that can be averaged; None is a value that was not defined."""
    return value is not None and not _is_number(value)
