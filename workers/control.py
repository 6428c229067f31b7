"""How the supervisor commands its trainer: a small file in the run's folder, replaced whole.

A signal says that there is something to read; the file says what. Ranks below `torchrun` get no
signal and look for the file now and then.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from workers.contract.events import Failed
from workers.contract.wire import ContractError, build

CONTROL_FILE = "control"
STOP, CANCEL = "stop", "cancel"


@dataclass(frozen=True, slots=True)
class Command:
    """`stop`: save, keep, finish early; `cancel`: end without saving.

    With `outcome`, a trainer that stopped reports that failure instead of Finished: the command was
    the supervisor's own (time limit, lost lease, a worker that shuts down), nobody's success.
    """

    word: str
    outcome: Failed | None = None


def command_write(path: Path, command: Command) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(asdict(command)))
    part.replace(path)


def command_read(path: Path) -> Command | None:
    """None when there is no command, or nothing that can be read as one."""
    try:
        data = json.loads(path.read_text())
        command = build(Command, data, where="control")
        if command.outcome is not None:
            command = Command(command.word, build(Failed, command.outcome, where="control.outcome"))
    except (FileNotFoundError, ValueError, ContractError):
        return None
    return command if command.word in (STOP, CANCEL) else None


# How a process makes sure that it does not outlive whoever started it.

_PR_SET_PDEATHSIG = 1
# Loaded before any fork: a child between fork and exec must not take locks.
_LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


def end_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it dies (Linux)."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def hold(silence_s: float, *, descriptor: int = 0) -> None:
    """End at once, with all children, when `descriptor` closes or says nothing for `silence_s`
    seconds (0: any number)."""

    def watch() -> None:
        while select.select([descriptor], [], [], silence_s or None)[0]:
            if not os.read(descriptor, 4096):
                break
        for child in _children():  # ranks, which lead groups of their own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def lend_standard_input() -> int:
    """Keep standard input for this process, and give those it starts one that nothing is written
    to and that closes when this process ends. Returns the descriptor of the one kept."""
    kept = os.dup(0)
    reading, _ = os.pipe()  # the other end, never written to, is not passed on: it ends with us
    os.dup2(reading, 0)
    os.close(reading)
    return kept


def _children() -> Iterable[int]:
    """Process ids of the direct children, where the kernel tells."""
    with contextlib.suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            yield from map(int, (task / "children").read_text().split())
