"""What the web side asks a worker to do."""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from workers.contract.wire import (
    LEASE_SECONDS,
    QUEUE_CPU,
    VERSION,
    ContractError,
    build,
    is_run_id,
    version_check,
)

# How one job spreads over several processes: what is split, and by whom it is started.
#
#     one      one process
#     data     a copy of everything on each; rows are split, gradients summed
#     fsdp     parameters, gradients and optimizer split (torch's fully_shard, "FSDP2")
#     zero2    gradients and optimizer split (DeepSpeed ZeRO 2)
#     zero3    parameters too (DeepSpeed ZeRO 3)
#
# Whatever the layout, `batch_size` is the batch of the whole job and a run's steps are the same.

ONE, DATA, FSDP, ZERO2, ZERO3 = "one", "data", "fsdp", "zero2", "zero3"
WHOLE_WEIGHTS = (ONE, DATA)  # on every rank, and its optimizer too
# Number formats in which a reward model reads.
FLOAT32, BFLOAT16, FLOAT16, INT8 = "float32", "bfloat16", "float16", "int8"
PRECISIONS = (FLOAT32, BFLOAT16, FLOAT16, INT8)
PLAIN, TORCHRUN, ACCELERATE = "plain", "torchrun", "accelerate"


@dataclass(frozen=True, slots=True)
class Layout:
    """`title` for people; `sharding` is its name in the memory ledger; `package` what it needs
    beyond torch."""

    name: str
    title: str
    sharding: str
    package: str = ""


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(ONE, "One process", "none"),
        Layout(DATA, "Data parallel: a copy on each GPU", "none"),
        Layout(FSDP, "FSDP: everything split over the GPUs", "fsdp"),
        Layout(ZERO2, "DeepSpeed ZeRO 2: gradients and optimizer split", "zero2", "deepspeed"),
        Layout(ZERO3, "DeepSpeed ZeRO 3: weights split too", "zero3", "deepspeed"),
    )
}
LAUNCHERS = (PLAIN, TORCHRUN, ACCELERATE)
EVERY_GPU = 0  # of the machine, as a number of processes
MOST_PROCESSES = 64

# A trainer deletes its checkpoints as it goes, but for those with a tag and for so many of the
# newest: events of them may still be on their way.
PEOPLE = "people"  # who labelled the rows of a dataset that do not say
KEPT_CHECKPOINTS = 2


@dataclass(frozen=True, slots=True)
class InputRef:
    """What a job reads, named by content: a snapshot or a checkpoint, which are file trees, or a
    single file that another run left."""

    role: str  # data, prompts, base, sft, policy, reward, judge, reference, canaries, rollouts …
    kind: str  # snapshot | checkpoint | artifact
    id: str
    uri: str  # path below `JobSpec.artifacts_url`
    sha256: str  # of a tree's manifest, see workers.artifacts.tree_sha256; of a file's bytes


@dataclass(frozen=True, slots=True)
class Resume:
    """The checkpoint an attempt continues from."""

    uri: str  # path below `JobSpec.artifacts_url`
    sha256: str
    step: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds the supervisor keeps to."""

    lease_s: float = LEASE_SECONDS
    grace_s: float = 20.0  # between the polite signal and the kill
    stop_s: float = 900.0  # the same where a person asks for the end: a step may take minutes
    max_s: float = 86_400.0  # wall clock of one attempt


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One attempt of one run, complete: the trainer needs nothing else but the artifact store.

    `config` is the recipe's own configuration, checked by the recipe. `attempt` counts from 1 and
    fences: events of a lower attempt than the run's current one change no state. `layout` and
    `processes` say how it spreads over the GPUs of its machine (`workers.contract.jobs`). With
    `secret` the supervisor signs what it reports; the trainer does not get it.
    """

    run: str
    attempt: int
    kind: str  # a recipe: sft, reward, dpo, ppo, generate, evaluate, drill …
    project: str
    seed: int
    artifacts_url: str  # a folder or any fsspec URL
    config: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[InputRef, ...] = ()
    queue: str = QUEUE_CPU
    launcher: str = PLAIN
    layout: str = ONE
    processes: int = 1  # EVERY_GPU: as many as the machine has
    code_version: str = ""
    resume: Resume | None = None
    limits: Limits = field(default_factory=Limits)
    baseline: Mapping[str, Any] = field(default_factory=dict)  # see workers.rules.diagnosis
    phrases: tuple[str, ...] = ()  # the project's blocked phrases: answers with one go to people
    reward_temperature: float | None = None  # T of the input `reward`, by its newest assessment
    secret: str = field(default="", repr=False)  # see workers.contract.signing
    version: int = VERSION

    def input(self, role: str) -> InputRef | None:
        """The input playing `role`, or None."""
        return next((ref for ref in self.inputs if ref.role == role), None)

    def content_of(self, role: str) -> dict[str, str]:
        """{sha256} of the input playing `role`; {} where there is none."""
        ref = self.input(role)
        return {"sha256": ref.sha256} if ref else {}

    @property
    def folder(self) -> str:
        """Where this attempt writes, below `artifacts_url`."""
        return f"runs/{self.run}/attempt-{self.attempt}"


