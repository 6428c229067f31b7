"""Prediction-powered inference: an interval from few votes of people and many verdicts of a judge.

A judge gave a verdict on every pair of two answers, people voted on a random sample of the pairs.
The mean verdict alone is biased by whatever the judge likes; the mean vote alone is noisy. PPI++
adds the judge's mean over the pairs without votes to what votes show it to be off by:

    θ̂ = λ · mean_u f + mean_s (Y − λ f),   λ* = Σ_p a_p b_p / Σ_p b_p², cut to [0, 1]

u pairs without votes, s the sample, f verdicts, Y votes; a_p, b_p prompt p's share of the errors
of mean_s Y and of mean_s f − mean_u f. With one pair a prompt λ* is Cov(Y, f)/((1 + n/N) Var f).
Unbiased for every λ and every judge; the better the judge knows the votes, the shorter the
interval. Sources: Angelopoulos, Bates, Fannjiang, Jordan & Zrnic, Science 382 (2023);
Angelopoulos, Duchi & Zrnic, "PPI++", arXiv 2311.01453.

Departures: sampled pairs are no part of mean_u; prompts weigh alike, pairs alike within a prompt,
votes alike within a pair; votes hang together by prompt and by person, as in
`measures.head_to_head`; Student's t and a floor under the variance for small samples.

    N pairs, n votes, P prompts with a vote, A people
"""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from measures.agreement.coefficients import percent_agreement
from measures.estimate import Interval, Quantity, reason
from measures.head_to_head import ALPHA
from measures.model_ranking import LEAST_PEOPLE, LEAST_PROMPTS, two_way_variances

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_MOST_VOTES = 10_000_000  # further ones are not asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedVotes:
    """A judge's verdicts on all pairs, and people's votes on a random sample of them.

    verdict: (N,) in [0, 1], the judge's preference for the first answer, ½ where its verdict cannot
    be read; prompt: (N,) any whole numbers; stratum: (N,) whole numbers, None where every pair had
    the same probability to be sampled, else pairs of one stratum had, and a prompt lies in one
    stratum. score: (n,) 1, ½ or 0, the vote for the first answer; pair: (n,) its place in verdict;
    person: (n,) any whole numbers. One current vote of a person on a pair.

    The verdict must be the same function of a pair whether it was sampled or not.
    """

    verdict: Floats
    prompt: Ints
    score: Floats
    pair: Ints
    person: Ints
    stratum: Ints | None = None

    def __post_init__(self) -> None:
        if len(self.verdict) != len(self.prompt):
            raise ValueError("verdict and prompt must be equally long")
        if not len(self.score) == len(self.pair) == len(self.person):
            raise ValueError("score, pair and person must be equally long")
        if len(self.verdict) and not (self.verdict.min() >= 0 and self.verdict.max() <= 1):
            raise ValueError("a verdict lies between 0 and 1")
        if not np.isin(self.score, (0.0, 0.5, 1.0)).all():
            raise ValueError("a score is 0, ½ or 1")
        if len(self.pair) and not 0 <= self.pair.min() <= self.pair.max() < len(self.verdict):
            raise ValueError("pair must be a place in verdict")
        if self.stratum is not None and len(self.stratum) != len(self.verdict):
            raise ValueError("stratum and verdict must be equally long")


