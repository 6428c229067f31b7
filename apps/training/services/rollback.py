"""Going back: a new run of the same kind that starts where the problem had not begun.

The run itself stays as it is, with its alerts and its failed checkpoint. The new one reads a
checkpoint of it as the model it starts from, so the lineage shows both; what it is held to (the
reference of KL) stays what the first run was held to, and is not moved to the checkpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict
from apps.common.json_limits import storable
from apps.training.guidance import advised_changes
from apps.training.models import Checkpoint, Run
from apps.training.selectors.reference import checkpoints_judged, last_healthy, started_from
from apps.training.services.kinds import Input, run_inputs
from apps.training.services.launching import LONGEST_NAME, run_launch
from apps.training.services.layouts import needs_of
from workers.config import as_trained, recipe_config, recipe_fields

HEALTHY, START = "healthy", "start"
# The role by which a run of the kind starts from a checkpoint of another one like it.
START_ROLE = {"sft": "base", "reward": "base", "ppo": "policy", "grpo": "policy", "drill": "base"}
HELD = frozenset({"ppo", "grpo"})  # kinds whose policy is held to a reference
_LAST_SEED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """What a roll-back launches. `changes`: {setting: (before, after)}, those of the advice too."""

    target: Checkpoint | None
    name: str
    config: dict[str, Any]
    inputs: dict[str, Input]
    seed: int
    changes: dict[str, tuple[Any, Any]] = field(default_factory=dict)


def roll_back_plan(*, run: Run, to: str = HEALTHY, advised: bool = True) -> RollbackPlan:
    """What going back to `to` means: "healthy" (the newest sound checkpoint), "start" (what the
    run began with), or the id of one of its sound checkpoints.

    A seed after the run's own is taken: the same seed from the same model would repeat the run.
    Raises `Conflict` where there is nothing to go back to, saying why.
    """
    if run.is_live:
        raise Conflict("The run is still training. Stop or cancel it first.", code="run_is_live")
    inputs = run_inputs(run)
    config = recipe_config(run.kind, run.config)
    before = dict(config)
    target = None if to == START else _checkpoint(run, to)
    if target is not None:
        inputs |= _starting_there(run, target, inputs)
        config |= _left(run, config, target)
        if run.kind in HELD:
            config["reference_differs"] = True
        where = f"back to step {target.step}"
    else:
        started = started_from(run)
        target = started[1] if started else None
        where = "from its start"
    if advised:
        config |= advised_changes(run)
    defaults = {option.name: option.default for option in recipe_fields(run.kind)}
    after = f", {where}"
    return RollbackPlan(
        target=target,
        name=f"{run.name[: LONGEST_NAME - len(after)]}{after}",
        config=config,
        inputs=inputs,
        seed=run.seed + 1 if run.seed < _LAST_SEED else 0,
        changes={
            name: (before.get(name, defaults.get(name)), value)
            for name, value in config.items()
            if before.get(name, defaults.get(name)) != value
        },
    )


def run_roll_back(
    *,
    run: Run,
    to: str = HEALTHY,
    advised: bool = True,
    user: User | None = None,
    idempotency_key: str = "",
) -> Run:
    """Launch the plan of `roll_back_plan`; the same key gives the run it gave before. Raises
    `Conflict` where there is nothing to go back to, and what `run_launch` raises."""
    known = Run.objects.filter(project=run.project, launch_key=storable(idempotency_key))
    if idempotency_key and (made := known.first()) is not None:
        return made
    plan = roll_back_plan(run=run, to=to, advised=advised)
    with transaction.atomic():
        made = run_launch(
            project=run.project,
            kind=run.kind,
            name=plan.name,
            config=as_trained(run.kind, plan.config),
            inputs=plan.inputs,
            seed=plan.seed,
            queue=run.queue,
            **needs_of(run),
            priority=run.priority,
            user=user,
            idempotency_key=idempotency_key,
            override_reason=run.override_reason,
        )
        audit_record(
            action="run.rolled_back",
            actor=user,
            project=run.project,
            subject=run.pk,
            details={
                "run": made.pk,
                "checkpoint": plan.target.pk if plan.target else None,
                "step": plan.target.step if plan.target else 0,
                "changes": {name: list(pair) for name, pair in plan.changes.items()},
            },
        )
    return made


def _checkpoint(run: Run, to: str) -> Checkpoint:
    if run.kind not in START_ROLE:
        raise Conflict(
            f"A {run.kind} run is measured against the model it starts from, so going on from a "
            "checkpoint of it would change its reference. Roll back to its start, or resume it.",
            code="no_roll_back",
        )
    judged = checkpoints_judged(run)
    if to == HEALTHY:
        target = last_healthy(run)
    else:
        target = next((one.checkpoint for one in judged if one.checkpoint.pk == to), None)
    doubt = next((one.doubt for one in judged if one.checkpoint == target), "")
    if target is None or doubt:
        raise Conflict(_nothing_healthy(judged, to), code="no_healthy_checkpoint")
    return target


def _nothing_healthy(judged: list[Any], to: str) -> str:
    if to != HEALTHY:
        one = next((one for one in judged if one.checkpoint.pk == to), None)
        if one is None:
            return "The run has no such checkpoint."
        return f"The checkpoint of step {one.checkpoint.step:,} was {one.doubt}."
    if not judged:
        return (
            "The run has saved no checkpoint, so it cannot be rolled back to one. Roll back "
            "to its start."
        )
    reasons = "; ".join(
        f"step {one.checkpoint.step:,} was {one.doubt}" for one in judged if one.doubt
    )
    return f"No checkpoint of the run is healthy: {reasons}. Roll back to its start."


def _starting_there(run: Run, target: Checkpoint, inputs: Mapping[str, Input]) -> dict[str, Input]:
    """The roles that change: where training starts, and what it is held to as before."""
    roles: dict[str, Input] = {START_ROLE[run.kind]: target}
    if run.kind in HELD:
        roles["reference"] = next(
            inputs[role] for role in ("reference", "policy", "sft") if role in inputs
        )
    return roles


def _left(run: Run, config: Mapping[str, Any], target: Checkpoint) -> dict[str, int]:
    """Of a kind that counts its steps: those that were left at the checkpoint."""
    options = {option.name: option for option in recipe_fields(run.kind)}
    if "steps" not in options or target.run_id != run.pk:
        return {}
    planned = config.get("steps", options["steps"].default)
    left = planned - target.step if isinstance(planned, int) else 0
    return {"steps": left} if left > 0 else {}
