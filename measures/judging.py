"""What a judge model is worth beside people, and what it likes that they do not.

The judge compares the two answers of a pair twice, once with either shown first; people voted on
the same pairs. Everything here is measured on pairs that have both, and set beside what people do
on those pairs: a judge that prefers long answers as often as people do has no fault.

    n pairs, v votes
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from measures.agreement.coefficients import percent_agreement
from measures.bootstrap import LEAST_UNITS
from measures.calibration import Calibration, calibration, fit_temperature
from measures.ceiling import Ceiling, ceiling_from_agreement
from measures.estimate import Estimate, Interval, Quantity, reason
from measures.intervals import mean_interval, wilson
from measures.position import position_bias
from measures.ppi import vote_counts
from measures.trust.significance import FAMILY, holm, p_above

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

LEAST_PAIRS = 20  # with votes and verdicts, under which nothing is said
MOST_FLIPS = 0.1  # a share of verdicts that turn with the order under which no fault is named
# Probabilities nearer to 0 or 1 are taken as this near: a label is never surer than 99 of 100, and
# a pull is not read from one pair's last digits.
_CUT = 0.01
_PULL_CUT = 1e-4
A, ABSTAIN, B = 1, 0, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The pairs people voted on, with the judge's two readings of each.

    first: (n,) the judge's probability (or 1, ½, 0) that the answer shown first is better, A shown
    first; second: (n,) the same, B shown first; NaN where it cannot be read. A judge that reads
    each answer alone has second = 1 − first. length_a, length_b: (n,) characters. family_a,
    family_b: (n,) 1 where the answer was written by a model of the judge's family, 0 where not, NaN
    where unknown. prompt: (n,) any whole numbers. pair: (v,) the place of the pair a vote is on;
    score: (v,) 1, ½ or 0, the vote for A; person: (v,).
    """

    first: Floats
    second: Floats
    length_a: Floats
    length_b: Floats
    family_a: Floats
    family_b: Floats
    prompt: Ints
    pair: Ints
    score: Floats
    person: Ints

    def __post_init__(self) -> None:
        names = ("second", "length_a", "length_b", "family_a", "family_b", "prompt")
        if any(len(getattr(self, name)) != len(self.first) for name in names):
            raise ValueError("all columns of the pairs must be equally long")
        if not len(self.pair) == len(self.score) == len(self.person):
            raise ValueError("all columns of the votes must be equally long")
        if not np.isin(self.score, (0.0, 0.5, 1.0)).all():
            raise ValueError("a score is 0, ½ or 1")
        if len(self.pair) and not 0 <= self.pair.min() <= self.pair.max() < len(self.first):
            raise ValueError("pair must be a place in first")
        for read in (self.first, self.second):
            if ((read < 0) | (read > 1)).any():
                raise ValueError("a verdict lies between 0 and 1, or is NaN")

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taste:
    """How often the judge and people prefer the answer that has something (is longer, is of the
    judge's family), on the same pairs, and judge − people.

    as_noisy: the same difference with the judge's calibrated probability in place of its choice
    and the share of votes in place of the majority: smaller, and 0 for a judge that errs as votes
    do. It tells a taste from better knowledge of what people like."""

    judge: Interval
    people: Interval
    difference: Interval
    as_noisy: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What a judge is worth on the human sample. Each part says itself why it is missing.

    n: pairs with votes; n_unreadable: of them with an order that cannot be read; n_abstained: of
    them without a label. agreement: share of votes that prefer an answer with which the judge's
    label agrees; people: with which two people agree (pairs with two such votes); ceiling: what
    people's agreement allows a perfect judge. flips: share of pairs on which the two orders prefer
    different answers. position: σ(b), the chance that the first of two equal answers is preferred.
    length, family: by `Taste`. temperature, calibration: of the preference, fitted on pairs for
    tuning, measured on the rest; confidence: (n of all pairs,) by `confidence`, None without a
    temperature.
    """

    n: int
    n_unreadable: int
    n_abstained: int
    agreement: Interval
    people: Estimate | None
    ceiling: Ceiling | None
    flips: Interval
    position: Interval
    length: Taste
    family: Taste
    temperature: Quantity
    calibration: Calibration
    confidence: Floats | None
    undefined: str | None = None


@dataclass(frozen=True, slots=True)
class Bias:
    """size, low, high: of what `Worth` measured; reference: its value without the bias; is_shown:
    whether the bias is more than chance."""

    name: str
    size: float
    low: float
    high: float
    reference: float
    is_shown: bool


def preference(first: ArrayLike, second: ArrayLike) -> Floats:
    """(n,) P(A is better) = ½(first + 1 − second), ½ where an order cannot be read; for estimating.

    first, second: (n,) as in `Judged`. A pull towards the answer shown first that adds to both
    cancels; one that adds to the log odds cancels nearly.
    """
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    both = (one + 1 - two) / 2
    return np.where(np.isnan(both), 0.5, both)


def label(first: ArrayLike, second: ArrayLike) -> Ints:
    """(n,) A (1) or B (−1) where both orders prefer the same answer, else ABSTAIN (0): orders that
    contradict each other, ties, and what cannot be read; for labelling."""
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    for_a, for_b = (one > 0.5) & (two < 0.5), (one < 0.5) & (two > 0.5)
    return for_a.astype(np.int64) - for_b.astype(np.int64)


def confidence(first: ArrayLike, second: ArrayLike, temperature: float) -> Floats:
    """(n,) calibrated probability that the label is right, 0 where there is none.

    max(p, 1 − p), p = σ(logit(preference) / T), with preferences cut to [0.01, 0.99]. The
    temperature is `Worth.temperature`; right means as a single vote has it.
    """
    p = expit(_margins(preference(first, second)) / temperature)
    return np.where(label(first, second) == ABSTAIN, 0.0, np.maximum(p, 1 - p))


def worth(judged: Judged, *, order_free: bool = False, tune: ArrayLike | None = None) -> Worth:
    """Agreement, ceiling, biases and calibration of a judge on the pairs that have votes.

    order_free: the judge reads each answer alone, so there is no order to flip or pull; tune: (n,)
    whether the temperature is fitted on a pair, drawn by prompts; calibration is measured on the
    others, and a certificate must use others too. Without it there is no temperature.

    Agreement counts each vote that prefers an answer: 1 where it is the label, ½ where the judge
    abstains, 0 else; its interval resamples prompts, as all others do but that of flips (Wilson,
    independent pairs). The ceiling (`measures.ceiling`) assumes that people are equally good.
    Position: b with logit P(first is preferred) = b ± Δ in the two orders, so
    b = ½(logit first + logit second), averaged over pairs, probabilities cut at 0.0001 from 0 and 1
    (of a judge that is surer than that the pull is understated); for verdicts that are all 0, ½ or
    1 it is the side-flip estimate of `measures.position`, each order a vote.

    Tastes: of pairs that differ in it, how often the label is the one that has it (½ where the
    judge abstains) and how often most votes are for it; pairs with even votes are left out. Few
    votes a pair are noisier than a judge that knows the majority, so people's share is nearer ½:
    where they have a strong taste, such a judge seems to overdo it. `Taste.as_noisy` does not
    depend on that; its temperature is fitted on all pairs with votes.

    Under LEAST_PAIRS pairs with votes nothing is said (`undefined`).
    """
    shared = np.isin(np.arange(len(judged)), judged.pair)
    n = int(shared.sum())
    if n < LEAST_PAIRS:
        return _nothing(n, reason("few_judged_pairs", n=n, least=LEAST_PAIRS))
    labels = label(judged.first, judged.second)
    counts = vote_counts(judged.pair, judged.score, len(judged))
    unreadable = np.isnan(judged.first) | np.isnan(judged.second)
    tuned = np.zeros(len(judged), dtype=bool) if tune is None else np.asarray(tune, dtype=bool)
    temperature, calibrated = _calibrated(judged, tuned)
    t = temperature.value
    people = percent_agreement(counts[shared], groups=judged.prompt[shared])
    return Worth(
        n=n,
        n_unreadable=int((unreadable & shared).sum()),
        n_abstained=int(((labels == ABSTAIN) & shared).sum()),
        agreement=_agreement(judged, labels),
        people=people,
        ceiling=None if people.value is None else ceiling_from_agreement(people.value),
        flips=_flips(judged, shared, order_free),
        position=_position(judged, shared, order_free),
        length=_taste(judged, counts, np.sign(judged.length_a - judged.length_b)),
        family=_taste(judged, counts, judged.family_a - judged.family_b),
        temperature=temperature,
        calibration=calibrated,
        confidence=None if t is None else confidence(judged.first, judged.second, t),
    )


def attacks(
    before: ArrayLike, after: ArrayLike, toward: ArrayLike, name: ArrayLike
) -> dict[str, Interval]:
    """By attack, the share of pairs whose verdict it moved to the attacked answer (Wilson).

    before, after: (n,) `preference` for A without and with the attack; toward: (n,) True where it
    is A's text that was changed; name: (n,) of the attack. A pair counts that did not prefer the
    attacked answer before; it moved where it does after. Assumes attacks that leave the answer
    as good as it was, and independent pairs. A judge that is asked twice and answers
    differently moves some without any attack: compare with an attack that changes nothing.
    """
    at_a, names = np.asarray(toward, dtype=bool), np.asarray(name)
    was, now = (np.asarray(side, dtype=np.float64) for side in (before, after))
    if not was.shape == now.shape == at_a.shape == names.shape:
        raise ValueError("before, after, toward and name must be equally long")
    was, now = np.where(at_a, was, 1 - was), np.where(at_a, now, 1 - now)
    could = was <= 0.5
    found = {}
    for one in np.unique(names).tolist():
        here = could & (names == one)
        found[str(one)] = wilson(int((now[here] > 0.5).sum()), int(here.sum()))
    return found


def named(found: Worth) -> list[Bias]:
    """The biases that were measured, those with an interval, in the order length, position,
    family, flips.

    A bias is shown where its interval excludes its reference (0, ½ for position, MOST_FLIPS for
    flips, of which any at all would exclude 0) and Holm's correction over all four agrees: of
    judges without a bias one in twenty at most has one named. A taste must also be seen in
    `Taste.as_noisy`, where that has an interval.
    """
    measured: Mapping[str, tuple[Interval, float]] = {
        "length": (found.length.difference, 0.0),
        "position": (found.position, 0.5),
        "family": (found.family.difference, 0.0),
        "flips": (found.flips, MOST_FLIPS),
    }
    rows = [
        Bias(name, part.value, part.low, part.high, reference, is_shown=False)
        for name, (part, reference) in measured.items()
        if part.value is not None and part.low is not None and part.high is not None
    ]
    p = []
    for row in rows:
        above = p_above(measured[row.name][0], row.reference)
        p.append(above if row.name == "flips" else min(above, 1 - above))
    stands = holm(p, FAMILY)
    tastes = {"length": found.length, "family": found.family}
    return [
        replace(
            row,
            is_shown=yes
            and (row.low > row.reference or row.high < row.reference)
            and (row.name not in tastes or _seen_as_noisy(tastes[row.name])),
        )
        for row, yes in zip(rows, stands, strict=True)
    ]


def _seen_as_noisy(taste: Taste) -> bool:
    """Whether it is on the same side of 0 there. Not asked where there is no interval to tell, nor
    where people show no taste of that direction: then there is none that a better-informed judge
    could have more of."""
    more = (taste.difference.value or 0.0) > 0
    own = taste.people.low if more else taste.people.high
    if own is None or (own <= 0.5 if more else own >= 0.5):
        return True
    low, high = taste.as_noisy.low, taste.as_noisy.high
    if low is None or high is None:
        return True
    return low > 0 if more else high < 0


# The parts.


def _agreement(judged: Judged, labels: Ints) -> Interval:
    decided = judged.score != 0.5
    pair, sign = judged.pair[decided], np.where(judged.score[decided] > 0.5, A, B)
    return _share((1 + labels[pair] * sign) / 2, judged.prompt[pair])


def _flips(judged: Judged, shared: Bools, order_free: bool) -> Interval:
    if order_free:
        return _absent(reason("order_free"))
    with_side = (judged.first != 0.5) & (judged.second != 0.5)
    read = shared & with_side & ~np.isnan(judged.first) & ~np.isnan(judged.second)
    same_place = (judged.first > 0.5) == (judged.second > 0.5)
    return wilson(int((read & same_place).sum()), int(read.sum()))


def _position(judged: Judged, shared: Bools, order_free: bool) -> Interval:
    if order_free:
        return _absent(reason("order_free"))
    read = shared & ~np.isnan(judged.first) & ~np.isnan(judged.second)
    first, second = judged.first[read], judged.second[read]
    if np.isin(np.concatenate([first, second]), (0.0, 0.5, 1.0)).all():
        return _position_of_choices(first, second)
    pull = (_margins(first, _PULL_CUT) + _margins(second, _PULL_CUT)) / 2
    found = mean_interval(pull, clusters=judged.prompt[read])
    if found.value is not None and np.ptp(pull) == 0 and (found.n_clusters or 0) >= LEAST_UNITS:
        found = replace(found, low=found.value, high=found.value, no_interval=None)
    known = (None if x is None else float(expit(x)) for x in (found.value, found.low, found.high))
    value, low, high = known
    return replace(found, value=value, low=low, high=high)


def _position_of_choices(first: Floats, second: Floats) -> Interval:
    """The first answer is the left one; A is first in the first order, B in the second."""
    n = len(first)
    chosen = np.concatenate([first, second])
    found = position_bias(
        np.tile(np.arange(n), 2),
        np.repeat([0, 1], n),
        np.where(chosen == 0.5, -1, chosen > 0.5).astype(np.int64),
        np.repeat([True, False], n),
    )
    return Interval(
        value=found.value,
        low=found.low,
        high=found.high,
        n=n,
        n_clusters=found.n_informative,
        undefined=found.undefined,
        no_interval=found.no_interval,
    )


def _taste(judged: Judged, counts: Ints, sign: Floats) -> Taste:
    """sign: (n,) 1 where A alone has it, −1 where B alone, 0 or NaN else."""
    votes, labels = counts[:, 0] - counts[:, 1], label(judged.first, judged.second)
    rows = (votes != 0) & (np.abs(sign) == 1)
    prompt, side = judged.prompt[rows], sign[rows]
    judge, people = (1 + labels[rows] * side) / 2, (1 + np.sign(votes[rows]) * side) / 2
    if not rows.any():
        absent = _absent(reason("no_pair_differs"))
        return Taste(judge=absent, people=absent, difference=absent, as_noisy=absent)
    return Taste(
        judge=_share(judge, prompt),
        people=_share(people, prompt),
        difference=mean_interval(judge - people, clusters=prompt),
        as_noisy=_as_noisy(judged, sign),
    )


def _as_noisy(judged: Judged, sign: Floats) -> Interval:
    margins, share, voted = _margins_and_shares(judged)
    fitted = fit_temperature(margins[voted], share[voted])
    if fitted.value is None:
        return _absent(fitted.undefined or "")
    rows = voted & (np.abs(sign) == 1)
    above = (expit(margins[rows] / fitted.value) - share[rows]) * sign[rows]
    return mean_interval(above, clusters=judged.prompt[rows])


def _margins_and_shares(judged: Judged) -> tuple[Floats, Floats, Bools]:
    """Log odds of the preference for A, the share of votes for A (a tie half), has votes: (n,)."""
    n_votes = np.bincount(judged.pair, minlength=len(judged))
    for_a = np.bincount(judged.pair, weights=judged.score, minlength=len(judged))
    share: Floats = for_a / np.maximum(n_votes, 1)
    return _margins(preference(judged.first, judged.second)), share, n_votes > 0


def _calibrated(judged: Judged, tuned: Bools) -> tuple[Quantity, Calibration]:
    margins, share, voted = _margins_and_shares(judged)
    fitted = fit_temperature(margins[tuned & voted], share[tuned & voted])
    rest = ~tuned & voted
    if fitted.value is None:
        return fitted, Calibration(None, None, None, int(rest.sum()), (), fitted.undefined)
    return fitted, calibration(margins[rest], share[rest], temperature=fitted.value)


def _share(values: Floats, clusters: Ints) -> Interval:
    """`mean_interval` of numbers in [0, 1]; where all are alike Wilson's over clusters."""
    found = mean_interval(values, clusters=clusters)
    units = found.n_clusters or 0
    if found.low is not None or units < LEAST_UNITS or np.ptp(values) > 0:
        return found
    bounds = wilson(float(values[0]) * units, units)
    return replace(found, low=bounds.low, high=bounds.high, no_interval=None)


def _margins(p: Floats, cut: float = _CUT) -> Floats:
    return np.asarray(logit(np.clip(p, cut, 1 - cut)), dtype=np.float64)


def _absent(why: str) -> Interval:
    return Interval(value=None, low=None, high=None, n=0, undefined=why)


def _nothing(n: int, why: str) -> Worth:
    absent = _absent(why)
    taste = Taste(judge=absent, people=absent, difference=absent, as_noisy=absent)
    return Worth(
        n=n,
        n_unreadable=0,
        n_abstained=0,
        agreement=absent,
        people=None,
        ceiling=None,
        flips=absent,
        position=absent,
        length=taste,
        family=taste,
        temperature=Quantity(None, why),
        calibration=Calibration(None, None, None, n, (), why),
        confidence=None,
        undefined=why,
    )
