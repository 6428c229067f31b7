"""The trainer: `python -m workers.train job.json [--workdir FOLDER] [--lifeline S]`.

Runs one attempt of one run and reports it as events in `FOLDER/events.jsonl` (FOLDER is the one
job.json lies in unless told). How it ended is an event, never only an exit status: 0 finished,
1 failed, 3 cancelled.

Commands come as a small JSON file `control` in FOLDER together with SIGTERM. With `--lifeline S`,
end of file on standard input, or S seconds without a byte there (0: any number), means that the
supervisor is gone or stopped; the trainer and its children end at once, so that a run never has
two trainers. A rank also ends with its launcher.

One of several ranks does not say that the run failed: it leaves a note, and the supervisor tells
which of the notes was the cause (`workers.rank_ends`).
"""

import argparse
import contextlib
import errno
import gc
import importlib
import importlib.metadata
import json
import math
import os
import platform
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from workers import control, rank_ends, ranks
from workers.artifacts import ArtifactError, Store, StoreUnreachable
from workers.context import Preflight, RunContext
from workers.contract.events import Cancelled, Event, Failed, Fault, Finished, Opened, RecipeError
from workers.contract.jobs import JobSpec, spec_from_json
from workers.control import CANCEL, CONTROL_FILE, STOP, Command, command_read
from workers.data.snapshot import observe
from workers.emitter import EVENTS_FILE, Emitter
from workers.machine_curves import MachineCurves
from workers.printed import OUTPUT_FILE, Printed
from workers.rules.diagnosis import finding_of_failure
from workers.tracking.mirror import Mirrored, Writer, mirrored

EXIT_FINISHED, EXIT_FAILED, EXIT_CANCELLED = 0, 1, 3
TRACEBACK_CHARACTERS = 20_000
LOOK_INTERVAL_S = 1.0
# Versions worth knowing when a run is to be repeated.
_PACKAGES = ("torch", "transformers", "trl", "accelerate", "peft", "datasets", "numpy", "celery")
_TERMINATED = Failed(
    "terminated", Fault.MACHINE, "The trainer was told to end from outside.", retryable=True
)


class StopSignal:
    """What people or the supervisor ask of this run. Asked once a step, so it looks for the file
    only after a SIGTERM, and otherwise once a second (signals do not reach every rank)."""

    def __init__(self, workdir: Path) -> None:
        self._path = workdir / CONTROL_FILE
        self._signalled = False
        self._looked_at = -math.inf
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        self._signalled = True

    def command(self) -> Command | None:
        """The command, or None. A SIGTERM that nobody explained means save and end as `terminated`:
        a machine is shut down, or another rank of this run has died."""
        command = command_read(self._path)
        if command is None and self._signalled:
            return Command(STOP, _TERMINATED)
        return command

    def __call__(self) -> str | None:
        now = time.monotonic()
        if not self._signalled and now - self._looked_at < LOOK_INTERVAL_S:
            return None
        self._looked_at = now
        command = self.command()
        return command.word if command else None


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="workers.train", description="Run one attempt of a run.")
    parser.add_argument("job", type=Path, help="JobSpec as JSON")
    parser.add_argument("--workdir", type=Path, help="local folder; default: that of job.json")
    parser.add_argument(
        "--lifeline", type=float, metavar="S", help="end with standard input, or S s of silence"
    )
    arguments = parser.parse_args(argv)
    leaving = ranks.Leaving()
    if arguments.lifeline is not None:
        control.hold(arguments.lifeline)
        if ranks.world() > 1:
            control.end_with_parent()
    workdir = (arguments.workdir or arguments.job.parent).resolve()
    spec = spec_from_json(json.loads(arguments.job.read_text()))
    writer = (
        Emitter(workdir / EVENTS_FILE, run=spec.run, attempt=spec.attempt)
        if ranks.is_first()
        else None
    )
    status = train(spec, workdir, writer, StopSignal(workdir))
    if status != EXIT_FAILED:
        ranks.disconnect()
    leaving.status = status
    return status


def train(spec: JobSpec, workdir: Path, writer: Writer | None, stop: StopSignal) -> int:
    """Runs the recipe of `spec.kind`; reports Opened first and exactly one outcome last."""
    context: RunContext | None = None
    cause: BaseException | None = None
    printed = Printed(workdir / OUTPUT_FILE, writer.write) if writer else None
    curves = _machine_curves(spec, workdir, writer) if writer else None
    writer = mirrored(writer, spec) if writer else None
    try:
        context = RunContext(
            spec=spec,
            store=Store(spec.artifacts_url),
            workdir=workdir,
            writer=writer,
            stop_signal=stop,
            preflight=preflight,
        )
        resumed_from = spec.resume.step if spec.resume else None
        observe(context.split_read)
        context.emit(Opened(resumed_from_step=resumed_from, environment=environment(spec)))
        if printed is not None:
            printed.start()
        if curves is not None:
            curves.start()
        with _imported_to_stay():
            recipe = recipe_of(spec.kind)
        summary = recipe.run(context)
        outcome = _ending(context, stop, summary, writer)
    except BaseException as error:  # whatever it was, the run must be told
        traceback.print_exc()
        cause = error
        outcome = _advised(failure_of(error, step=writer.step if writer else None), spec)
        if context is not None:
            _witness(context, outcome)
    if curves is not None:  # nothing comes after the outcome
        curves.stop()
    if printed is not None and context is not None:
        with contextlib.suppress(OSError):
            printed.stop()
    if ranks.world() > 1 and isinstance(outcome, Failed) and not _was_commanded(outcome, cause):
        rank_ends.leave_note(workdir, outcome, cause, rank=ranks.rank(), world=ranks.world())
        _end_quietly(context, writer, outcome)
        return EXIT_FAILED
    (context.emit if context else writer.write if writer else _nobody)(outcome)
    if not ranks.is_first():
        return EXIT_FINISHED  # the launcher would end the others, who may still be saving
    return {Finished: EXIT_FINISHED, Cancelled: EXIT_CANCELLED}.get(type(outcome), EXIT_FAILED)


