"""What this machine has, as far as it can be told without importing anything heavy."""

import contextlib
import csv
import importlib.util
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

# Carried by everything a trainer starts, in whatever session: who bears them belongs to that
# attempt of that run.
MARK, ATTEMPT = "CONCORD_RUN", "CONCORD_ATTEMPT"
_NVIDIA = Path("/proc/driver/nvidia/gpus")
COLUMNS = ("index", "uuid", "name")  # of a row that tells of a GPU; more may follow
_PATIENCE_S = 20.0  # a driver that is asleep takes seconds to answer


def gpus() -> list[str]:
    """The names of the GPUs a trainer started here would see, after `CUDA_VISIBLE_DEVICES`.

    As `nvidia-smi` tells them; without it, as the kernel's driver does. Others than NVIDIA's are
    not counted."""
    rows = seen(_all_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    return [name for _, _, name, *_ in rows]


def lacks(package: str) -> bool:
    """Whether `package` cannot be imported here; found out without importing it."""
    return importlib.util.find_spec(package) is None


def query(columns: Sequence[str]) -> list[str]:
    """The arguments of `nvidia-smi` whose answer `listed` reads."""
    return [f"--query-gpu={','.join(columns)}", "--format=csv,noheader,nounits"]


def listed(text: str, columns: Sequence[str]) -> list[list[str]]:
    """A row for each GPU of what the program printed."""
    rows = ([value.strip() for value in row] for row in csv.reader(text.splitlines()))
    return [row for row in rows if len(row) == len(columns)]


def seen(rows: Sequence[list[str]], visible: str | None) -> list[list[str]]:
    """The GPUs that a trainer sees under CUDA_VISIBLE_DEVICES (`visible`), in its order: what comes
    after the first entry that names none is not seen (CUDA C++ Programming Guide, "CUDA Environment
    Variables")."""
    if visible is None:
        return list(rows)
    found: list[list[str]] = []
    for word in visible.split(","):
        row = _named(rows, word.strip())
        if row is None:
            break
        found.append(row)
    return found


def _named(rows: Sequence[list[str]], word: str) -> list[str] | None:
    """The GPU that an entry means: a number, or the beginning of an identifier. A part of one
    (MIG), of which a list of cards tells nothing, is a row without an index."""
    for row in rows:
        if row[0] == word or (word.startswith("GPU-") and row[1].startswith(word)):
            return row
    if word.startswith("MIG-") and rows:
        return ["", word, f"a part of {rows[0][2]}", *rows[0][3:]]
    return None


def _all_gpus() -> list[list[str]]:
    command = ["nvidia-smi", *query(COLUMNS)]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
        return listed(told.stdout, COLUMNS)
    return known_to_the_kernel()


def known_to_the_kernel() -> list[list[str]]:
    """Rows of index, identifier and name without asking a program; empty without the driver."""
    rows = []
    for index, path in enumerate(sorted(_NVIDIA.glob("*/information"))):
        lines = (line.partition(":") for line in path.read_text().splitlines())
        told = {name.strip(): value.strip() for name, _, value in lines}
        rows.append([str(index), told.get("GPU UUID", ""), told.get("Model", "")])
    return rows


def memory() -> tuple[int | None, int | None]:
    """(bytes of this machine, bytes that can be had without swapping); Linux only."""
    values: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                values[name] = 1024 * int(rest.split()[0])
    return values.get("MemTotal"), values.get("MemAvailable")


def processes_of(run: str, last: int) -> list[int]:
    """The processes other than this one that bear the marks of `run` and of an attempt up to the
    `last`; a zombie has no environment left to bear them in."""
    mark, number = f"{MARK}={run}".encode(), f"{ATTEMPT}=".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            marks = (process / "environ").read_bytes().split(b"\0")
            attempts = [int(word.removeprefix(number)) for word in marks if word.startswith(number)]
            if mark in marks and max(attempts, default=last) <= last:
                found.append(int(process.name))
    return [pid for pid in found if pid != os.getpid()]
