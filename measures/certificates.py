"""Labels by a judge under a certified error, and the audit that watches them afterwards.

A judge answers with a confidence; labels are taken where that is high enough. From which threshold
on is the error rate of the labels at most ε? `certify` answers on pairs with known right answers,
so that the claim is false with probability δ at most, and `audit` watches a random stream of the
labels taken, as often as one likes.

    n pairs of the certification split; m labels of the audit; ε error; δ failure
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr

from measures.estimate import reason
from measures.head_to_head import exact_interval, stake_path
from measures.intervals import upper_bound
from measures.looks import look_alpha

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Certificate:
    """From which confidence on labels may be taken.

    threshold: labels are taken at this confidence or more, None where nothing is certified;
    n: pairs of the split; n_labelled, errors: of them at the threshold; coverage: n_labelled / n;
    bound: one-sided upper bound of the error at 1 − level, at most ε where there is a threshold.
    Without a threshold n_labelled, errors and bound are those of the first test that came nearest,
    and coverage is 0.

    level: of each test, the δ of this look over the number of sequences; least: the fewest labels
    that could pass, without an error; starts: the number of sequences.
    """

    threshold: float | None
    n: int
    n_labelled: int
    errors: int
    coverage: float
    bound: float | None
    level: float
    least: int
    starts: int
    undefined: str | None = None


@dataclass(frozen=True, slots=True)
class AuditState:
    """A stream of audited labels. n: audited; wrong: their summed error; low, high: where the error
    rate lies, at every moment at once; alarm_at: the first number of labels after which the
    lower end was above ε, None where it never was. An alarm stays, whatever comes later."""

    n: int
    wrong: float
    low: float
    high: float
    alarm_at: int | None


@dataclass(frozen=True, slots=True)
class Spent:
    """Of a failure δ: level at this look, spent up to and with it, and left for all later ones."""

    level: float
    spent: float
    left: float


def certify(
    confidence: ArrayLike,
    wrong: ArrayLike,
    *,
    error: float,
    failure: float,
    look: int = 1,
    grid: ArrayLike | None = None,
) -> Certificate:
    """The lowest threshold whose labels have an error rate of at most `error`, with certainty.

    confidence: (n,) of the judge, 0 where it gave no label (such a pair is never labelled);
    wrong: (n,) whether its label is wrong; error: ε; failure: δ over all looks; look: which one
    this is, from 1 (`spend`); grid: thresholds fixed beforehand, by default every confidence seen.

    Learn then Test with fixed sequences: thresholds t_1 > t_2 > … are tested in this order, each
    against the hypothesis that its error rate is above ε, with p_j = P(Bin(n_j, ε) ≤ errors_j).
    A sequence ends with the first threshold that is not rejected. The first sequence begins where
    no error would be enough, (1 − ε)^n_j ≤ level, others where there are 2, 4, 8 … times as many
    labels: early on a single error ends a sequence, and of a judge that errs evenly hardly
    anything would be certified. Each of J sequences has the level δ_k/J, δ_k = 6δ/(π²k²), and the
    lowest threshold that any rejected is the result. Where they begin and how many there are reads
    confidences only, no answers. Equal confidences are taken together. Source: Angelopoulos,
    Bates, Candès, Jordan & Lei, "Learn then Test", Annals of Applied Statistics 19 (2025), its
    fixed-sequence test with several starts.

    Assumes pairs drawn independently from those that will be labelled, which took no part in
    writing the judge's prompt, choosing it or calibrating it. Several pairs of one prompt must be
    thinned to one. The guarantee is exact for a `grid` fixed beforehand; thresholds at the
    confidences seen depend on the sample by its confidences alone (of the pairs above a threshold
    the errors are still independent). Where the mix of pairs shifts later it says nothing, and the
    audit must notice.
    """
    sure, is_wrong = _checked(confidence, wrong)
    if not 0 < error < 1 or not 0 < failure < 1:
        raise ValueError(f"error and failure must lie between 0 and 1: {error}, {failure}")
    thresholds, labelled, errors = _counts(sure, is_wrong, grid)
    n = len(sure)
    starts, level = _starts(labelled, error, look_alpha(look, failure))
    least = _least(error, level)
    if not len(starts):
        most = int(labelled[-1]) if len(labelled) else 0
        why = reason("few_to_certify", n=most, least=least)
        return Certificate(None, n, most, 0, 0.0, None, level, least, 0, why)
    p = bdtr(errors, labelled, error)
    failed = np.append(np.flatnonzero(p > level), len(p))
    ends = failed[np.searchsorted(failed, starts)]  # the first that is not rejected from each start
    passed = ends > starts
    at = int(ends[passed].max()) - 1 if passed.any() else int(starts[np.argmin(p[starts])])
    taken, wrongs = int(labelled[at]), int(errors[at])
    bound = upper_bound(wrongs, taken, level=1 - level).high
    if not passed.any():
        why = reason("error_not_certified", errors=wrongs, n=taken)
        return Certificate(None, n, taken, wrongs, 0.0, bound, level, least, len(starts), why)
    return Certificate(
        float(thresholds[at]), n, taken, wrongs, taken / n, bound, level, least, len(starts)
    )


def audit(wrong: ArrayLike, *, error: float, failure: float) -> AuditState:
    """Whether labels taken under a certificate have a higher error rate than it allows.

    wrong: (m,) error of each audited label in [0, 1], in the order in which they were audited (½
    where the person said tie); error: ε; failure: δ, the probability of an alarm, ever, while the
    error rate is ε or less.

    The interval is `measures.head_to_head.exact_interval` at α = δ. That is two-sided: its stake
    against the true rate ever reaches 1/δ with probability δ at most, on both sides together. So
    the lower end alone keeps δ. At α = 2δ it need not: nothing says that the sides share α evenly.
    The lower end is above ε where the stake against ε has reached 1/δ and the mean is above ε.
    That is checked after every label: a later interval may hold ε again, and the alarm stays.

    Assumes labels drawn at random for the audit, independently of what the judge answered. A
    rise of the error is seen through the mean over the whole stream: start a new stream with every
    new version of the judge, or a long good past delays the alarm.
    """
    rows = np.asarray(wrong, dtype=np.float64)
    if rows.ndim != 1 or (rows.size and not (rows.min() >= 0 and rows.max() <= 1)):
        raise ValueError("wrong must be a vector of numbers between 0 and 1")
    if not 0 < error < 1 or not 0 < failure < 1:
        raise ValueError(f"error and failure must lie between 0 and 1: {error}, {failure}")
    if not len(rows):
        return AuditState(0, 0.0, 0.0, 1.0, None)
    means = np.cumsum(rows) / np.arange(1, len(rows) + 1)
    above = (stake_path(rows, error) >= -math.log(failure)) & (means > error)
    low, high = exact_interval(rows, failure)
    alarm = int(np.argmax(above)) + 1 if above.any() else None
    return AuditState(len(rows), float(rows.sum()), low, high, alarm)


def spend(look: int, failure: float) -> Spent:
    """What the look-th certification on a split may spend of δ, and what is left.

    level: `measures.looks.look_alpha`; spent: its sum over looks 1 … look; left: δ − spent, never
    0. A look is counted when the answers of the split are read, whether or not a certificate came
    of it. `ValueError` under 1.
    """
    levels = [look_alpha(one, failure) for one in range(1, max(look, 1) + 1)]
    spent = math.fsum(levels)
    return Spent(look_alpha(look, failure), spent, failure - spent)


def _checked(confidence: ArrayLike, wrong: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
    sure, is_wrong = np.asarray(confidence, dtype=np.float64), np.asarray(wrong, dtype=bool)
    if sure.ndim != 1 or sure.shape != is_wrong.shape:
        raise ValueError("confidence and wrong must be equally long vectors")
    if sure.size and not (sure.min() >= 0 and sure.max() <= 1):
        raise ValueError("confidence must lie between 0 and 1")
    return sure, is_wrong


def _least(error: float, level: float) -> int:
    """The fewest labels with (1 − ε)^n ≤ level."""
    return math.ceil(math.log(level) / math.log1p(-error))


def _starts(labelled: Ints, error: float, level: float) -> tuple[Ints, float]:
    """Places of the thresholds at which sequences begin, and the level of each sequence.

    labelled: (thresholds,) ascending. Empty where not even the last threshold could pass.
    """
    most = int(labelled[-1]) if len(labelled) else 0
    for number in range(max(most, 1).bit_length(), 0, -1):
        sizes = _least(error, level / number) * 2 ** np.arange(number)
        places = np.unique(np.searchsorted(labelled, sizes))
        if len(places) == number and places[-1] < len(labelled):
            return places.astype(np.int64), level / number
    return np.zeros(0, dtype=np.int64), level


def _counts(
    sure: Floats, is_wrong: NDArray[np.bool_], grid: ArrayLike | None
) -> tuple[Floats, Ints, Ints]:
    """Thresholds above 0, highest first, with the labels and the errors at each."""
    seen = sure if grid is None else np.asarray(grid, dtype=np.float64)
    thresholds = np.unique(seen[seen > 0])[::-1]
    order = np.argsort(-sure, kind="stable")
    labelled = np.searchsorted(-sure[order], -thresholds, side="right")
    summed = np.concatenate([[0], np.cumsum(is_wrong[order])])
    return thresholds, labelled.astype(np.int64), summed[labelled].astype(np.int64)
