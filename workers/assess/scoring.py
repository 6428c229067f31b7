"""Scores of many texts, asked for in chunks so that a run can tell how far it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from workers.contract.events import (
    Fault,
    RecipeError,
)
from workers.data.snapshot import Messages
from workers.rewards.source import RewardSource

Floats = NDArray[np.float64]

CHUNK = 512  # texts between two looks at the clock


@dataclass(frozen=True, slots=True)
class Scored:
    """values: (n,) raw scores; members: {name: (n,)} of an ensemble, empty for a single model;
    disagreement: (n,) where there are members; truncated: texts whose end was not read."""

    values: Floats
    members: dict[str, Floats] = field(default_factory=dict)
    disagreement: Floats | None = None
    truncated: int = 0

    def part(self, start: int, end: int) -> "Scored":
        cut = slice(start, end)
        return Scored(
            self.values[cut],
            {name: of[cut] for name, of in self.members.items()},
            None if self.disagreement is None else self.disagreement[cut],
        )


class Scorer:
    """A source of rewards for arrays. `scored` hears how many texts were read since it last did.

    Raises `RecipeError` (non_finite_scores) for a model that answers with NaN or infinities: no
    line could be trusted then.
    """

    def __init__(self, source: RewardSource, *, scored: Callable[[int], None] = lambda n: None):
        self._source = source
        self._scored = scored

    def __call__(self, prompts: Sequence[Messages], texts: Sequence[str]) -> Scored:
        if len(prompts) != len(texts):
            raise ValueError(f"one prompt per text: {len(prompts)} for {len(texts)}")
        # Texts of one length together, so that a chunk is not padded to its longest.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        values = np.zeros(len(texts))
        members: dict[str, Floats] = {}
        disagreement: Floats | None = None
        truncated = 0
        for start in range(0, len(order), CHUNK):
            rows = order[start : start + CHUNK]
            got = self._source.score([prompts[i] for i in rows], [texts[i] for i in rows])
            values[rows] = got.values
            truncated += got.truncated
            apart = getattr(got, "disagreement", None)
            if apart is not None:
                disagreement = np.zeros(len(texts)) if disagreement is None else disagreement
                disagreement[rows] = apart
                for name, part in got.parts.items():
                    members.setdefault(name, np.zeros(len(texts)))[rows] = part
            self._scored(len(rows))
        bad = int((~np.isfinite(values)).sum())
        if bad:
            raise RecipeError(
                "non_finite_scores",
                Fault.DATA,
                f"the reward model answered {bad} of {len(values)} texts with NaN or infinity",
            )
        return Scored(values, members, disagreement, truncated)
