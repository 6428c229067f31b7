"""Doing a run again: its model evaluated by one command, its configuration once more in small."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from django.db import transaction

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.common.json_limits import storable
from apps.common.models import short_id
from apps.training.models import Checkpoint, Run, RunInput
from apps.training.selectors.pages import group_runs
from apps.training.selectors.reference import sft_of
from apps.training.services.kinds import KINDS, POLICIES, Input, run_inputs
from apps.training.services.launching import run_clone, run_launch
from apps.training.services.layouts import needs_of
from workers.config import recipe_config, recipe_fields
from workers.contract.jobs import ONE
from workers.contract.wire import QUEUE_CPU

_LONGEST_NAME = 120
_DEPTH = 12  # runs between a model and the prompts it can be asked
# What an evaluation takes over from the run that trained the model, where both know the field.
_SHARED = ("max_prompt_length", "max_new_tokens", "temperature", "reward")


def evaluation_inputs(checkpoint: Checkpoint) -> dict[str, Input]:
    """What the evaluation of a policy reads: the prompts of its own run, else the nearest ones in
    its history; the SFT model it goes back to; the reward it was trained on and the judge, where
    it had them."""
    found: dict[str, Input] = {"policy": checkpoint}
    sft = sft_of(checkpoint.run)
    if sft is not None and sft.pk != checkpoint.pk:
        found["sft"] = sft
    run: Run | None = checkpoint.run
    allowed = KINDS["evaluate"].roles["prompts"].snapshots
    for _ in range(_DEPTH):
        if run is None or run.project_id != checkpoint.project_id:
            break  # what another project had is no input here
        rows = {
            row.role: row
            for row in RunInput.objects.filter(run=run).select_related(
                "snapshot", "checkpoint__run", "upstream"
            )
        }
        for role in ("prompts", "data"):
            row = rows.get(role)
            if row and row.snapshot and row.snapshot.kind in allowed:
                found.setdefault("prompts", row.snapshot)
        for role in ("reward", "judge"):
            row = rows.get(role)
            if row and row.checkpoint:
                found.setdefault(role, row.checkpoint)
        start = next((rows[role] for role in ("policy", "sft", "base") if role in rows), None)
        run = start.checkpoint.run if start and start.checkpoint else None
    return found


def evaluation_missing(checkpoint: Checkpoint) -> list[str]:
    """The roles that an evaluation needs and nothing in the model's history gives."""
    found, config = evaluation_inputs(checkpoint), evaluation_config(checkpoint.run)
    return [
        need.roles[0] for need in KINDS["evaluate"].needs if not need.is_met(found.keys(), config)
    ]


def checkpoint_evaluate(
    *,
    checkpoint: Checkpoint,
    inputs: Mapping[str, Input] | None = None,
    seed: int | None = None,
    queue: str = "",
    user: User | None = None,
    idempotency_key: str = "",
) -> Run:
    """Launch the evaluation of a policy against the SFT model it comes from, on the prompts of its
    run, with the reward and the sampling it was trained with; `inputs` stand over what was found.
    Raises `DomainError`, naming the role for which nothing was found."""
    run = checkpoint.run
    if run.kind not in POLICIES:
        raise Conflict(
            "Only a policy answers prompts, so only a policy is evaluated so. A reward model is "
            "assessed on its own page.",
            code="not_a_policy",
        )
    after = f", step {checkpoint.step}: evaluation"
    return run_launch(
        project=checkpoint.project,
        kind=Run.Kind.EVALUATE,
        name=f"{run.name[: _LONGEST_NAME - len(after)]}{after}",
        config=evaluation_config(run),
        inputs=evaluation_inputs(checkpoint) | dict(inputs or {}),
        seed=run.seed if seed is None else seed,
        queue=queue or run.queue or QUEUE_CPU,
        user=user,
        idempotency_key=idempotency_key,
    )


