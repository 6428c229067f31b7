"""How far a freeze is, for its page; and the way it is told to stop."""

import time
from collections.abc import Callable
from typing import Any

from django.core.cache import cache

from apps.snapshots.models import Snapshot

_KEPT = 600  # seconds after the last step was told
Tell = Callable[[str], None]

# In order; a page says which of how many it is.
READ, DECIDE, WRITE, PROVE, CHECK, STORE = (
    "Reading the rows",
    "Deciding every comparison",
    "Writing the files",
    "Checking for leakage",
    "Checking for bias",
    "Storing the files",
)
STEPS = (READ, DECIDE, WRITE, PROVE, CHECK, STORE)
MIX = "Mixing the rows"
MIXING = (READ, MIX, WRITE, STORE)
DEMONSTRATING = (READ, WRITE, STORE)


class Cancelled(Exception):
    """Somebody wants the freeze to end; nothing of it is kept."""


def silent(step: str) -> None:
    """For a freeze that nobody watches."""


def teller(snapshot: str) -> Tell:
    """Tells each step, and raises `Cancelled` when somebody has asked for the end."""

    def tell(step: str) -> None:
        cache.set(_key(snapshot), {"step": step, "since": time.time()}, _KEPT)
        if Snapshot.objects.filter(pk=snapshot, cancel_wanted=True).exists():
            raise Cancelled

    return tell


def progress_read(snapshot: str) -> dict[str, Any]:
    """{"step", "since"} as last told; empty when nothing is known."""
    return cache.get(_key(snapshot)) or {}


def progress_forget(snapshot: str) -> None:
    cache.delete(_key(snapshot))


def _key(snapshot: str) -> str:
    return f"snapshots:freeze:{snapshot}"