@dataclass(frozen=True, slots=True, kw_only=True)
class PpiResult:
    """What votes say alone, with the judge, and what the judge says alone.

    people: by votes only; ppi: votes and verdicts; judge: the mean verdict, with an interval that
    holds the judge's own mean and not what people would say, for comparison only. n of people and
    ppi counts votes, n_clusters prompts with votes; n of judge counts pairs, n_clusters prompts.

    n_prompts: with votes; n_unlabelled: prompts with pairs without votes; lam: λ; rho2: squared
    correlation of single votes and verdicts; saved: the share of prompts with votes that the judge
    spares at the same width, ρ²/(1 + n/N) with ρ² of the prompts' means (that of single votes where
    each prompt has one) and n/N = n_prompts / n_unlabelled, 0 where λ is 0; n_equivalent: votes
    that alone would be as good, n / (1 − saved). The formula leaves out what people differ by,
    which no judge spares; seen: 1 − V_ppi / V_people with everything, of this one sample.

    alpha: 2a − 1, with a the agreement of two people on a pair without ties: the most that ρ² of
    single votes can be for a judge that does not know who votes; ceiling: kα/(1 + (k − 1)α), the
    most of pairs with k votes, k their mean number.

    without_judge: why ppi is people's interval, None where it is not; half: t √V, half the width of
    ppi before it is cut to [0, 1], without strata that have no votes; fixed, sampled: parts of V,
    fixed with the people and the verdicts there are and shrinking with votes; t: the quantile;
    n_missing: strata without votes on two prompts.
    """

    people: Interval
    ppi: Interval
    judge: Interval
    n_votes: int
    n_prompts: int
    n_people: int
    n_unlabelled: int
    lam: float | None = None
    rho2: float | None = None
    saved: float | None = None
    seen: float | None = None
    n_equivalent: float | None = None
    alpha: Quantity | None = None
    ceiling: Quantity | None = None
    without_judge: str | None = None
    half: float | None = None
    fixed: float = 0.0
    sampled: float = 0.0
    t: float | None = None
    n_missing: int = 0
    undefined: str | None = None

    def more(self, votes: int = 1) -> float | None:
        """By how much the half width shrinks with so many more votes; None without an interval.

        half(n + k) = t √(fixed + sampled · n/(n + k)). Assumes that they are on new prompts, by the
        people there are, as many each as now, and that the pairs without votes stay many.
        """
        if self.half is None:
            return None
        return self.half - self._half_at(self.n_votes + votes)

    def votes_needed(self, half: float) -> int | None:
        """Votes, with those there are, for an interval of ± half; None where no number suffices
        with these people and verdicts, or there is no interval to go by. Assumes as `more`."""
        if self.half is None or self.t is None or half <= 0:
            return None
        room = (half / self.t) ** 2 - self.fixed
        if room <= 0:
            return None
        needed = self.n_votes * self.sampled / room
        return math.ceil(needed) if needed < _MOST_VOTES else None

    def _half_at(self, votes: int) -> float:
        return (self.t or 0.0) * math.sqrt(self.fixed + self.sampled * self.n_votes / votes)


def ppi_estimate(
    given: JudgedVotes, *, people_matter: bool = True, alpha: float = ALPHA
) -> PpiResult:
    """The mean vote over prompts and people, by votes and verdicts.

    V(λ) = two-way clusters by prompt and person of Y − λf, plus λ² times that of mean_u f by
    prompts, plus twice the covariance through prompts that have both. V is at least q(1 − q)/P,
    q = 1/(P + 2): with few prompts that agree the sample's variance would be too small. The
    interval is θ̂ ± t(1 − α/2, df) √V, cut to [0, 1], with min(P, A) − 1 degrees of freedom, or
    P − 2 where that is fewer: λ is fitted, and V holds (P − 1)/(P − 2) for it.

    people_matter=False asks for the mean over these people only: no clusters by person, P − 1
    degrees of freedom, and any number of people, one included. It says nothing of other people.

    Strata: θ̂ = Σ_s W_s θ̂_s with W_s the stratum's share of all prompts and one λ for all. A
    stratum with votes on fewer than two prompts contributes all of [0, 1] to the interval, ½ to
    the value.

    Assumes that pairs were sampled at random (within strata), and prompts and people independent
    of one another. Nothing under LEAST_PROMPTS prompts with votes (`undefined`); under
    LEAST_PEOPLE people a value without an interval, as for a head-to-head. Without pairs
    that have no votes, or where verdicts do not vary, ppi is people's interval, and
    `without_judge` says why.
    """
    rows = _rows_of(given)
    found = _counted(rows, _judge_alone(given))
    if found.undefined:
        return found
    lam, without = _lam(rows)
    human = _theta(rows, 0.0, people_matter, alpha)
    both = human if without else _theta(rows, lam, people_matter, alpha)
    saved = seen = 0.0
    if lam:
        share = _squared_correlation(np.ones(rows.n_prompts), *_prompt_means(rows)) or 0.0
        saved = share / (1 + rows.n_prompts / rows.n_unlabelled)
        seen = 1 - both.variance / human.variance
    agreement, ceiling = _ceilings(given)
    return replace(
        found,
        people=human.interval,
        ppi=both.interval,
        lam=lam,
        rho2=_squared_correlation(rows.weight, rows.score, rows.on_vote),
        saved=saved,
        seen=seen,
        n_equivalent=rows.n_votes / max(1 - saved, 1 / _MOST_VOTES),
        alpha=agreement,
        ceiling=ceiling,
        without_judge=without,
        half=None if both.t is None else both.t * math.sqrt(both.variance),
        fixed=both.fixed,
        sampled=both.variance - both.fixed,
        t=both.t,
    )


