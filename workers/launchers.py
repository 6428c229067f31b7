"""How a trainer is started: the command and environment of each launcher a job may name.

    plain        one Python process
    torchrun     torch.distributed.run on this machine, a rank per GPU
    accelerate   `accelerate launch` with the layout's shipped configuration

Where `TRAINER_TEMPLATE` of the worker names a scheduler's command (Slurm's srun, kubectl), that
starts all of it on a machine of the cluster; it hands on standard input, by which the trainer
notices the end of its supervisor, and ends with the trainer's status.

The recipes set up the layout themselves, so the two launchers of ranks give the same run. On a
machine without a GPU the ranks meet over gloo, on the loopback interface.
"""

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from workers import machine
from workers.contract.events import Failed, Fault
from workers.contract.jobs import (
    ACCELERATE,
    EVERY_GPU,
    LAUNCHERS,
    LAYOUTS,
    PLAIN,
    TORCHRUN,
    JobSpec,
)
from workers.contract.wire import QUEUE_CPU, QUEUE_SHORT
from workers.layouts.arguments import accelerate_config

TEMPLATE = "TRAINER_TEMPLATE"


class CannotStart(Exception):
    """The job cannot be started on this machine; `failure` says why and whose turn it is."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True)
class Machine:
    """What the choice of a command depends on: the names of its GPUs, and what is not installed."""

    gpus: list[str] = field(default_factory=machine.gpus)
    lacks: Callable[[str], bool] = machine.lacks


def _torchrun(spec: JobSpec, here: Machine) -> list[str]:
    processes = str(wanted_processes(spec) or "gpu")
    return ["torch.distributed.run", "--standalone", "--nproc-per-node", processes, "-m"]


def _accelerate(spec: JobSpec, here: Machine) -> list[str]:
    processes = str(wanted_processes(spec) or len(here.gpus) or 1)
    config = ["--config_file", str(accelerate_config(spec.layout))]
    return ["accelerate.commands.launch", *config, "--num_processes", processes, "-m"]


# What starts ranks: a module and its arguments, up to the trainer's own.
_LAUNCHERS: dict[str, Callable[[JobSpec, Machine], list[str]]] = {
    TORCHRUN: _torchrun,
    ACCELERATE: _accelerate,
}
_ON_TORCH = {"ACCELERATE_USE_CPU": "true"}
_ON_DEEPSPEED = {"DS_ACCELERATOR": "cpu"}
_NEEDS = {TORCHRUN: "torch", ACCELERATE: "accelerate"}  # packages


def trainer_argv(
    spec: JobSpec, job: Path, workdir: Path, *, silence_s: float, here: Machine
) -> list[str]:
    """The command that runs `spec`, stored at `job`, in `workdir`. Raises `CannotStart`.

    `silence_s` is how long the trainer may hear nothing of its supervisor. For ranks their launcher
    listens; they share one standard input, on which only its end can be seen by all of them."""
    if spec.launcher not in LAUNCHERS:
        known = ", ".join(LAUNCHERS)
        raise CannotStart(
            Failed(
                "unknown_launcher",
                Fault.CONFIGURATION,
                f"launcher '{spec.launcher}' is none of {known}",
            )
        )
    template = _template()
    if template is None:
        _check(spec, here)
    train = ["workers.train", str(job), "--workdir", str(workdir), "--lifeline"]
    if spec.launcher == PLAIN:
        argv = [sys.executable, "-m", *train, str(silence_s)]
    else:
        watch = ["workers.launch_ranks", str(workdir), str(silence_s)]
        argv = [sys.executable, "-m", *watch, *_LAUNCHERS[spec.launcher](spec, here), *train, "0"]
    return argv if template is None else _filled(template, spec, workdir, argv)


_COMMAND = "{command}"


def _template() -> list[str] | None:
    """The words of TRAINER_TEMPLATE; None where it is not set. Raises `CannotStart`."""
    text = os.environ.get(TEMPLATE, "").strip()
    if not text:
        return None
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise _bad_template(text, str(error)) from error
    if words.count(_COMMAND) != 1:
        raise _bad_template(text, f"it needs {_COMMAND} once, as a word of its own")
    return words


def _filled(words: list[str], spec: JobSpec, workdir: Path, argv: list[str]) -> list[str]:
    """`{command}` becomes the trainer's words; of the others each stays one, whatever is put in."""
    values = {
        "run": spec.run,
        "attempt": spec.attempt,
        "queue": spec.queue,
        "processes": wanted_processes(spec) or 1,
        "workdir": workdir,
    }
    filled: list[str] = []
    for word in words:
        try:
            filled += argv if word == _COMMAND else [word.format_map(values)]
        except (KeyError, ValueError, IndexError, AttributeError) as error:
            known = ", ".join(f"{{{name}}}" for name in ("command", *values))
            raise _bad_template(word, f"what stands in braces is one of {known}") from error
    return filled