def evaluation_config(run: Run) -> dict[str, Any]:
    known = {option.name for option in recipe_fields("evaluate")}
    own = recipe_config(run.kind, run.config)
    return {name: own[name] for name in _SHARED if name in own and name in known}


def run_reproduce_small(*, run: Run, user: User | None = None, idempotency_key: str = "") -> Run:
    """The same run in small: same inputs, seed and settings but for what makes it long. Raises
    `Conflict` for a kind whose recipe has no small form."""
    if "minimal" not in {option.name for option in recipe_fields(run.kind)}:
        raise Conflict(
            f"A {run.get_kind_display()} run has no small form; clone it with fewer steps.",
            code="no_minimal",
        )
    after = ", in small"
    known = Run.objects.filter(project=run.project, launch_key=idempotency_key)
    if idempotency_key and (made := known.first()) is not None:
        return made
    with transaction.atomic():
        made = run_clone(
            run=run,
            name=f"{run.name[: _LONGEST_NAME - len(after)]}{after}",
            config={**run.config, "minimal": True},
            user=user,
            idempotency_key=idempotency_key,
        )
        audit_record(
            action="run.reproduced",
            actor=user,
            project=run.project,
            subject=run.pk,
            details={"run": made.pk},
        )
    return made


# Several runs that differ in their seed only: one result instead of one draw.

MOST_SEEDS = 20  # of one launch: a group trains one after the other on a machine
_SEED_LIMIT = 2**63


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

    With `group` they join the runs of that group, which must be alike but for their seed. The same
    `idempotency_key` gives the runs that it gave before. Raises `DomainError` naming the field.
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
    if seeds == 1 and not group:
        return [run_launch(name=name, seed=seed, idempotency_key=idempotency_key, **common)]
    if isinstance(seed, int) and seed + seeds > _SEED_LIMIT:
        raise DomainError("The last seed would be over 2⁶³ − 1.", code="bad_seed", field="seed")
    with transaction.atomic():
        if launched := _launched(project, idempotency_key):
            return launched
        if group:
            _check_alike(project, group, kind, config, inputs, range(seed, seed + seeds))
        own = group or short_id()
        return [
            run_launch(
                name=_named(name, seed + place),
                seed=seed + place,
                group=own,
                idempotency_key=_key(idempotency_key, place),
                **common,
            )
            for place in range(seeds)
        ]


def _named(name: str, seed: int) -> str:
    after = f", seed {seed}"
    return f"{name.strip()[: _LONGEST_NAME - len(after)]}{after}" if name.strip() else name


def _key(key: str, place: int) -> str:
    """The launch key of the run at `place`: the given one, then keys that follow from it."""
    if not key or not place:
        return key
    return f"{sha256(key.encode()).hexdigest()[:40]}-{place}"


def _launched(project: Project, key: str) -> list[Run]:
    """What the launch with this key made, in the order of seeds."""
    keys = [_key(storable(key), place) for place in range(MOST_SEEDS)] if key else []
    return list(Run.objects.filter(project=project, launch_key__in=keys).order_by("seed"))


def _check_alike(
    project: Project,
    group: str,
    kind: str,
    config: Mapping[str, Any],
    inputs: Mapping[str, Input],
    seeds: range,
) -> None:
    """Runs that differ in more than their seed are not one result."""
    members = group_runs(project=project, group=group)
    other = members[0]
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
    """`seeds` more runs of the group, with the seeds after its highest one."""
    members = group_runs(project=project, group=group)
    last = max(members, key=lambda run: run.seed)
    return runs_launch(
        project=project,
        kind=last.kind,
        name=last.name.removesuffix(f", seed {last.seed}"),
        config=last.config,
        inputs=run_inputs(last),
        seed=last.seed + 1,
        seeds=seeds,
        group=group,
        queue=last.queue,
        **needs_of(last),
        priority=last.priority,
        user=user,
        idempotency_key=idempotency_key,
        override_reason=last.override_reason,
    )
