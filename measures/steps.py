"""How well a model of single steps tells right from wrong ones, and where the first error lies.

A trajectory is a list of steps with the probability that each is right, and people's label of it:
True, False, or None where nobody marked it. Steps of one trajectory hang together, so intervals are
over trajectories.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from measures.bootstrap import REPLICATES, bootstrap_bounds
from measures.calibration import calibration
from measures.estimate import Interval, reason
from measures.intervals import mean_interval

Labels = Sequence[bool | None]


@dataclass(frozen=True, slots=True)
class StepReport:
    """`accuracy` is over marked steps and `majority` what always saying the commoner label gives;
    `located` is the share of wrong trajectories whose first error is found exactly, `passed` of
    right ones in which none is found, `f1` the harmonic mean of the two. `ece` is of all marked
    steps, None with too few; `explained` the share of the labels' entropy that is explained: 0 for
    who knows their frequencies alone, under 0 for who knows less."""

    steps: int
    trajectories: int
    accuracy: Interval
    majority: float | None
    located: Interval
    passed: Interval
    f1: Interval
    ece: float | None
    explained: float | None


def first_error(labels: Labels) -> int | None:
    """Place of the first wrong step, −1 where all are right; None where a step before it, or any
    of a trajectory without an error, was not marked."""
    for place, label in enumerate(labels):
        if label is None:
            return None
        if not label:
            return place
    return -1


def predicted_error(right: Sequence[float], *, threshold: float = 0.5) -> int:
    """Place of the first step that is held to be wrong, −1 where none is."""
    return next((place for place, p in enumerate(right) if p < threshold), -1)


def step_report(
    logits: Sequence[Sequence[float]],
    labels: Sequence[Labels],
    *,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> StepReport:
    """logits: log-odds that a step is right, by trajectory; labels as long.

    The first error and its F1 are those of ProcessBench (Zheng et al. 2024, section 3.1), on
    trajectories whose first error is known. Bounds resample whole trajectories.
    """
    marked = [
        (z, bool(y), number)
        for number, (row, told) in enumerate(zip(logits, labels, strict=True))
        for z, y in zip(row, told, strict=True)
        if y is not None
    ]
    z = np.array([one[0] for one in marked], dtype=np.float64)
    y = np.array([one[1] for one in marked], dtype=np.float64)
    accuracy = mean_interval(
        ((z > 0) == (y > 0)).astype(np.float64),
        clusters=np.array([one[2] for one in marked]),
        replicates=replicates,
        seed=seed,
    )
    known = [
        (wanted, predicted_error([float(one > 0) for one in row]))
        for row, told in zip(logits, labels, strict=True)
        if (wanted := first_error(told)) is not None
    ]
    wrong = [float(found == wanted) for wanted, found in known if wanted >= 0]
    right = [float(found == wanted) for wanted, found in known if wanted < 0]
    located = mean_interval(np.array(wrong), replicates=replicates, seed=seed)
    passed = mean_interval(np.array(right), replicates=replicates, seed=seed)
    share = float(y.mean()) if len(y) else None
    return StepReport(
        steps=len(y),
        trajectories=len(logits),
        accuracy=accuracy,
        majority=None if share is None else max(share, 1 - share),
        located=located,
        passed=passed,
        f1=_f1(known, located, passed, replicates=replicates, seed=seed),
        ece=calibration(z, y).ece if len(y) else None,
        explained=_explained(z, y),
    )


def _explained(z: NDArray[np.float64], y: NDArray[np.float64]) -> float | None:
    """1 − log-loss over the labels' entropy; None where all labels are alike."""
    if not len(y) or y.min() == y.max():
        return None
    share = float(y.mean())
    entropy = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    loss = float(np.mean(np.logaddexp(0.0, z) - y * z))
    return 1.0 - loss / float(entropy)


def _f1(
    known: Sequence[tuple[int, int]],
    located: Interval,
    passed: Interval,
    *,
    replicates: int,
    seed: int,
) -> Interval:
    if located.value is None or passed.value is None:
        why = reason("no_rows")
        return Interval(value=None, low=None, high=None, n=len(known), undefined=why)
    rows = np.array(
        [
            [wanted >= 0, wanted >= 0 and found == wanted, wanted < 0, wanted < 0 and found < 0]
            for wanted, found in known
        ],
        dtype=np.float64,
    )

    def formula(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            one, other = sums[:, 1] / sums[:, 0], sums[:, 3] / sums[:, 2]
            both = 2 * one * other / (one + other)
        return np.where((one == 0) & (other == 0), 0.0, both)

    bounds = bootstrap_bounds(
        rows,
        np.ones(len(rows), dtype=np.int64),
        formula,
        unit="clusters",
        replicates=replicates,
        seed=seed,
    )
    value = float(formula(rows.sum(0, keepdims=True))[0])
    return Interval(
        value=value,
        low=bounds.low,
        high=bounds.high,
        n=len(known),
        n_clusters=len(known),
        no_interval=bounds.reason,
    )
