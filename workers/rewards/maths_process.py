"""Mathematics compared in a child process, within limits of time and memory.

The child is `maths.py` run as a file: it gets two texts a line and nothing else of this process, no
variable but those that Python needs to start. It ends when this process does.
"""

import json
import os
import selectors
import subprocess
import sys
import threading
import weakref
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from workers.contract.events import Fault, RecipeError

SECONDS = 3.0  # for one comparison
START_SECONDS = 120.0  # for the import of sympy on a busy machine
_KEPT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "LANG", "SYSTEMROOT")


class TooSlow(Exception):
    """The child did not answer in time, or ended, and was replaced."""


class MathsProcess:
    """One child, started at the first question and again after one that it did not survive."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        """Raises `RecipeError` (missing_package) where sympy is not installed."""
        if find_spec("sympy") is None:
            raise RecipeError(
                "missing_package",
                Fault.MACHINE,
                "check: maths needs the package sympy on this worker: "
                "pip install 'concord-server[verify]'",
            )
        self._seconds = seconds
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def same(self, given: str, right: str) -> bool | None:
        """Whether both are the same; None where one cannot be read. Raises `TooSlow`."""
        with self._lock:
            told = self._ask(json.dumps([given, right]))
        return bool(told["same"]) if "same" in told else None

    def _ask(self, line: str) -> dict[str, Any]:
        child = self._child or self._start()
        try:
            child.stdin.write(line.encode() + b"\n")  # type: ignore[union-attr] # a pipe
            told: dict[str, Any] = json.loads(_line(child, self._seconds))
        except (OSError, ValueError, TooSlow) as error:
            self._end()
            raise TooSlow(f"no answer within {self._seconds:g} s") from error
        return told

    def _start(self) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("maths.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
        )
        self._child, self._ended = child, weakref.finalize(self, _kill, child)
        try:
            _line(child, START_SECONDS)
        except (OSError, TooSlow) as error:
            self._end()
            raise RecipeError(
                "missing_package",
                Fault.MACHINE,
                "the process that compares mathematics did not start",
            ) from error
        return child

    def _end(self) -> None:
        self._ended()
        self._child = None


def _line(child: subprocess.Popen[bytes], seconds: float) -> bytes:
    found = b""
    with selectors.DefaultSelector() as waiting:
        waiting.register(child.stdout, selectors.EVENT_READ)  # type: ignore[arg-type] # a pipe
        while not found.endswith(b"\n"):
            if not waiting.select(seconds):
                raise TooSlow
            piece = os.read(child.stdout.fileno(), 65_536)  # type: ignore[union-attr] # a pipe
            if not piece:
                raise TooSlow
            found += piece
    return found


def _kill(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
