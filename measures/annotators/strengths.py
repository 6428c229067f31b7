"""Graded votes put on one scale: how much better, in units of each annotator's own spread."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

LEAST_GRADED = 10


@dataclass(frozen=True, slots=True)
class NormalisedStrengths:
    """z: (n,) signed strengths in each annotator's own unit; NaN for people in `unknown`.
    units: {annotator: root mean square of their strengths}; unknown: who cast fewer than
    `LEAST_GRADED` graded votes, or chose no side in any of them, so that no unit is known."""

    z: Floats
    units: dict[int, float]
    unknown: tuple[int, ...]


def normalise_strengths(strength: ArrayLike, annotator: ArrayLike) -> NormalisedStrengths:
    """z = strength ÷ √mean(strength²) over the annotator's graded votes.

    strength: (n,) −2 (B much better) … 0 (tie) … 2 (A much better), finite; annotator: (n,) whole
    numbers. A rater who uses twice the scale comes out like the others. Source: the z-score of
    Graham et al. (2013), as in `measures.ratings.normalise_by_rater`. Departure: the spread is
    taken around 0 and not around the rater's mean. Which answer is called A means nothing, so the
    mean is noise, and taking it off would turn weak votes for A into votes for B. Somebody who
    always uses one strength keeps it as ±1: it still says which answer, and no longer how much.
    """
    values = np.asarray(strength, dtype=np.float64)
    who = np.asarray(annotator, dtype=np.int64)
    if values.ndim != 1 or values.shape != who.shape:
        raise ValueError(f"strengths {values.shape} and annotators {who.shape} must match")
    if not np.isfinite(values).all():
        raise ValueError("a strength is not a finite number")
    people, index = np.unique(who, return_inverse=True)
    n = np.bincount(index, minlength=len(people))
    units = np.sqrt(np.bincount(index, values**2, len(people)) / np.maximum(n, 1))
    known = (n >= LEAST_GRADED) & (units > 0)
    z = np.full(values.shape, np.nan)
    keep = known[index]
    z[keep] = values[keep] / units[index][keep]
    return NormalisedStrengths(
        z=z,
        units={int(k): float(u) for k, u, ok in zip(people, units, known, strict=True) if ok},
        unknown=tuple(int(k) for k in people[~known]),
    )
