"""A run that trains nothing: it walks steps, saves, resumes exactly, and fails as it is told.

Standard library only, so the tests of the job path take seconds, and `concord` can be drilled on
a new machine before a real run is risked. Its metric is a seeded walk that depends on every step
before it: a run that was cut and continued shows the same points as one that was not.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from workers import ranks
from workers.config import DrillSettings, settings_for
from workers.config.inference import VARIABLE, drill_folder, refused_option
from workers.context import RunContext
from workers.contract.events import Fault, Progress, RecipeError, Sample
from workers.emitter import EVENTS_FILE

_MASK = (1 << 64) - 1


class _Witness:
    """Proof of how many trainers live at once: an exclusive lock, which the kernel drops when its
    holder dies in whatever way, and a line for each start, meeting and end."""

    def __init__(self, path: Path, attempt: int) -> None:
        self._attempt = attempt
        self._file = path.open("a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.note("start")
        except BlockingIOError:
            self.note("overlap")

    def note(self, what: str) -> None:
        record = {"what": what, "pid": os.getpid(), "attempt": self._attempt, "at": time.time()}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()


def run(context: RunContext) -> dict[str, Any]:
    settings = settings_for("drill", context.spec.config)
    if (name := refused_option("drill", context.spec.config)) is not None:
        raise _refused(name, f"a worker without {VARIABLE} has no such option")
    witness = (
        _Witness(_place("witness", settings.witness), context.spec.attempt)
        if settings.witness and context.writer
        else None
    )
    if settings.ignore_stop:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if settings.meet and ranks.world() > 1:
        _meet()
    step, state, best = _start(context)
    for _ in range(settings.children):
        child = subprocess.Popen(["sleep", "600"])
        context.log(f"left behind: {child.pid}")
    context.log(f"drilling from step {step} to {settings.steps}")
    while step < settings.steps:
        _hold(settings, context, step)
        if not settings.ignore_stop and context.should_stop():
            break
        time.sleep(settings.step_seconds)
        step += 1
        state = (state * 6364136223846793005 + 1442695040888963407 + step) & _MASK
        value = state / _MASK
        if step == settings.fault_at and _is_due(settings, context):
            _go_wrong(settings, context)
        context.metrics(step, {"drill/value": value} | _more(settings.metrics_per_step, value))
        context.progress(step, settings.steps, phase="drilling")
        if settings.sample_every and step % settings.sample_every == 0:
            context.emit(_sample(step, value))
        if step % settings.checkpoint_every == 0 and step < settings.steps:
            tags = ["last", "best"] if value > best else ["last"]
            best = max(best, value)
            _save(context, step, state, best, tags)
    if context.stopped != "cancel":
        _save(context, step, state, best, ["last", "final"])
    if witness:
        witness.note("end")
    return {"steps": step, "best": best, "value": state / _MASK}


def _place(name: str, value: str) -> Path:
    """The file that an option names, below the folder of this machine's tests."""
    path, folder = Path(value).resolve(), drill_folder()
    if folder is None or not path.is_relative_to(folder):
        raise _refused(name, f"lies outside the folder of {VARIABLE}")
    return path


def _refused(name: str, why: str) -> RecipeError:
    return RecipeError("bad_config", Fault.CONFIGURATION, f"{name}: {why}")


def _meet() -> None:
    """From here on `should_stop`, asked at every step, is a collective operation."""
    from torch import distributed

    distributed.init_process_group("gloo")


def _is_due(settings: DrillSettings, context: RunContext) -> bool:
    return context.spec.attempt <= settings.fault_attempts and ranks.rank() == settings.fault_rank


def _hold(settings: DrillSettings, context: RunContext, step: int) -> None:
    """Stand still, alive and listening, so that a test can act at a known step."""
    if step != settings.hold_after or not settings.hold_file:
        return
    if context.spec.attempt > settings.fault_attempts:
        return
    held = _place("hold_file", settings.hold_file)
    while not ranks.any_of(held.exists()) and not context.should_stop():
        context.progress(step, settings.steps, phase="holding")
        time.sleep(0.02)


def _start(context: RunContext) -> tuple[int, int, float]:
    """(step, state, best value so far) of the checkpoint to continue from, or of the beginning."""
    folder = context.resume_path()
    if folder is None:
        return 0, context.spec.seed & _MASK, 0.0
    saved = json.loads((folder / "state.json").read_text())
    return saved["step"], int(saved["state"]), saved["best"]


def _save(context: RunContext, step: int, state: int, best: float, tags: list[str]) -> None:
    if context.writer is None:
        return  # the first rank's folder is everybody's
    folder = context.workdir / "checkpoint"
    folder.mkdir(exist_ok=True)
    saved = {"step": step, "state": str(state), "best": best}
    (folder / "state.json").write_text(json.dumps(saved))
    context.save_checkpoint(folder, step=step, tags=tags, metrics={"drill/best": best})


def _more(count: int, value: float) -> dict[str, float]:
    return {f"drill/value_{i}": value + i for i in range(1, count)}


def _sample(step: int, value: float) -> Sample:
    return Sample(
        step=step,
        bucket="random",
        prompt=[{"role": "user", "content": f"What is the value at step {step}?"}],
        response=f"It is {value:.3f}.",
        reward=value,
        tokens=4,
    )


def _go_wrong(settings: DrillSettings, context: RunContext) -> None:
    context.flush()
    match settings.fault:
        case "exit":
            print(f"drill: leaving with status {settings.exit_code}", file=sys.stderr)  # noqa: T201
            sys.stderr.flush()
            os._exit(settings.exit_code)
        case "segv":
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGSEGV)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            while True:
                time.sleep(60)
        case "oom":
            bytearray(1 << 62)
        case "bug":
            raise AssertionError("a drill's planted bug")
        case "data":
            raise RecipeError("bad_data", Fault.DATA, "A drill's planted row cannot be read.")
        case "garbage":
            with (context.workdir / EVENTS_FILE).open("ab") as spool:
                spool.write(b'{"half a line\n')
        case "violation":
            context.emit(Progress(step=-1))
