"""Several runs launched as one: the same with other seeds, or a sweep over one or two settings."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import product
from typing import Any

from django.db import transaction

from apps.accounts.models import Project, User
from apps.common.errors import Conflict, DomainError
from apps.common.json_limits import storable
from apps.common.models import short_id
from apps.training.models import Run
from apps.training.selectors.pages import group_runs
from apps.training.services.commands import run_cancel, run_stop_and_keep
from apps.training.services.kinds import KINDS, Input, run_inputs
from apps.training.services.launching import LONGEST_NAME, SEED_LIMIT, run_launch
from apps.training.services.layouts import needs_of
from workers.config import recipe_fields
from workers.contract.jobs import ONE
from workers.contract.wire import QUEUE_CPU

SWEPT_TYPES = frozenset({"int", "float", "bool", "str"})
MOST_SEEDS = 20  # of one launch: a group trains one after the other on a machine
MOST_SWEPT = 2  # settings of a sweep: more is no table that a person reads
MOST_VALUES = 20  # of one of them
MOST_RUNS = 64  # of one launch


def runs_launch(
    *,
    project: Project,
    kind: str,
    name: str,
    config: Mapping[str, Any],
    inputs: Mapping[str, Input],
    seed: int = 0,
    seeds: int = 1,
    group: str = "",
    sweep: Mapping[str, Sequence[Any]] | None = None,
    queue: str = QUEUE_CPU,
    layout: str = ONE,
    processes: int = 1,
    launcher: str = "",
    priority: int = Run.Priority.NORMAL,
    user: User | None = None,
    idempotency_key: str = "",
    override_reason: str = "",
) -> list[Run]:
    """Launch `seeds` runs with the seeds `seed`, `seed` + 1, … in one group, all or none.

    `sweep`: {setting: values} of one or two settings of the configuration; each combination gets
    all seeds. With `group` they join the runs of that group, one of which must be alike but for
    its seed. The same `idempotency_key` gives the runs that it gave before. Raises `DomainError`
    naming the field, of a sweep with the value that is refused.
    """
    if isinstance(seeds, bool) or not isinstance(seeds, int) or not 1 <= seeds <= MOST_SEEDS:
        raise DomainError(f"A launch has 1 to {MOST_SEEDS} seeds.", code="bad_seeds", field="seeds")
    common: dict[str, Any] = {
        "project": project,
        "kind": kind,
        "config": config,
        "inputs": inputs,
        "queue": queue,
        "layout": layout,
        "processes": processes,
        "launcher": launcher,
        "priority": priority,
        "user": user,
        "override_reason": override_reason,
    }
    if not sweep and seeds == 1 and not group:
        return [run_launch(name=name, seed=seed, idempotency_key=idempotency_key, **common)]
    if isinstance(seed, int) and seed + seeds > SEED_LIMIT:
        raise DomainError("The last seed would be over 2⁶³ − 1.", code="bad_seed", field="seed")
    changes = sweep_check(kind=kind, sweep=sweep or {}, seeds=seeds)
    if sweep and group:
        raise Conflict(
            "A sweep is a group of its own; launch it without one.",
            code="group_differs",
            field="group",
        )
    with transaction.atomic():
        if launched := _launched(project, idempotency_key):
            return launched
        if group:
            _check_alike(project, group, kind, config, inputs, range(seed, seed + seeds))
        own = group or short_id()
        wanted = [(change, seed + place) for change in changes for place in range(seeds)]
        return [
            _launch_swept(
                change,
                name=_named(name, change, one),
                seed=one,
                group=own,
                idempotency_key=_key(idempotency_key, place),
                **common | {"config": {**config, **change}},
            )
            for place, (change, one) in enumerate(wanted)
        ]


def sweep_check(
    *, kind: str, sweep: Mapping[str, Sequence[Any]], seeds: int = 1
) -> list[dict[str, Any]]:
    """The changes to the configuration that a sweep makes, one for each combination: a single empty
    one without a sweep. What the recipe says of a value is said when it is launched. Raises
    `DomainError` (bad_sweep, field `sweep` or `sweep.<setting>`)."""
    if len(sweep) > MOST_SWEPT:
        raise _bad_sweep(f"A sweep varies {MOST_SWEPT} settings at most.")
    known = {field.name: field for field in recipe_fields(kind)} if kind in KINDS else {}
    for name, values in sweep.items():
        if name not in known or known[name].type not in SWEPT_TYPES:
            swept = ", ".join(one for one, field in known.items() if field.type in SWEPT_TYPES)
            raise _bad_sweep(f"'{name}' cannot be swept; these can: {swept}.", name)
        if not 2 <= len(values) <= MOST_VALUES:
            raise _bad_sweep(f"{name}: give 2 to {MOST_VALUES} values.", name)
        if not all(isinstance(value, str | int | float) for value in values):
            raise _bad_sweep(f"{name}: a value is a number, a word, true or false.", name)
        if len(set(map(repr, values))) < len(values):
            raise _bad_sweep(f"{name}: a value stands there twice.", name)
    changes = [dict(zip(sweep, each, strict=True)) for each in product(*sweep.values())]
    if sweep and len(changes) * seeds > MOST_RUNS:
        raise _bad_sweep(
            f"These would be {len(changes) * seeds} runs; at most {MOST_RUNS} are launched at once."
        )
    return changes


def _bad_sweep(why: str, name: str = "") -> DomainError:
    return DomainError(why, code="bad_sweep", field=f"sweep.{name}" if name else "sweep")


def _launch_swept(change: Mapping[str, Any], **launch: Any) -> Run:
    try:
        return run_launch(**launch)
    except DomainError as error:
        if not change:
            raise
        name = (error.field or "").removeprefix("config.")
        raise type(error)(
            f"With {_words(change)}: {error.message}",
            code=error.code,
            field=f"sweep.{name}" if name in change else error.field,
            details=error.details,
        ) from error


def _words(change: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in change.items())


def _named(name: str, change: Mapping[str, Any], seed: int) -> str:
    after = f", {_words(change)}, seed {seed}" if change else f", seed {seed}"
    return f"{name.strip()[: max(1, LONGEST_NAME - len(after))]}{after}" if name.strip() else name


def _key(key: str, place: int) -> str:
    """The launch key of the run at `place`: the given one, then keys that follow from it."""
    if not key or not place:
        return key
    return f"{sha256(key.encode()).hexdigest()[:40]}-{place}"


def _launched(project: Project, key: str) -> list[Run]:
    """What the launch with this key made, in the order of its launch."""
    keys = [_key(storable(key), place) for place in range(MOST_RUNS)] if key else []
    return list(Run.objects.filter(project=project, launch_key__in=keys).order_by("created_at"))


def _check_alike(
    project: Project,
    group: str,
    kind: str,
    config: Mapping[str, Any],
    inputs: Mapping[str, Input],
    seeds: range,
) -> None:
    """Runs that differ in more than their seed are not one result."""
    runs = group_runs(project=project, group=group)
    members = [run for run in runs if run.config == storable(dict(config))]
    other = (members or runs)[0]
    differ = [
        *(["the kind"] if other.kind != kind else []),
        *(["the configuration"] if other.config != storable(dict(config)) else []),
        *([] if _reads_the_same(other, inputs) else ["the inputs"]),
    ]
    if differ:
        raise Conflict(
            f"The runs of this group differ from the new ones in {' and '.join(differ)}; seeds of "
            "one group differ in nothing else.",
            code="group_differs",
            field="group",
        )
    known = sorted({run.seed for run in members} & set(seeds))
    if known:
        raise Conflict(
            f"The group has a run with seed {known[0]} already; the next free one is "
            f"{max(run.seed for run in members) + 1}.",
            code="seed_in_group",
            field="seed",
        )


def _reads_the_same(run: Run, inputs: Mapping[str, Input]) -> bool:
    """A run that was given a run reads the checkpoint this stood for: either names it."""
    read = {
        row.role: {row.snapshot_id, row.checkpoint_id, row.upstream_id} for row in run.inputs.all()
    }
    return read.keys() == inputs.keys() and all(
        given.pk in read[role] for role, given in inputs.items()
    )


def seeds_add(
    *, project: Project, group: str, seeds: int, user: User | None = None, idempotency_key: str = ""
) -> list[Run]:
    """`seeds` more runs of each setting of the group, with the seeds after its highest one."""
    members = group_runs(project=project, group=group)
    highest = max(run.seed for run in members)
    alike: list[Run] = []
    for run in members:
        if all(run.config != one.config for one in alike):
            alike.append(run)
    if isinstance(seeds, int) and seeds * len(alike) > MOST_RUNS:
        raise DomainError(
            f"These would be {seeds * len(alike)} runs; at most {MOST_RUNS} are launched at once.",
            code="bad_seeds",
            field="seeds",
        )
    made: list[Run] = []
    with transaction.atomic():
        for place, one in enumerate(alike):
            made += runs_launch(
                project=project,
                kind=one.kind,
                name=one.name.removesuffix(f", seed {one.seed}"),
                config=one.config,
                inputs=run_inputs(one),
                seed=highest + 1,
                seeds=seeds,
                group=group,
                queue=one.queue,
                **needs_of(one),
                priority=one.priority,
                user=user,
                idempotency_key=_key(idempotency_key, place * MOST_RUNS),
                override_reason=one.override_reason,
            )
    return made


def group_stop(*, project: Project, group: str, user: User | None = None) -> int:
    """Runs of the group that train save and finish early, those that have not begun are cancelled;
    how many. Raises `Missing`."""
    live = [run for run in group_runs(project=project, group=group) if run.is_live]
    for run in live:
        with suppress(Conflict):  # it ended, or began, since it was looked at
            if run.state == Run.State.RUNNING:
                run_stop_and_keep(run=run, user=user)
            elif run.state != Run.State.STOPPING:
                run_cancel(run=run, user=user)
    return len(live)