def spec_to_json(spec: JobSpec) -> dict[str, Any]:
    """Plain JSON types only; `spec_from_json` is its inverse."""
    data = asdict(spec) | {"config": dict(spec.config), "baseline": dict(spec.baseline)}
    if not spec.secret:
        del data["secret"]
    return data


def spec_from_json(data: Mapping[str, Any]) -> JobSpec:
    """Raises `ContractError` naming the field when `data` is no valid spec of our version."""
    if not isinstance(data, Mapping):
        raise ContractError(f"job: expected an object, got {type(data).__name__}")
    version_check(data.get("version"), where="job")
    values = dict(data)
    values["inputs"] = tuple(
        build(InputRef, item, where=f"job.inputs[{i}]")
        for i, item in enumerate(values.get("inputs") or ())
    )
    if values.get("resume") is not None:
        values["resume"] = build(Resume, values["resume"], where="job.resume")
    values["phrases"] = tuple(map(str, values.get("phrases") or ()))
    values["limits"] = build(Limits, values.get("limits") or {}, where="job.limits")
    spec = build(JobSpec, values, where="job")
    if not isinstance(spec.attempt, int) or spec.attempt < 1:
        raise ContractError(f"job.attempt: {spec.attempt!r} is not a number from 1")
    for name in ("kind", "artifacts_url"):
        if not isinstance(getattr(spec, name), str) or not getattr(spec, name):
            raise ContractError(f"job.{name}: must be a non-empty string")
    if not is_run_id(spec.run):
        raise ContractError(f"job.run: {spec.run!r:.60} is no id of a run")
    if not isinstance(spec.secret, str):
        raise ContractError("job.secret: is no text")
    if (problem := layout_problem(spec.launcher, spec.layout, spec.processes)) is not None:
        raise ContractError(f"job.{problem[0]}: {problem[1]}")
    return spec


def layout_problem(launcher: str, layout: str, processes: int) -> tuple[str, str] | None:
    """(field, sentence) of what does not go together; None when all does."""
    if launcher not in LAUNCHERS:
        return "launcher", f"'{launcher}' is none of {', '.join(LAUNCHERS)}"
    if layout not in LAYOUTS:
        return "layout", f"'{layout}' is none of {', '.join(LAYOUTS)}"
    if type(processes) is not int or not EVERY_GPU <= processes <= MOST_PROCESSES:
        return "processes", f"{processes!r} is no number from {EVERY_GPU} to {MOST_PROCESSES}"
    if (launcher == PLAIN) != (layout == ONE):
        return "launcher", f"'{launcher}' does not start the layout '{layout}'"
    if layout == ONE and processes != 1:
        return "processes", "the layout 'one' is one process"
    return None


# Which models a configuration may name: a hub's, or a folder that whoever runs the worker lists.


VARIABLE = "MODEL_FOLDERS"
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
NOT_ALLOWED = (
    "is neither the id of a model on a hub nor a folder below one that MODEL_FOLDERS lists"
)


def model_folders() -> list[Path]:
    told = [word.strip() for word in os.environ.get(VARIABLE, "").split(",") if word.strip()]
    if not told:
        told = [str(Path(os.environ.get("VAR_DIR") or "var") / "models")]
    return [Path(word).expanduser().absolute() for word in told]


def is_hub_id(name: str) -> bool:
    return _HUB_ID.fullmatch(name) is not None and ".." not in name


def may_be_named(name: str) -> bool:
    """By its spelling alone."""
    if is_hub_id(name):
        return True
    path = Path(os.path.normpath(name))
    return path.is_absolute() and any(_is_below(path, folder) for folder in model_folders())


def allowed_folder(name: str) -> Path | None:
    """The folder on this machine that `name` leads to, links followed; None unless it lies below a
    listed one."""
    path = Path(name).resolve()
    listed = any(_is_below(path, folder.resolve()) for folder in model_folders())
    return path if Path(name).is_absolute() and listed else None


def _is_below(path: Path, folder: Path) -> bool:
    return folder in path.parents
