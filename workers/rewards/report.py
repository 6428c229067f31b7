"""How good a reward model is on pairs that people decided."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from measures.accuracy import pair_credit
from measures.calibration import calibration, randomise_orientation
from measures.estimate import Interval
from measures.intervals import dyadic_interval, mean_interval
from workers.data.snapshot import Preference


@dataclass(frozen=True, slots=True)
class PairReport:
    """One split. Accuracies count a tie as ½; lengths are in characters of the whole answers, so
    that the rule sees what a person saw even where the model's text was cut."""

    rows: int
    accuracy: Interval
    length_only: Interval  # "the longer answer wins", on the same rows
    difference: Interval  # accuracy − length_only, paired
    margin_mean: float  # score of chosen − score of rejected
    longer_preferred: float  # share of pairs in which the model scores the longer answer higher
    ece: float | None  # expected calibration error of σ(margin), 0–1
    truncated_share: float  # of all answers, 0–1

    def plain(self) -> dict[str, object]:
        return asdict(self)


def pair_report(
    rows: Sequence[Preference],
    margins: Sequence[float],
    *,
    chosen_lengths: Sequence[int],
    rejected_lengths: Sequence[int],
    truncated: int,
    replicates: int,
    seed: int,
) -> PairReport:
    """Accuracy with its interval next to the length-only rule on the same rows."""
    delta = np.asarray(margins, dtype=float)
    length_delta = np.subtract(chosen_lengths, rejected_lengths).astype(float)
    credit, by_length = pair_credit(delta), pair_credit(length_delta)
    calibrated = calibration(*randomise_orientation(delta, seed=seed))

    def interval(values: np.ndarray) -> Interval:
        return _interval(values, rows, replicates=replicates, seed=seed)

    return PairReport(
        rows=len(rows),
        accuracy=_share(interval(credit)),
        length_only=_share(interval(by_length)),
        difference=interval(credit - by_length),
        margin_mean=float(delta.mean()) if len(rows) else 0.0,
        longer_preferred=_longer_preferred(delta, length_delta),
        ece=calibrated.ece,
        truncated_share=truncated / (2 * len(rows)) if len(rows) else 0.0,
    )


def _interval(
    values: np.ndarray, rows: Sequence[Preference], *, replicates: int, seed: int
) -> Interval:
    """Resamples what rows share: both responses where responses recur, else their cluster."""
    if rows and all(row.units is not None for row in rows):
        first, second = zip(*(row.units for row in rows if row.units), strict=True)
        return dyadic_interval(values, first, second)
    clusters = [row.cluster for row in rows]
    return mean_interval(values, clusters=clusters, replicates=replicates, seed=seed)


def _share(found: Interval) -> Interval:
    """Bounds by a normal approximation may leave 0–1 where nearly all or nearly none are right."""
    if found.low is None or found.high is None:
        return found
    return replace(found, low=max(0.0, found.low), high=min(1.0, found.high))


def _longer_preferred(delta: np.ndarray, length_delta: np.ndarray) -> float:
    differ = length_delta != 0
    if not differ.any():
        return float("nan")
    return float(pair_credit(delta[differ] * np.sign(length_delta[differ])).mean())