# Rows with their weights.


@dataclass(frozen=True, slots=True)
class _Rows:
    """Votes: weight (n,), score, on_vote (the verdict on the vote's pair), used (the same, but 0 in
    strata whose pairs all have votes), of_vote (place of the prompt), person, stratum_v. Pairs
    without votes: weight_u (m,), verdict, of_free, stratum_u. Weights add up to 1 within each
    stratum; share (S,) of all prompts; is_sampled (S,) strata that have votes on two prompts;
    n_unlabelled: prompts with pairs without votes."""

    weight: Floats
    score: Floats
    on_vote: Floats
    used: Floats
    of_vote: Ints
    person: Ints
    stratum_v: Ints
    weight_u: Floats
    verdict: Floats
    of_free: Ints
    stratum_u: Ints
    share: Floats
    is_sampled: Bools
    n_prompts: int
    n_people: int
    n_unlabelled: int

    @property
    def n_votes(self) -> int:
        return len(self.score)


@dataclass(frozen=True, slots=True)
class _Theta:
    interval: Interval
    variance: float
    fixed: float
    t: float | None


def _counted(rows: _Rows, judge: Interval) -> PpiResult:
    """A result without estimates, and why it stays so, if it does."""
    n, why = rows.n_votes, None
    if rows.n_prompts < LEAST_PROMPTS:
        why = reason("few_judged_prompts", n=rows.n_prompts, least=LEAST_PROMPTS)
    empty = Interval(value=None, low=None, high=None, n=n, undefined=why)
    return PpiResult(
        people=empty,
        ppi=empty,
        judge=judge,
        n_votes=n,
        n_prompts=rows.n_prompts,
        n_people=rows.n_people,
        n_unlabelled=rows.n_unlabelled,
        n_missing=int((~rows.is_sampled).sum()),
        undefined=why,
    )


def _rows_of(given: JudgedVotes) -> _Rows:
    prompt = _places(given.prompt)
    strata = np.zeros(len(prompt), np.int64) if given.stratum is None else _places(given.stratum)
    n_strata = int(strata.max()) + 1 if len(strata) else 1
    n_prompts = int(prompt.max()) + 1 if len(prompt) else 0
    of_prompt = np.zeros(n_prompts, dtype=np.int64)
    of_prompt[prompt] = strata
    if (of_prompt[prompt] != strata).any():
        raise ValueError("a prompt lies in one stratum")
    votes_on = np.bincount(given.pair, minlength=len(prompt))
    free = np.flatnonzero(votes_on == 0)
    voted = np.flatnonzero(votes_on)
    of_vote = prompt[given.pair]
    pairs_of = np.bincount(prompt[voted], minlength=n_prompts)
    sampled = np.bincount(of_prompt[pairs_of > 0], minlength=n_strata)
    stratum_v, stratum_u = strata[given.pair], strata[free]
    free_of = np.bincount(prompt[free], minlength=n_prompts)
    unlabelled = np.bincount(of_prompt[free_of > 0], minlength=n_strata)
    return _Rows(
        weight=1.0 / (sampled[stratum_v] * pairs_of[of_vote] * votes_on[given.pair]),
        score=given.score,
        on_vote=given.verdict[given.pair],
        used=given.verdict[given.pair] * (unlabelled > 0)[stratum_v],
        of_vote=of_vote,
        person=_places(given.person),
        stratum_v=stratum_v,
        weight_u=1.0 / (unlabelled[stratum_u] * free_of[prompt[free]]),
        verdict=given.verdict[free],
        of_free=prompt[free],
        stratum_u=stratum_u,
        share=np.bincount(of_prompt, minlength=n_strata) / max(n_prompts, 1),
        is_sampled=sampled >= 2,
        n_prompts=int((pairs_of > 0).sum()),
        n_people=len(np.unique(given.person)),
        n_unlabelled=int((free_of > 0).sum()),
    )


