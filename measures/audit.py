"""Error rates from an audit: a sample of votes judged again by people who err themselves.

A reviewer who disagrees with a vote has found an error, or made one. With a reviewer's error rate r
and the votes' error rate e, both wrong in the same way with chance κ, they disagree in

    d = 1 − (1 − e)(1 − r) − κ e r = r + e (1 − r (1 + κ)),   so   e = (d − r) / (1 − r (1 + κ)).

With two answers κ = 1 and e = (d − r) / (1 − 2r), the estimator of Rogan & Gladen, American Journal
of Epidemiology 107 (1978), with sensitivity = specificity = 1 − r. Assumed: reviewers err as often
on audited pairs as where r was learned, and independently of the voters given the pair. Pairs that
mislead everybody break the second; then the corrected rate is too low.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from measures.estimate import Interval, reason

Floats = NDArray[np.float64]

LEAST_AUDITS = 10
LEAST_REVIEWED = 20  # gold answers, or repeats, from which a reviewer's error is learned
# Strata with fewer audits are pooled: their own share and variance would be guesses.
LEAST_IN_STRATUM = 5
_GRID = 201
_Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Rate:
    """A share with the number of independent trials it is worth, which carries its uncertainty.

    `effective` is n for a simple random sample, less or more where strata are weighed. `undefined`
    says why there is no value; then value and effective are None.
    """

    value: float | None
    effective: float | None
    n: int
    undefined: str | None = None

    @property
    def interval(self) -> Interval:
        """Wilson's score interval at the effective size (Korn & Graubard, Survey Methodology 24,
        1998, use the same device)."""
        if self.value is None or self.effective is None:
            return Interval(value=None, low=None, high=None, n=self.n, undefined=self.undefined)
        if self.n < LEAST_AUDITS:
            why = reason("few_judged", n=self.n, least=LEAST_AUDITS)
            return Interval(value=self.value, low=None, high=None, n=self.n, no_interval=why)
        low, high = _wilson(self.value, self.effective)
        return Interval(value=self.value, low=low, high=high, n=self.n)


def simple_rate(wrong: int, n: int) -> Rate:
    """`wrong` of `n` independent trials."""
    if n < 0 or not 0 <= wrong <= n:
        raise ValueError(f"wrong must lie between 0 and n: {wrong} of {n}")
    if n == 0:
        return Rate(None, None, 0, reason("nothing_judged"))
    return Rate(wrong / n, float(n), n)


def stratified_rate(wrong: ArrayLike, audited: ArrayLike, population: ArrayLike) -> Rate:
    """The share of all votes that an audit of everything would find wrong.

    One entry per annotator: wrong, audited: (k,) audits that differed and audits done; population:
    (k,) votes in all. Σ W_k d_k with W_k = N_k / N: post-stratified, so an annotator whose votes
    happened to be audited more does not count for more. Annotators with fewer than
    LEAST_IN_STRATUM audits, or none, make one stratum together (the largest others join them while
    it is still too small). Source: Cochran, Sampling Techniques (3rd ed., 1977), 5A.9.

    Variance Σ W_k² p_k(1 − p_k)/(n_k − 1), with p_k drawn by one observation towards the overall
    share, since a stratum of five without a difference is not known to have none. The finite
    population is not corrected for. Undefined without audits.
    """
    differs, done, votes = (np.asarray(x, dtype=np.float64) for x in (wrong, audited, population))
    if differs.shape != done.shape or done.shape != votes.shape or done.ndim != 1:
        raise ValueError("wrong, audited and population must be equally long vectors")
    if (differs < 0).any() or (differs > done).any() or (done > votes).any():
        raise ValueError("wrong ≤ audited ≤ population must hold for every annotator")
    n = int(done.sum())
    if n == 0:
        return Rate(None, None, 0, reason("no_audit"))
    differs, done, votes = _pooled(differs, done, votes)
    weight = votes / votes.sum()
    share = float((weight * differs / done).sum())
    overall = float(differs.sum()) / n
    drawn = (differs + overall) / (done + 1)
    variance = float((weight**2 * drawn * (1 - drawn) / np.maximum(done - 1, 1)).sum())
    plain = overall * (1 - overall)
    effective = plain / variance if variance > 0 and plain > 0 else float(n)
    # Strata may help a little or cost much; believing in more than twice n would be bold.
    return Rate(share, min(effective, 2.0 * n), n)


def weighted_rate(wrong: ArrayLike, weights: ArrayLike) -> Rate:
    """A weighted share: wrong: (n,) 0 or 1; weights: (n,), such as one over a comparison's chance
    to be looked at. Worth (Σw)²/Σw² trials (Kish, Survey Sampling, 1965)."""
    values, weigh = (np.asarray(x, dtype=np.float64) for x in (wrong, weights))
    if values.shape != weigh.shape or values.ndim != 1 or (weigh <= 0).any():
        raise ValueError("one positive weight per trial")
    if not len(values):
        return Rate(None, None, 0, reason("nothing_judged"))
    share = float((values * weigh).sum() / weigh.sum())
    return Rate(share, float(weigh.sum() ** 2 / (weigh**2).sum()), len(values))


def coincidence(shares: ArrayLike) -> float:
    """κ: the chance that two who are both wrong choose the same wrong answer.

    shares: (c,) how often each answer is given in the project. The truth is drawn by these shares,
    and who is wrong picks among the others in proportion to them:
    κ = Σ_t p_t Σ_{c≠t} (p_c / (1 − p_t))². 1 with two answers, 1/(c − 1) with c equal ones; 1 where
    nothing is known, which is the two-way case.
    """
    p = np.asarray(shares, dtype=np.float64)
    if (p < 0).any() or p.ndim != 1:
        raise ValueError("shares must be a vector of numbers, none negative")
    p = p[p > 0]
    if len(p) < 3:
        return 1.0
    p = p / p.sum()
    others = (p**2).sum() - p**2
    return float((p * others / (1 - p) ** 2).sum())


def error_from_repeats(differing: int, n: int, *, kappa: float = 1.0) -> Rate:
    """A person's error rate from how often they answer the same pair differently.

    Two looks of one person agree in (1 − r)² + κ r², so the share that differs is
    s = 2r − (1 + κ) r² and r = (1 − √(1 − (1 + κ) s)) / (1 + κ). What one gets wrong both times in
    the same way is not seen, so this is a lower bound of r. `effective` carries the uncertainty of
    s over by the delta method, and is at most 2n: two looks each. Undefined where people differ
    from themselves as often as coins do.
    """
    looked = simple_rate(differing, n)
    if looked.value is None:
        return looked
    m = 1 + kappa
    inside = 1 - m * looked.value
    if inside <= 0.01:
        return Rate(None, None, n, reason("repeats_by_chance"))
    root = math.sqrt(inside)
    r = (1 - root) / m
    # dr/ds = 1 / (2 root); var(r) = s(1 − s)/n · (dr/ds)²; worth r(1 − r)/var(r) trials
    s = (differing + 0.5) / (n + 1)
    variance = s * (1 - s) / n / (4 * inside)
    drawn = (r * n + 0.5) / (n + 1)
    return Rate(r, min(2.0 * n, drawn * (1 - drawn) / variance), n)


@dataclass(frozen=True, slots=True)
class Corrected:
    """An error rate with the reviewers' own error taken out, or why it was not."""

    rate: Interval
    not_corrected: str | None = None


