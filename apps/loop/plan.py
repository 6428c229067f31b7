"""Which of a run's pairs people are asked about: the plan, and what the slices of it are.

measuring   drawn at random from all candidates; three to five votes. What agreement, calibration
            and evaluation read.
training    drawn at random from the rest; one vote.
selected    chosen by a model from what is left, at most half of all; one vote.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.common.errors import DomainError
from measures.acquisition import D_OPTIMAL, DISAGREEMENT, ENTROPY

STRATEGIES = (D_OPTIMAL, ENTROPY, DISAGREEMENT)
MOST_PAIRS = 100_000
MOST_SELECTED = 0.5
LEAST_VOTES, MOST_VOTES = 3, 5
MOST_PER_PROMPT = 50
LARGEST_SEED = 2**31 - 1
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SelectionPlan:
    """pairs: comparisons in all, as far as there are candidates; measuring, selected: shares of
    them, the rest is training; measuring_votes: of each measuring pair; most_per_prompt: of the
    selected. Errors: `DomainError` (`bad_plan`) naming the field."""

    pairs: int
    measuring: float = 0.2
    measuring_votes: int = 3
    selected: float = 0.0
    strategy: str = D_OPTIMAL
    most_per_prompt: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        _whole("pairs", self.pairs, 1, MOST_PAIRS)
        _share("measuring", self.measuring, 1.0)
        _whole("measuring_votes", self.measuring_votes, LEAST_VOTES, MOST_VOTES)
        _share("selected", self.selected, MOST_SELECTED)
        if self.measuring + self.selected > 1:
            raise _bad("selected", "Measuring and selected pairs are at most all pairs together.")
        if self.strategy not in STRATEGIES:
            raise _bad("strategy", f"One of {', '.join(STRATEGIES)}.")
        _whole("most_per_prompt", self.most_per_prompt, 1, MOST_PER_PROMPT)
        _whole("seed", self.seed, 0, LARGEST_SEED)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "SelectionPlan":
        known = {one.name for one in fields(cls)}
        if unknown := sorted(set(given) - known):
            raise _bad(unknown[0], f"No field of a plan; these are: {', '.join(sorted(known))}.")
        if "pairs" not in given:
            raise _bad("pairs", "How many pairs, in all?")
        return cls(**given)

    def to_json(self) -> dict[str, Any]:
        """Equal plans have equal JSON, however their shares were written."""
        shares = {"measuring": float(self.measuring), "selected": float(self.selected)}
        return asdict(self) | shares

    def sizes(self, candidates: int) -> tuple[int, int, int]:
        """(measuring, training, selected) pairs of so many candidates: measuring to the nearest,
        selected rounded down, so never more than their share."""
        n = min(self.pairs, candidates)
        measuring = math.floor(self.measuring * n + 0.5)
        selected = min(math.floor(self.selected * n), n - measuring)
        return measuring, n - measuring - selected, selected


def slices_draw(n: int, *, measuring: int, training: int, seed: list[int]) -> tuple[Ints, Ints]:
    """Places of n candidates, without replacement: each is in the one with probability
    measuring ÷ n, in the other with training ÷ n, and never in both."""
    order = np.random.default_rng(seed).permutation(n)
    return order[:measuring], order[measuring : measuring + training]


def _whole(name: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _bad(name, f"A whole number from {least} to {most:,}.")


def _share(name: str, value: Any, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise _bad(name, f"A share from 0 to {most:g}.")


def _bad(name: str, message: str) -> DomainError:
    return DomainError(message, code="bad_plan", field=name)
