"""A few places that all processes of a machine share, as locks of files: those of a process that
was killed are free at once."""

import fcntl
import os
import time
from collections.abc import Callable

from apps.common.scratch import scratch_dir

_LOOK_SECONDS = 0.02


def slot_taken(
    name: str, most: int, *, wait: float, before_waiting: Callable[[], None] = lambda: None
) -> int | None:
    """An open file, by closing which the place is given back; None where all `most` places of
    this name are taken for `wait` seconds."""
    deadline = time.monotonic() + wait
    waited = False
    while True:
        for number in range(most):
            if (descriptor := _locked(f".slot-{name}-{number}")) is not None:
                return descriptor
        if time.monotonic() >= deadline:
            return None
        if not waited:
            before_waiting()
            waited = True
        time.sleep(_LOOK_SECONDS)


def _locked(name: str) -> int | None:
    """None where another has it."""
    descriptor = os.open(scratch_dir() / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.utime(descriptor)  # a place in use is not swept
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