def corrected_rate(differing: Rate, reviewers: Rate, *, kappa: float = 1.0) -> Corrected:
    """e = (d − r) / (1 − r (1 + κ)), with the uncertainty of both d and r.

    differing: d, from `stratified_rate`; reviewers: r, the reviewers' own error rate. The interval
    takes d and r as independent with Beta posteriors (Jeffreys' prior, Brown, Cai & DasGupta,
    Statistical Science 16, 2001) worth their effective sizes, on a grid of equally likely values
    of each, and cuts 2.5 % off either end of e. Values outside [0, 1] are put on its edge.

    Not corrected, and said so: without d, with r from fewer than LEAST_REVIEWED answers, or where
    reviewers may be no better than chance (the grid's 97.5 % point of r (1 + κ) is 0.9 or more,
    where a division by nearly nothing would make any number).
    """
    if differing.value is None or differing.effective is None:
        return Corrected(differing.interval, differing.undefined)
    if reviewers.value is None or reviewers.effective is None:
        return Corrected(differing.interval, reviewers.undefined or "unknown")
    if reviewers.n < LEAST_REVIEWED:
        why = reason("few_answers", n=reviewers.n, least=LEAST_REVIEWED)
        return Corrected(differing.interval, why)
    if differing.n < LEAST_AUDITS:
        return Corrected(differing.interval, reason("few_audits", n=differing.n))
    d, r = _likely(differing), _likely(reviewers)
    m = 1 + kappa
    if m * float(np.quantile(r, 0.975)) >= 0.9:
        return Corrected(differing.interval, reason("reviewers_by_chance"))
    found = np.clip((d[:, None] - r) / (1 - m * r), 0.0, 1.0)
    low, high = np.quantile(found, [0.025, 0.975])
    value = (differing.value - reviewers.value) / (1 - m * reviewers.value)
    value = min(max(value, 0.0), 1.0)
    return Corrected(
        Interval(
            value=value,
            low=min(float(low), value),
            high=max(float(high), value),
            n=differing.n,
        )
    )


def _likely(rate: Rate) -> Floats:
    """(_GRID,) equally likely values."""
    share, trials = rate.value or 0.0, rate.effective or 0.0
    grid = (np.arange(_GRID) + 0.5) / _GRID
    yes, no = trials * share, trials * (1 - share)
    return betaincinv(yes + 0.5, no + 0.5, grid)


def _pooled(differs: Floats, done: Floats, votes: Floats) -> tuple[Floats, Floats, Floats]:
    """Strata of LEAST_IN_STRATUM audits or more, and the rest together as the last."""
    order = np.argsort(done, kind="stable")
    small = int((done < LEAST_IN_STRATUM).sum())
    if small == 0:
        return differs, done, votes
    while small < len(order) and done[order[:small]].sum() < LEAST_IN_STRATUM:
        small += 1
    rest, own = order[:small], order[small:]
    return tuple(  # type: ignore[return-value] # as many as were asked for
        np.append(values[own], values[rest].sum()) for values in (differs, done, votes)
    )


def _wilson(share: float, n: float) -> tuple[float, float]:
    spread = _Z95 * math.sqrt(share * (1 - share) / n + _Z95**2 / (4 * n * n))
    centre, scale = share + _Z95**2 / (2 * n), 1 + _Z95**2 / n
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
