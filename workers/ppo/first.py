"""What one rank does for all, because it asks somebody outside or must be asked only once."""

from collections.abc import Callable
from typing import TypeVar

from workers import ranks
from workers.contract.events import (
    Fault,
    RecipeError,
)

Found = TypeVar("Found")


def by_first(work: Callable[[], Found]) -> Found:
    """What `work` gives on the first rank, on every rank. Where it fails there, it fails everywhere
    and with the same words. Every rank must call it, and `work` may ask nothing of the others."""
    if ranks.world() == 1:
        return work()
    found, failed = None, None
    if ranks.is_first():
        try:
            found = work()
        except Exception as error:
            ranks.from_first((None, _told(error)))
            raise
    found, failed = ranks.from_first((found, None))
    if failed is not None:
        kind, fault, message = failed
        raise RecipeError(kind, Fault(fault), message)
    return found  # type: ignore[return-value]  # what the first rank found


def _told(error: Exception) -> tuple[str, str, str]:
    if isinstance(error, RecipeError):
        return error.kind, error.fault.value, error.message
    return "bug", Fault.BUG.value, f"the first rank failed: {type(error).__name__}: {error}"