def _rest(
    values: Floats, weight: Floats, prompts: Ints, strata: Ints, rows: _Rows
) -> tuple[Floats, Floats]:
    """Means by stratum (S,), and each row's deviation from its own, times its weight in θ̂ and the
    small-sample factor √(C/(C − 1)) of its stratum's prompts, C of them."""
    n_strata = len(rows.share)
    sums = np.bincount(strata, weights=weight * values, minlength=n_strata)
    means = np.asarray(sums, dtype=np.float64)
    one_of_each = np.unique(prompts, return_index=True)[1]
    counts = np.bincount(strata[one_of_each], minlength=n_strata).astype(np.float64)
    factor = np.sqrt(counts / np.maximum(counts - 1, 1))
    counted = rows.share * rows.is_sampled
    return means, (counted * factor)[strata] * weight * (values - means[strata])


def _lam(rows: _Rows) -> tuple[float, str | None]:
    """λ* from the prompts' shares of the errors, and why the judge is not used."""
    if not len(rows.verdict):
        return 0.0, reason("all_pairs_voted")
    y = _rest(rows.score, rows.weight, rows.of_vote, rows.stratum_v, rows)[1]
    f = _rest(rows.used, rows.weight, rows.of_vote, rows.stratum_v, rows)[1]
    u = _rest(rows.verdict, rows.weight_u, rows.of_free, rows.stratum_u, rows)[1]
    size = int(max(rows.of_vote.max(), rows.of_free.max())) + 1
    a = np.bincount(rows.of_vote, weights=y, minlength=size)
    b = np.bincount(rows.of_vote, weights=f, minlength=size)
    b -= np.bincount(rows.of_free, weights=u, minlength=size)
    spread = float(b @ b)
    if spread < 1e-15:
        return 0.0, reason("verdicts_alike")
    return min(max(float(a @ b) / spread, 0.0), 1.0), None


def _theta(rows: _Rows, lam: float, people_matter: bool, alpha: float) -> _Theta:
    """θ̂(λ) with its interval."""
    means, rest = _rest(
        rows.score - lam * rows.used, rows.weight, rows.of_vote, rows.stratum_v, rows
    )
    means_u, rest_u = _rest(lam * rows.verdict, rows.weight_u, rows.of_free, rows.stratum_u, rows)
    missing = float(rows.share[~rows.is_sampled].sum())
    value = float((rows.is_sampled * rows.share) @ (means + means_u)) + missing / 2
    size = int(max(rows.of_vote.max(), rows.of_free.max(initial=0))) + 1
    of_votes = np.bincount(rows.of_vote, weights=rest, minlength=size)
    of_free = np.bincount(rows.of_free, weights=rest_u, minlength=size)
    # By prompts, with those of which some pairs have votes and some have none.
    added = float(of_free @ of_free + 2 * of_votes @ of_free)
    # `_rest` holds the factor for few prompts too; λ is fitted as a slope is, which costs one more.
    once = (rows.n_prompts - 1) / rows.n_prompts
    once *= (rows.n_prompts - 1) / (rows.n_prompts - 2) if lam else 1.0
    parts = two_way_variances(rest, _places(rows.of_vote), rows.person)
    n_people, by_people = rows.n_people, 0.0
    df = rows.n_prompts - int(rows.is_sampled.sum()) - bool(lam)
    of_sample = parts.by_prompt
    if people_matter:
        of_sample, by_people = parts.two_way, max(parts.by_person - parts.by_both, 0.0) * once
        df = min(df, n_people - 1)
    fixed = float(of_free @ of_free)
    variance = max(of_sample * once + added, fixed + _floor(rows.n_prompts))
    bare = Interval(
        value=_cut(value), low=None, high=None, n=rows.n_votes, n_clusters=rows.n_prompts
    )
    if people_matter and n_people < LEAST_PEOPLE:
        why = reason("few_people", n=n_people, least=LEAST_PEOPLE)
        return _Theta(replace(bare, no_interval=why), variance, 0.0, None)
    t = float(stdtrit(max(df, 1), 1 - alpha / 2))
    half = t * math.sqrt(variance) + missing / 2
    found = replace(bare, low=_cut(value - half), high=_cut(value + half))
    return _Theta(found, variance, min(fixed + by_people, variance), t)


