"""What a parser may do in its child process; each function goes wrong in one way."""

import ctypes
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from apps.common.errors import DomainError


def counts(*, to: int, scratch: str) -> Iterator[int]:
    os.write(1, b"a library that talks\n")
    yield from range(to)


def tells(*, scratch: str) -> Iterator[Any]:
    yield {"pid": os.getpid(), "environment": sorted(os.environ), "scratch": scratch}
    time.sleep(600)


def hangs(*, scratch: str) -> Iterator[Any]:
    time.sleep(600)
    yield None


def computes(*, scratch: str) -> Iterator[Any]:
    while True:
        pass
    yield None


def hoards(*, scratch: str) -> Iterator[int]:
    yield len(bytes(3_000_000_000))


def crashes(*, scratch: str) -> Iterator[Any]:
    ctypes.string_at(1)
    yield None


def crashes_over(*, path: str, name: str, scratch: str) -> Iterator[Any]:
    yield from crashes(scratch=scratch)


def errs(*, scratch: str) -> Iterator[Any]:
    yield 1 // 0


def leaves(*, scratch: str) -> Iterator[Any]:
    os._exit(0)
    yield None


def digs(*, scratch: str) -> Iterator[Any]:
    value: Any = []
    for _ in range(5000):
        value = [value]
    yield value


def writes(*, scratch: str) -> Iterator[int]:
    yield (Path(scratch) / "large").write_bytes(bytes(20_000_000))


def repeats(*, scratch: str) -> Iterator[str]:
    while True:
        yield "x" * 1_000_000


def talks(*, scratch: str) -> Iterator[str]:
    yield "x" * 17_000_000


def refuses(*, scratch: str) -> Iterator[Any]:
    raise DomainError("Row 3 is odd.", code="odd", field="file", row=3, details=[{"row": 3}])
    yield None
