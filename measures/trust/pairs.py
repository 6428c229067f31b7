"""Preference pairs as the lines of this package read them, with a model's scores beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from measures.accuracy import pair_credit
from measures.bootstrap import REPLICATES
from measures.estimate import Interval
from measures.intervals import dyadic_interval, mean_interval

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """n pairs of one split. `chosen` is what people preferred; a tie (confidence ½ of a soft label)
    has no preferred side, and its order says nothing.

    chosen_scores, rejected_scores: (n,) raw scores; confidence: (n,) P(chosen is preferred), 0.5–1;
    clusters: (n,) what rows share; units: (n, 2) keys of both answers where answers recur, else
    None; groups: topic or debate; annotators: pseudonyms, "" where a row is no single person's;
    sources: (chosen's, rejected's) origin, "" where unknown; times: Unix seconds, NaN if unknown;
    order: 1 where the chosen answer was stored first, −1 where the rejected, 0 where unknown.
    """

    split: str
    chosen_scores: Floats
    rejected_scores: Floats
    chosen_texts: Sequence[str]
    rejected_texts: Sequence[str]
    prompts: Sequence[str]  # text of the last message of the prompt
    confidence: Floats
    clusters: Sequence[str]
    units: Sequence[tuple[str, str]] | None = None
    groups: Sequence[str] = ()
    annotators: Sequence[str] = ()
    sources: Sequence[tuple[str, str]] = ()
    times: Floats = field(default_factory=lambda: np.zeros(0))
    order: Floats = field(default_factory=lambda: np.zeros(0))
    members: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)  # of an ensemble
    replicates: int = REPLICATES  # resamples behind each interval

    @property
    def margins(self) -> Floats:
        """(n,) chosen − rejected."""
        return np.asarray(self.chosen_scores, float) - np.asarray(self.rejected_scores, float)

    @property
    def lengths(self) -> tuple[Floats, Floats]:
        """Characters of chosen and rejected answers, (n,) each: the unit all lines use."""
        return (
            np.array([len(text) for text in self.chosen_texts], dtype=float),
            np.array([len(text) for text in self.rejected_texts], dtype=float),
        )

    @property
    def decided(self) -> NDArray[np.bool_]:
        """(n,) rows with a preferred side; ties of soft labels have none."""
        return np.asarray(self.confidence, float) != 0.5

    def __len__(self) -> int:
        return len(self.chosen_texts)

    def credit(self) -> Floats:
        """(n,) 1 right, ½ tie in the scores, 0 wrong."""
        return pair_credit(self.margins)

    def interval(
        self, values: Floats, *, where: NDArray[np.bool_] | None = None, seed: int = 0
    ) -> Interval:
        """Mean of (n,) values over all rows or those `where` true, over what rows share: both
        answers where answers recur (dyadic), else clusters (bootstrap)."""
        kept = np.ones(len(self), dtype=bool) if where is None else np.asarray(where, dtype=bool)
        rows = np.asarray(values, dtype=float)[kept]
        if self.units is not None and len(self.units):
            units = np.asarray(self.units, dtype=object).reshape(-1, 2)[kept]
            return dyadic_interval(rows, units[:, 0].astype(str), units[:, 1].astype(str))
        return mean_interval(
            rows,
            clusters=np.asarray(self.clusters)[kept],
            replicates=self.replicates,
            seed=seed,
        )
