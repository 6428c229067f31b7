"""The child process of `apps.common.sandbox`: `python -m apps.common.sandboxed FOLDER`.

FOLDER holds `request.json`. Limits are set before anything else is imported, since a process that
has threads cannot be forked and told afterwards. Each value that the function yields is a line of
JSON on standard output; the last line says how it ended.
"""

import ctypes
import errno
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from apps.common.errors import DomainError

OUT_OF_MEMORY, BUG = 71, 70  # exit statuses
_FLUSH_SECONDS = 0.5
_LONG = 4_000_000  # characters of a value
_SPARE_CPU_SECONDS = 2
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38


def main() -> None:
    folder = Path(sys.argv[1])
    request = json.loads((folder / "request.json").read_text())
    _limit(request)
    lines = _take_standard_output()
    try:
        module, _, name = request["function"].partition(":")
        function: Callable[..., Iterator[Any]] = getattr(importlib.import_module(module), name)
        flushed = 0.0
        for value in function(**request["arguments"]):
            lines.write(_line({"value": value}, request))
            if time.monotonic() > flushed + _FLUSH_SECONDS:
                lines.flush()
                flushed = time.monotonic()
        lines.write(_line({"end": "done"}, request))
        lines.flush()
    except BrokenPipeError:
        os._exit(0)  # nobody listens any more
    except Exception as error:
        _tell(error, lines, request)


def _limit(request: dict[str, Any]) -> None:
    """Memory, CPU seconds, bytes of a written file; no core file; die with the parent."""
    for kind, most in (
        (resource.RLIMIT_AS, request["memory"]),
        (resource.RLIMIT_CPU, request["cpu_seconds"]),
        (resource.RLIMIT_FSIZE, request["file_bytes"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 64),
    ):
        # At the soft limit of time the kernel sends a signal that says so, at the hard one kills.
        last = most + _SPARE_CPU_SECONDS if kind == resource.RLIMIT_CPU else most
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            most, last = min(most, hard), min(last, hard)
        resource.setrlimit(kind, (most, last))
    os.nice(5)  # people who label come first
    if sys.platform.startswith("linux"):
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != request["parent"]:  # it died between the start and here
        os._exit(0)


def _take_standard_output() -> Any:
    """Our lines alone go to the parent: whatever a library prints goes to standard error."""
    lines = os.fdopen(os.dup(1), "wb", buffering=1 << 16)
    os.dup2(2, 1)
    return lines


def _line(value: dict[str, Any], request: dict[str, Any]) -> bytes:
    if _characters(value) < _LONG:
        line = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
    else:  # in pieces: one text with an emoji takes four bytes for each of its characters
        pieces = json.JSONEncoder(ensure_ascii=False).iterencode(value)
        line = b"".join(one.encode("utf-8", "surrogatepass") for one in pieces) + b"\n"
    if len(line) > request["line_bytes"]:
        raise DomainError(
            f"A row of the file comes to more than {request['line_bytes'] / 1e6:.0f} MB.",
            code="row_too_large",
        )
    return line


def _characters(value: Any) -> int:
    """Of all texts in it, but for keys."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_characters, value.values()))
    return sum(map(_characters, value)) if isinstance(value, list | tuple) else 0


def _tell(error: Exception, lines: Any, request: dict[str, Any]) -> None:
    """How it ended, for the parent. What names no fault of the file is a bug, with its traceback
    on standard error."""
    if isinstance(error, MemoryError):
        os._exit(OUT_OF_MEMORY)
    if isinstance(error, OSError) and error.errno in _FULL:
        end: dict[str, Any] = {"end": "disk_full"}
    elif isinstance(error, OSError) and error.errno == errno.EFBIG:
        end = {"end": "too_large"}
    elif isinstance(error, RecursionError):
        end = {"end": "too_deep"}
    elif isinstance(error, DomainError):
        end = {"end": "refused"} | {
            name: getattr(error, name) for name in ("message", "code", "field", "row", "details")
        }
    else:
        traceback.print_exception(error)
        os._exit(BUG)
    lines.write(_line(end, request))
    lines.flush()


if __name__ == "__main__":
    main()
