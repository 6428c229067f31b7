"""What this machine has, as far as it can be told without importing anything heavy."""

import contextlib
import importlib.util
import os
import subprocess
from pathlib import Path

_NVIDIA = Path("/proc/driver/nvidia/gpus")
_ASK = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
_PATIENCE_S = 20.0  # a driver that is asleep takes seconds to answer


def gpus() -> list[str]:
    """The names of the GPUs a trainer started here would see, after `CUDA_VISIBLE_DEVICES`.

    As `nvidia-smi` tells them; without it, as the kernel's driver does. Others than NVIDIA's are
    not counted."""
    names = _all_gpus()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return names
    return [_named(word, names) for word in chosen(visible)]


def lacks(package: str) -> bool:
    """Whether `package` cannot be imported here; found out without importing it."""
    return importlib.util.find_spec(package) is None


def _all_gpus() -> list[str]:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run(_ASK, capture_output=True, text=True, timeout=_PATIENCE_S, check=True)
        return [line.strip() for line in told.stdout.splitlines() if line.strip()]
    return [
        line.partition(":")[2].strip()
        for path in sorted(_NVIDIA.glob("*/information"))
        for line in path.read_text().splitlines()
        if line.startswith("Model")
    ]


def chosen(visible: str) -> list[str]:
    """The entries of `CUDA_VISIBLE_DEVICES` that count: those before the first that names none."""
    found: list[str] = []
    for word in (part.strip() for part in visible.split(",")):
        if word in ("", "-1"):
            break
        found.append(word)
    return found


def _named(word: str, names: list[str]) -> str:
    """The GPU an entry means: a number, or the identifier of a card or of a part of one."""
    if word.isdecimal() and int(word) < len(names):
        return names[int(word)]
    return names[0] if len(set(names)) == 1 else word