def _machine_curves(spec: JobSpec, workdir: Path, writer: Writer) -> MachineCurves:
    """They go to the run's own page, and to no tracker: those have curves of the machine already,
    and order everything by step."""
    return MachineCurves(
        writer.write,
        run=spec.run,
        attempt=spec.attempt,
        folder=workdir,
        step=lambda: writer.step,
    )


def _was_commanded(outcome: Failed, cause: BaseException | None) -> bool:
    """Whether the supervisor asked for just this failure; a SIGTERM does not say who sent it."""
    return cause is None and outcome.kind != _TERMINATED.kind


def _end_quietly(context: RunContext | None, writer: Writer | None, outcome: Failed) -> None:
    """Leave the last word to the supervisor, with everything else said."""
    if context is not None:
        context.flush()
    if isinstance(writer, Mirrored):
        writer.end(outcome)


def _witness(context: RunContext, failure: Failed) -> None:
    """A contract that ended the run is evidence for the diagnosis, whatever the recipe; unless the
    recipe said so itself."""
    finding = finding_of_failure(failure.step or 0, failure.kind, failure.message)
    if finding is not None and finding.rule not in context.said:
        context.emit(finding.to_event())


def _nobody(event: Event) -> None:
    """Ranks beyond the first report nothing."""


def _ending(
    context: RunContext,
    stop: StopSignal,
    summary: Mapping[str, Any] | None,
    writer: Writer | None,
) -> Event:
    """The outcome of a recipe that returned."""
    step = writer.step if writer else None
    if context.stopped == CANCEL:
        return Cancelled(step=step)
    command = stop.command() if context.stopped == STOP else None
    if command is not None and command.outcome is not None:
        return replace(command.outcome, step=step)
    return Finished(
        step=step or 0, summary=dict(summary or {}), stopped_early=context.stopped == STOP
    )


def _advised(failure: Failed, spec: JobSpec) -> Failed:
    """What to do about a lack of memory, with the names and values of this run's own settings."""
    if failure.kind != "out_of_memory":
        return failure
    from workers.memory.report import out_of_memory_advice

    advice = out_of_memory_advice(spec.kind, spec.config)
    return replace(failure, message=f"{failure.message.rstrip('.')}. {advice}".strip())


def failure_of(error: BaseException, *, step: int | None = None) -> Failed:
    """What went wrong, whose turn it is, and whether trying again may help."""
    if isinstance(error, RecipeError):
        return Failed(error.kind, error.fault, error.message, step=step, retryable=error.retryable)
    if isinstance(error, KeyboardInterrupt):
        return replace(_TERMINATED, step=step)
    text = f"{type(error).__name__}: {error}"
    trace = "".join(traceback.format_exception(error))[-TRACEBACK_CHARACTERS:]
    if _is_out_of_memory(error):
        return Failed("out_of_memory", Fault.MACHINE, text, step=step, traceback=trace)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failed("disk_full", Fault.MACHINE, text, step=step, traceback=trace)
    if isinstance(error, StoreUnreachable):
        return Failed("store_unreachable", Fault.MACHINE, str(error), step=step, retryable=True)
    if isinstance(error, ArtifactError):
        return Failed("damaged_input", Fault.DATA, str(error), step=step, traceback=trace)
    return Failed("bug", Fault.BUG, text, step=step, traceback=trace)


def _is_out_of_memory(error: BaseException) -> bool:
    """Also torch's errors, known by name so that torch need not be imported. The CPU allocator
    raises a bare RuntimeError."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (
            isinstance(error, RuntimeError)
            and any(text in str(error) for text in ("out of memory", "not enough memory"))
        )
    )


def preflight() -> Preflight:
    """What looks at a run before its first step; late, for it imports torch."""
    from workers.preflight import run

    return run


def recipe_of(kind: str) -> ModuleType:
    """The module `workers.recipes.<kind>`; of kinds that differ in what a model is registered for
    (`register_policy`) `register`. Raises `RecipeError` when there is
    none, or when a package it needs is not installed here."""
    name = f"workers.recipes.{'register' if kind.startswith('register_') else kind}"
    try:
        module = importlib.import_module(name) if kind.isidentifier() else None
    except ModuleNotFoundError as error:
        if error.name != name:
            raise RecipeError(
                "missing_package",
                Fault.MACHINE,
                f"This machine lacks the package '{error.name}', which {kind} runs need.",
            ) from error
        module = None
    if module is None or not hasattr(module, "run"):
        raise RecipeError(
            "unknown_kind", Fault.CONFIGURATION, f"This worker knows no runs of the kind '{kind}'."
        )
    return module


@contextlib.contextmanager
def _imported_to_stay() -> Iterator[None]:
    """Looking for garbage among the million objects of model libraries, again and again while they
    are imported, is a fifth of the time that importing takes. Neither is it done later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def environment(spec: JobSpec) -> dict[str, Any]:
    """Where and with what this attempt runs; read without importing anything heavy."""
    versions = {}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    models = Path("/proc/driver/nvidia/gpus").glob("*/information")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "cpus": len(os.sched_getaffinity(0)),
        "gpus": [
            line.partition(":")[2].strip()
            for path in models
            for line in path.read_text().splitlines()
            if line.startswith("Model")
        ],
        "launcher": spec.launcher,
        "layout": spec.layout,
        "world_size": ranks.world(),
        "versions": versions,
    }


if __name__ == "__main__":
    sys.exit(main())
