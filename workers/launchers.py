"""How a trainer is started: the argument list for each launcher a job may name."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from workers.contract.jobs import JobSpec


class UnknownLauncher(ValueError):
    """The job names a launcher this worker does not have; the text lists those it has."""


def _plain(spec: JobSpec) -> list[str]:
    return [sys.executable, "-m"]


def _torchrun(spec: JobSpec) -> list[str]:
    """One process per GPU of this machine; `TRAINER_PROCESSES` says otherwise."""
    processes = os.environ.get("TRAINER_PROCESSES", "gpu")
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*run, "--nproc-per-node", processes, "-m"]


LAUNCHERS: dict[str, Callable[[JobSpec], list[str]]] = {"plain": _plain, "torchrun": _torchrun}


def trainer_argv(spec: JobSpec, job: Path, workdir: Path, *, silence_s: float) -> list[str]:
    """The command that runs `spec`, stored at `job`, in `workdir`.

    `silence_s` is how long the trainer may hear nothing of its supervisor. Ranks share one
    standard input, on which only its end can be seen by all of them."""
    launcher = LAUNCHERS.get(spec.launcher)
    if launcher is None:
        raise UnknownLauncher(
            f"launcher '{spec.launcher}' is none of {', '.join(sorted(LAUNCHERS))}"
        )
    silence = silence_s if spec.launcher == "plain" else 0
    arguments = ["workers.train", str(job), "--workdir", str(workdir), "--lifeline", str(silence)]
    return [*launcher(spec), *arguments]


def hears_signals(spec: JobSpec) -> bool:
    """Whether SIGTERM reaches the trainer itself. `torchrun` would end its ranks instead; they
    find a wish by looking for the control file."""
    return spec.launcher == "plain"
