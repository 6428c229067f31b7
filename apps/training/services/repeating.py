"""Doing a run again: its model evaluated by one command, its configuration once more in small."""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict
from apps.training.models import Checkpoint, Run, RunInput
from apps.training.selectors.reference import sft_of
from apps.training.services.kinds import KINDS, POLICIES, Input
from apps.training.services.launching import LONGEST_NAME, run_clone, run_launch
from workers.config import recipe_config, recipe_fields
from workers.contract.wire import QUEUE_CPU

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
        name=f"{run.name[: LONGEST_NAME - len(after)]}{after}",
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
            name=f"{run.name[: LONGEST_NAME - len(after)]}{after}",
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
