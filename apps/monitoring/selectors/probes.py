"""Models under watch and what their probes found."""

from collections.abc import Mapping
from typing import Any

from measures.drift import Level, Shift

REWARD = "score"  # the figure that a reward model gives, raw


def shift_of(figure: Mapping[str, Any] | None) -> Shift | None:
    """The comparison with the baseline as it was kept with a figure."""
    kept = (figure or {}).get("shift")
    if not isinstance(kept, Mapping):
        return None
    return Shift(**{**kept, "level": Level(kept.get("level", "none"))})
