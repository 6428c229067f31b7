"""How a run is done again: code, machine, inputs by content, configuration, and the commands."""

from dataclasses import dataclass
from typing import Any

from apps.training.models import Checkpoint, Run, RunInput
from apps.training.selectors.runs import checkpoint_for_use
from apps.training.services.kinds import POLICIES
from apps.training.services.layouts import needs_of
from apps.training.services.repeating import evaluation_missing
from workers.config import recipe_config, recipe_fields
from workers.contract.code_version import DIRTY, UNKNOWN
from workers.contract.jobs import ONE


@dataclass(frozen=True, slots=True)
class InputRow:
    role: str
    name: str
    kind: str
    key: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """`gaps` are what stands in the way of the same run; `launch` is the call that starts it."""

    code: str
    seed: int
    queue: str
    versions: list[tuple[str, Any]]
    machine: list[tuple[str, Any]]
    inputs: list[InputRow]
    gaps: list[str]
    launch: dict[str, Any]
    model: Checkpoint | None
    evaluate: str
    may_be_small: bool
    is_small: bool


def repeat_view(run: Run) -> Repeat:
    attempt = run.attempts.order_by("-number").first()
    environment = attempt.environment if attempt else {}
    inputs = [_input(row) for row in _rows(run)]
    model = checkpoint_for_use(run) if run.kind in POLICIES else None
    fields = {option.name for option in recipe_fields(run.kind)}
    versions = environment.get("versions")
    return Repeat(
        code=run.code_version,
        seed=run.seed,
        queue=run.queue,
        versions=sorted(versions.items()) if isinstance(versions, dict) else [],
        machine=[
            (name, environment[name])
            for name in ("host", "platform", "python", "cpus", "gpus", "world_size")
            if name in environment
        ],
        inputs=inputs,
        gaps=_gaps(run, environment, inputs),
        launch={
            "kind": run.kind,
            "name": f"{run.name} again"[:120],
            "config": run.config,
            "inputs": {row.role: row.key for row in inputs},
            "seed": run.seed,
            "queue": run.queue,
            **({} if run.layout == ONE else needs_of(run)),
        },
        model=model,
        evaluate=_evaluate(model) if model else "",
        may_be_small="minimal" in fields,
        is_small=bool(recipe_config(run.kind, run.config).get("minimal")),
    )


def _evaluate(model: Checkpoint) -> str:
    """The command, with a place for what nothing in the model's history gives."""
    places = {"prompts": "DATASET"}
    missing = [f"--{role} {places.get(role, 'CHECKPOINT')}" for role in evaluation_missing(model)]
    return " ".join(
        ["manage.py evaluate_checkpoint", model.pk, *missing, f"--seed {model.run.seed}"]
    )


def _rows(run: Run) -> list[RunInput]:
    rows = RunInput.objects.filter(run=run).order_by("role")
    return list(rows.select_related("snapshot", "checkpoint__run", "upstream", "artifact__run"))


def _input(row: RunInput) -> InputRow:
    if row.snapshot is not None:
        one = row.snapshot
        return InputRow(row.role, one.name, "dataset", f"snapshot:{one.pk}", one.sha256)
    if row.checkpoint is not None:
        model = row.checkpoint
        name = f"{model.run.name}, step {model.step:,}"
        return InputRow(row.role, name, "model", f"checkpoint:{model.pk}", model.sha256)
    if row.artifact is not None:
        file = row.artifact
        name = f"{file.name} of {file.run.name}"
        return InputRow(row.role, name, "file", f"artifact:{file.pk}", file.sha256)
    return InputRow(row.role, row.upstream.name, "run", f"run:{row.upstream.pk}", "")


def _gaps(run: Run, environment: dict[str, Any], inputs: list[InputRow]) -> list[str]:
    gaps = []
    if run.code_version in ("", UNKNOWN):
        gaps.append("The code version is not known.")
    elif run.code_version.endswith(DIRTY):
        gaps.append(
            "The code had changes that were not committed, so the revision alone does not bring it "
            "back."
        )
    if not environment.get("versions"):
        gaps.append("The library versions are not known yet: the worker sends them when it starts.")
    gaps += [
        f"The input '{row.role}' has no content hash yet: its run has not finished."
        for row in inputs
        if not row.sha256
    ]
    gpus = environment.get("gpus")
    if gpus:
        gaps.append(
            "It trained on a GPU, whose sums are not bitwise the same each time: expect the same "
            "curve, not the same numbers."
        )
    return gaps