def _bad_template(text: str, why: str) -> CannotStart:
    words = f"{TEMPLATE} of this worker, '{text}', cannot be used: {why}."
    return CannotStart(Failed("bad_setting", Fault.MACHINE, words))


def rank_environment(spec: JobSpec, here: Machine) -> dict[str, str]:
    """Variables that the ranks of `spec` need beyond the worker's own; one process needs none.

    A variable that is set for the worker is left as it is."""
    if spec.launcher == PLAIN or os.environ.get(TEMPLATE, "").strip():
        return {}
    wanted = {"GLOO_SOCKET_IFNAME": "lo"}  # one machine: nothing leaves it
    if not here.gpus:  # `accelerate` told to use processors would leave DeepSpeed out
        wanted |= _ON_DEEPSPEED if LAYOUTS[spec.layout].package else _ON_TORCH
    return {name: value for name, value in wanted.items() if name not in os.environ}


def hears_signals(spec: JobSpec) -> bool:
    """Whether SIGTERM reaches the trainer itself. A launcher would end its ranks instead, and a
    scheduler's command the job; they find a command by looking for the control file."""
    return spec.launcher == PLAIN and not os.environ.get(TEMPLATE, "").strip()


def wanted_processes(spec: JobSpec) -> int:
    """How many ranks: as the job says; where it says "every GPU", `TRAINER_PROCESSES`, or 0."""
    if spec.processes != EVERY_GPU:
        return spec.processes
    told = os.environ.get("TRAINER_PROCESSES", "").strip()
    if not told or told == "gpu":
        return EVERY_GPU
    if not told.isdecimal() or int(told) < 1:
        raise CannotStart(
            Failed(
                "bad_setting",
                Fault.MACHINE,
                f"TRAINER_PROCESSES of this worker is '{told}', no number from 1.",
            )
        )
    return int(told)


def _check(spec: JobSpec, here: Machine) -> None:
    """Raises `CannotStart` when this machine lacks what the ranks of `spec` would miss later."""
    if spec.launcher == PLAIN:
        return
    for package in (_NEEDS[spec.launcher], LAYOUTS[spec.layout].package):
        if package and here.lacks(package):
            raise CannotStart(
                Failed(
                    "missing_package",
                    Fault.MACHINE,
                    f"This machine lacks the package '{package}', which the launcher "
                    f"'{spec.launcher}' with the layout '{spec.layout}' needs.",
                )
            )
    processes = wanted_processes(spec)
    if here.gpus:
        enough = processes <= len(here.gpus)
    else:  # over gloo, unless GPUs were asked for
        asked_here = spec.processes == EVERY_GPU or spec.queue in (QUEUE_CPU, QUEUE_SHORT)
        enough = processes > 0 and asked_here
    if not enough:
        raise CannotStart(Failed("too_few_gpus", Fault.MACHINE, _too_few(processes, here)))


def _too_few(processes: int, here: Machine) -> str:
    asked = f"{processes} GPUs" if processes else "every GPU there is"
    if here.gpus:
        has = f"this machine has {len(here.gpus)}: {', '.join(here.gpus)}."
    else:
        has = "this machine has none. Name a number of processes and the machine class cpu."
    return f"The run asks for {asked}; {has}"
