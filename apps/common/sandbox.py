"""Foreign files are parsed in a child process, which may die of them without harm.

The child is a fresh Python (no fork of a process with threads) with limits of memory, CPU time and
written bytes, an environment without secrets, and a scratch folder of its own. What it finds comes
back as lines of JSON, never as pickles, so that the caller can let rows go by one at a time. Where
the child is stopped by a limit, crashes or refuses the file, the caller gets a DomainError.

The child sees the machine's files as we do: this guards against files that crash, hang or swell,
and takes the keys of database and broker out of reach of a parser that is taken over, no more.
"""

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from django.conf import settings

from apps.common import environment as env
from apps.common.errors import DomainError, Unavailable
from apps.common.sandboxed import OUT_OF_MEMORY
from apps.common.scratch import scratch_folder
from apps.common.slots import slot_taken

log = logging.getLogger(__name__)
_LONGEST_ROW = 160_000_000  # bytes: two runs of an agent with hundreds of long results
_BLOCK = 1 << 18
_WAIT_FOR_SLOT = 2.0  # seconds
_TOLD = 2_000  # bytes of a crashed child's last words, for the log
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "TZ", "COVERAGE_PROCESS_START")


@dataclass(frozen=True, slots=True)
class Limits:
    """seconds: of the wall clock; 0: only that no value may take longer than `idle`. line: bytes of
    one value, which whoever reads it holds several times over."""

    seconds: float
    cpu_seconds: int
    memory: int  # bytes of address space
    decoded: int  # bytes of all values together, and of any file it writes
    idle: float = 120.0
    line: int = 16_000_000


def upload_limits(seconds: float | None = None) -> Limits:
    """For a file that is looked at while a person waits."""
    seconds = settings.UPLOAD_PARSE_SECONDS if seconds is None else seconds
    return Limits(
        seconds=seconds,
        cpu_seconds=max(1, round(seconds)),
        memory=settings.UPLOAD_PARSE_MB * 1_000_000,
        decoded=settings.IMPORT_DECODED_MB * 1_000_000,
    )


def worker_limits() -> Limits:
    """For a file that a worker reads to its end."""
    return Limits(
        seconds=0,
        cpu_seconds=settings.IMPORT_PARSE_SECONDS,
        memory=settings.UPLOAD_PARSE_MB * 1_000_000,
        decoded=settings.IMPORT_DECODED_MB * 1_000_000,
        line=_LONGEST_ROW,
    )


def sandboxed(function: str, limits: Limits, **arguments: Any) -> Generator[Any]:
    """The values that `function` ("module:name") yields for JSON arguments, as they come.

    The function gets the argument `scratch` too: the child's folder, as text. Close the generator
    to end the child early. Raises DomainError for a file that is refused, too large or too costly,
    Unavailable when the disk is full or all slots are taken.
    """
    slot = _slot() if limits.seconds else contextlib.nullcontext()
    with slot, scratch_folder("parse") as folder:
        request = {
            "function": function,
            "arguments": arguments | {"scratch": str(folder)},
            "parent": os.getpid(),
            "memory": limits.memory,
            "cpu_seconds": limits.cpu_seconds,
            "file_bytes": limits.decoded,
            "line_bytes": limits.line,
        }
        (folder / "request.json").write_text(json.dumps(request))
        with (folder / "stderr").open("wb") as errors:
            process = _start(folder, errors)
        try:
            yield from _values(process, limits, folder)
        finally:
            _end(process)


def _start(folder: Path, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        (sys.executable, "-E", "-s", "-m", "apps.common.sandboxed", str(folder)),
        cwd=env.ROOT,
        env={name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        | {
            "LANG": "C.UTF-8",
            "TMPDIR": str(folder),
            # A thread's arena and stack count as address space, used or not.
            "MALLOC_ARENA_MAX": "1",
            "ARROW_DEFAULT_MEMORY_POOL": "system",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextmanager
def _slot() -> Iterator[None]:
    """One of the machine's few places for children that people wait for: so many at a time, over
    all web processes, leave processor and memory for those who label."""
    slot = slot_taken("parse", settings.UPLOAD_PARSERS, wait=_WAIT_FOR_SLOT)
    if slot is None:
        raise Unavailable(
            "Other files are being read just now. Try again in a moment.", code="parsers_busy"
        )
    try:
        yield
    finally:
        os.close(slot)


def _values(process: subprocess.Popen[bytes], limits: Limits, folder: Path) -> Iterator[Any]:
    total = 0
    for line in _lines(cast(IO[bytes], process.stdout), limits):
        total += len(line)
        if total > limits.decoded:
            raise _too_large()
        try:
            message = json.loads(line.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise _crashed("wrote no JSON", folder) from error
        if "end" not in message:
            yield message["value"]
            continue
        _judge(message, limits)
        return
    raise _death(process, limits, folder)


def _lines(output: IO[bytes], limits: Limits) -> Iterator[bytes]:
    """Whole lines of the child until it closes its output; in time, and none too long."""
    buffer = bytearray()
    deadline = time.monotonic() + limits.seconds if limits.seconds else None
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while True:
            wait = limits.idle if deadline is None else deadline - time.monotonic()
            if wait <= 0 or not selector.select(wait):
                raise _too_slow(limits)
            block = os.read(output.fileno(), _BLOCK)
            if not block:
                return
            buffer += block
            if b"\n" in block:
                *whole, rest = buffer.split(b"\n")
                buffer = bytearray(rest)
                yield from map(bytes, whole)
            if len(buffer) > limits.line:
                raise _too_large()


def _judge(message: dict[str, Any], limits: Limits) -> None:
    """Raise what the child says of its end; nothing where it is done."""
    match message["end"]:
        case "refused":
            raise DomainError(
                message["message"],
                code=message["code"],
                field=message["field"] or "file",
                row=message["row"],
                details=message["details"],
            )
        case "too_deep":
            raise DomainError(
                "The file is nested too deeply to be read.", code="file_too_deep", field="file"
            )
        case "too_large":
            raise _too_large()
        case "disk_full":
            raise Unavailable(
                "The disk is full, so the file cannot be unpacked. Nothing was changed; ask an "
                "admin to make room.",
                code="disk_full",
            )


def _death(process: subprocess.Popen[bytes], limits: Limits, folder: Path) -> DomainError:
    """The child is gone without a last word."""
    status = process.wait()
    if status == OUT_OF_MEMORY:
        return DomainError(
            f"Reading the file takes more than {limits.memory / 1e6:,.0f} MB of memory. Save it as "
            "JSON Lines, or split it.",
            code="file_needs_memory",
            field="file",
        )
    if status == -signal.SIGXCPU:
        return _too_slow(limits)
    return _crashed(f"ended with status {status}", folder)


def _too_slow(limits: Limits) -> DomainError:
    seconds = limits.seconds or limits.cpu_seconds
    return DomainError(
        f"Reading the file takes longer than {seconds:,.0f} seconds, so it was given up. Save it "
        "as JSON Lines, or split it.",
        code="file_too_slow",
        field="file",
    )


def _too_large() -> DomainError:
    return DomainError(
        f"The file unpacks to more than {settings.IMPORT_DECODED_MB:,} MB. Split it.",
        code="file_unpacks_too_large",
        field="file",
    )


def _crashed(how: str, folder: Path) -> DomainError:
    words = (folder / "stderr").read_bytes()[-_TOLD:].decode(errors="replace")
    log.error("the reader of a file %s: %s", how, words)
    return DomainError(
        "The file cannot be read: it is damaged, or made to break its reader.",
        code="file_breaks_reader",
        field="file",
    )
