"""How a figure is spread over the answers of a step, on bins that stay the same for a whole run."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workers.contract.events import Histogram

BINS = 20
LEAST_DIFFERENT = 3  # values, before bins are laid for good
ROOM = 1.0  # of the first spread, left on either side of it: learning moves scores


class Histograms:
    """Bins are laid at the first look at which values differ (`LEAST_DIFFERENT` of them at least:
    a spread of nothing is no measure) and ride in checkpoints. What falls beside them later is
    counted into the first or the last."""

    def __init__(self) -> None:
        self._edges: dict[str, list[float]] = {}

    def of(
        self,
        step: int,
        name: str,
        values: Sequence[float],
        *,
        within: tuple[float, float] | None = None,
    ) -> Histogram:
        """`within` are the bounds where they are known; else they are the first values' own, with
        as much room again on either side."""
        edges = self._edges.get(name)
        if edges is None:
            low, high = within or _room_around(values)
            edges = np.linspace(low, high, BINS + 1).tolist()
            if within or len(set(values)) >= LEAST_DIFFERENT:
                self._edges[name] = edges
        counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), bins=edges)
        return Histogram(step, name, list(edges), counts.tolist())

    def of_answers(
        self, step: int, scores: Sequence[float], lengths: Sequence[float], *, longest: int
    ) -> list[Histogram]:
        """Of raw scores, and of lengths in tokens, which no answer has more of than `longest`."""
        return [
            self.of(step, "reward", scores),
            self.of(step, "response_length", lengths, within=(0.0, float(longest))),
        ]

    def state(self) -> dict[str, Any]:
        return {name: list(edges) for name, edges in self._edges.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._edges = {name: list(edges) for name, edges in state.items()}


def _room_around(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = ROOM * (high - low) or max(1.0, abs(low))
    return low - room, high + room