def _floor(n: int) -> float:
    """q(1 − q)/n, q = 1/(n + 2): the variance of a mean of n of which hardly one differs."""
    q = 1 / (n + 2)
    return q * (1 - q) / n


# What the judge and people say, each by itself.


def _judge_alone(given: JudgedVotes) -> Interval:
    """Mean verdict over prompts, mean ± 1.96 standard errors of independent prompts."""
    n = len(given.verdict)
    if not n:
        return Interval(value=None, low=None, high=None, n=0, undefined=reason("no_pairs"))
    prompt = _places(given.prompt)
    means = np.bincount(prompt, weights=given.verdict) / np.bincount(prompt)
    value = float(means.mean())
    if len(means) < LEAST_PROMPTS:
        why = reason("few_judged_prompts", n=len(means), least=LEAST_PROMPTS)
        return Interval(
            value=value, low=None, high=None, n=n, n_clusters=len(means), no_interval=why
        )
    half = NormalDist().inv_cdf(0.975) * float(means.std(ddof=1)) / math.sqrt(len(means))
    low, high = _cut(value - half), _cut(value + half)
    return Interval(value=value, low=low, high=high, n=n, n_clusters=len(means))


def _ceilings(given: JudgedVotes) -> tuple[Quantity, Quantity]:
    """α of single votes, and of pairs with as many as these have."""
    counts = vote_counts(given.pair, given.score, len(given.verdict))
    counts = counts[counts.sum(axis=1) > 0]
    found = percent_agreement(counts, replicates=0)
    if found.value is None:
        return Quantity(None, found.undefined), Quantity(None, found.undefined)
    if found.value <= 0.5:
        why = reason("agreement_of_coins", agreement=found.value)
        return Quantity(None, why), Quantity(None, why)
    alpha, k = 2 * found.value - 1, float(counts.sum() / len(counts))
    return Quantity(alpha), Quantity(k * alpha / (1 + (k - 1) * alpha))


def vote_counts(pair: Ints, score: Floats, n_pairs: int) -> Ints:
    """(n_pairs, 2) votes for the first and for the second answer; ties are left out."""
    decided = score != 0.5
    cell = 2 * pair[decided] + (score[decided] == 0)
    return np.bincount(cell, minlength=2 * n_pairs).reshape(n_pairs, 2).astype(np.int64)


def _prompt_means(rows: _Rows) -> tuple[Floats, Floats]:
    """(P,) mean vote and (P,) mean verdict of each prompt with votes."""
    of_vote = _places(rows.of_vote)
    total = np.bincount(of_vote, weights=rows.weight)

    def mean(values: Floats) -> Floats:
        return np.asarray(np.bincount(of_vote, weights=rows.weight * values) / total)

    return mean(rows.score), mean(rows.on_vote)


def _squared_correlation(weight: Floats, one: Floats, other: Floats) -> float | None:
    """None where one of them does not vary."""
    a = one - np.average(one, weights=weight)
    b = other - np.average(other, weights=weight)
    spread = float(weight @ a**2) * float(weight @ b**2)
    return float(weight @ (a * b)) ** 2 / spread if spread > 1e-15 else None


def _places(values: ArrayLike) -> Ints:
    return np.asarray(np.unique(values, return_inverse=True)[1], dtype=np.int64)


def _cut(value: float) -> float:
    return min(max(value, 0.0), 1.0)
