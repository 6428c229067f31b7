"""Is one system better than another, by votes of people that are looked at while they come in?

A vote compares the two systems' answers to one prompt, shown side by side to one person. y = 1
where the first system's answer is better, ½ for a tie and where both are bad, 0 where the second
system's is. The estimand is the mean of y over the prompts, the people and the two sides: above ½
the first system is better.

Votes hang together by prompt and by person, and whoever looks every day gives chance many days to
speak. Both are answered here: the variance is that of two-way clusters, and the interval holds at
every look (`sequence_factor`).

    n votes, P prompts, A people
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from measures.model_ranking import LEAST_PEOPLE, LEAST_PROMPTS, two_way_variances

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ALPHA = 0.05
MARGIN = 0.05  # a difference from ½ that is worth knowing
# Votes of different people on different prompts, all alike, for `exact_interval` to exclude ½.
LEAST_EXACT = 8
_NEAR = 1e-9  # to 0 and 1, where bets are not defined
# Shares q that `exact_interval` bets, and their weights: exact up to degree 127 in q.
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(64)
_SHARES, _WEIGHTS = (_NODES + 1) / 2, _NODE_WEIGHTS / 2
MOST_PEOPLE = 500  # further ones are not asked for
# Of the share of votes in which the first system stood left, in standard deviations of a fair coin.
SIDE_DEVIATIONS = 3.3
LEAST_SIDES = 20  # votes with a known side, before the sides are judged
OUTCOMES = ("win", "tie", "both_bad", "loss")


class Stopping(StrEnum):
    """When votes may be looked at."""

    ANY_TIME = "any_time"  # as often as one likes; the interval is wider by half
    AT_THE_END = "at_the_end"  # once, when all votes are in


class Verdict(StrEnum):
    """What the votes say so far."""

    ONE_SIDED = "one_sided"
    TOO_FEW_PEOPLE = "too_few_people"
    TOO_FEW_PROMPTS = "too_few_prompts"
    WAITING = "waiting"
    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE = "no_difference"
    UNDECIDED = "undecided"
    NOT_DECIDED = "not_decided"
    # Of more than two systems.
    BEST = "best"
    NOT_CONNECTED = "not_connected"
    SEPARATED = "separated"


# What ends a comparison before all its votes are in.
FINAL = frozenset({Verdict.BETTER, Verdict.WORSE, Verdict.NO_DIFFERENCE, Verdict.BEST})


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked and when it is answered, fixed before the first vote.

    prompts: how many are planned, those with two equal answers left out; alike: prompts to which
    both systems gave the same answer, which nobody is asked about; votes_each: per pair; margin: δ,
    a distance from ½ under which a difference is not worth having; alpha: of false calls; pairs: of
    answers that people are asked about, None for one a prompt.
    """

    prompts: int
    alike: int = 0
    votes_each: int = 1
    margin: float = MARGIN
    alpha: float = ALPHA
    stopping: Stopping = Stopping.ANY_TIME
    pairs: int | None = None

    def __post_init__(self) -> None:
        if min(self.prompts, self.votes_each, self.pairs or 1) < 1 or self.alike < 0:
            raise ValueError("prompts, pairs and votes_each must be at least 1, alike at least 0")
        if not 0 < self.margin < 0.5:
            raise ValueError(f"margin must lie between 0 and 0.5, not {self.margin}")
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"alpha must lie between 0 and 0.5, not {self.alpha}")

    @property
    def votes(self) -> int:
        return (self.pairs or self.prompts) * self.votes_each

    @property
    def is_exact(self) -> bool:
        """Whether so few prompts are planned that only `exact_interval` holds."""
        return self.prompts < LEAST_PROMPTS


@dataclass(frozen=True, slots=True)
class Votes:
    """score: (n,) 1, ½ or 0; both_bad: (n,) whether a ½ says that both are bad; prompt, person:
    (n,) any whole numbers; left: (n,) 1 where the first system stood left, 0 where right, NaN where
    nobody knows."""

    score: Floats
    both_bad: NDArray[np.bool_]
    prompt: Ints
    person: Ints
    left: Floats

    def __post_init__(self) -> None:
        shapes = {len(getattr(self, name)) for name in self.__slots__}
        if len(shapes) > 1:
            raise ValueError("all columns of the votes must be equally long")
        if not np.isin(self.score, (0.0, 0.5, 1.0)).all():
            raise ValueError("a score is 0, ½ or 1")

    def __len__(self) -> int:
        return len(self.score)


@dataclass(frozen=True, slots=True)
class Estimate:
    """value: of the estimand, prompts answered alike counted as ½; low, high: the interval that the
    plan's stopping allows; once_low, once_high: the 95 % interval of a single look (alpha 0.05).

    error: standard error; by_people: the part of its square that only more people would shrink; df:
    of Student's t; exact_votes: the votes that `exact_interval` rests on, None where it was not
    needed.
    """

    value: float
    error: float | None
    by_people: float
    df: int
    low: float | None = None
    high: float | None = None
    once_low: float | None = None
    once_high: float | None = None
    exact_votes: int | None = None


# Of more than two systems (`measures.several_systems`).


@dataclass(frozen=True, slots=True)
class Standing:
    """A system. value: the probability that its answer beats the baseline's; low, high: the
    interval that the plan allows for all systems at once; once_low, once_high: of a single look at
    this one (alpha 0.05); best, worst: its place at best and at worst, by the differences that are
    told; controlled, controlled_low, controlled_high: value and interval at equal length and on no
    side, None where that has no fit; n: votes on its answers."""

    system: int
    value: float
    low: float | None
    high: float | None
    once_low: float | None
    once_high: float | None
    best: int
    worst: int
    controlled: float | None
    controlled_low: float | None
    controlled_high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Two systems. value: the probability that the first one's answer beats the second's, by all
    votes; p: anytime-valid (or of the only look), before Holm; told: whether Holm calls it; wins,
    losses, ties, both_bad: of votes on just these two; value, low, high, p are None without a fit.
    """

    first: int
    second: int
    value: float | None
    low: float | None
    high: float | None
    p: float | None
    told: bool
    wins: int
    losses: int
    ties: int
    both_bad: int


@dataclass(frozen=True, slots=True)
class Habit:
    """What a habit of people adds to the log odds, with its 95 % interval of a single look: of the
    left answer (side), or for each factor e in length (length)."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Several:
    """standings: best first, empty without a fit; groups: systems by what votes connect, where not
    all are; reason: why there is no fit; first: who stands first, None without a fit."""

    standings: list[Standing]
    differences: list[Difference]
    habits: list[Habit]
    reason: str
    groups: list[list[int]]
    first: int | None


@dataclass(frozen=True, slots=True)
class Result:
    """All that a page says of a head-to-head.

    outcomes: votes by outcome; net: (wins − losses) / votes; decided_rate: wins among wins and
    losses; effective_people: (Σ n_a)² / Σ n_a², the number of equally busy people who would tell as
    much; left_share: of votes in which the first system stood left; pull: how much more often than
    half the left answer is preferred, where it is known; people_needed: with that many people the
    interval of a single look can be as narrow as the margin, None where these are enough or no
    number under MOST_PEOPLE is; flips: the fewest votes of one person without which the estimate is
    on the other side of ½, None where no person's suffice; several: of more than two systems
    (`several_result`), whose votes have no `pull`, `net` and `decided_rate`.
    """

    n: int
    n_prompts: int
    n_people: int
    outcomes: dict[str, int]
    estimate: Estimate | None
    verdict: Verdict
    effective_people: float | None
    left_share: float | None
    pull: float | None
    net: float | None
    decided_rate: float | None
    people_needed: int | None
    flips: int | None
    several: Several | None = None


def result_of(votes: Votes, plan: Plan, *, ended: bool = False) -> Result:
    """What the votes say under the plan. ended: no more votes come.

    Under LEAST_PEOPLE people or LEAST_PROMPTS prompts there is no interval, unless no more prompts
    are planned: then `exact_interval` of one vote a prompt and person is the interval, from
    LEAST_EXACT of them. Where sides are so
    uneven that a fair draw would not do it in one of a thousand, nothing is claimed: a pull to the
    left cannot be told from a better system.
    """
    people = np.unique(votes.person, return_counts=True)[1].astype(float)
    n_prompts = len(np.unique(votes.prompt))
    outcomes = outcomes_of(votes)
    estimate = _estimate(votes, plan, n_prompts, len(people)) if len(votes) else None
    left = votes.left[~np.isnan(votes.left)]
    told = ended or len(votes) >= plan.votes
    return Result(
        n=len(votes),
        n_prompts=n_prompts,
        n_people=len(people),
        outcomes=outcomes,
        estimate=estimate,
        verdict=_verdict(votes, plan, estimate, n_prompts, len(people), told),
        effective_people=effective_number(people) if len(people) else None,
        left_share=float(left.mean()) if len(left) else None,
        pull=_pull(votes),
        net=(outcomes["win"] - outcomes["loss"]) / len(votes) if len(votes) else None,
        decided_rate=_share(outcomes["win"], outcomes["win"] + outcomes["loss"]),
        people_needed=people_needed(estimate, plan, len(people)),
        flips=_flips(votes),
    )


def sequence_factor(prompts: int, planned: int, alpha: float = ALPHA) -> float:
    """c(t) by which a standard error is multiplied so that the interval holds at every look.

    c(t) = √(2(tρ² + 1)/(tρ²) · ln(√(tρ² + 1)/α)), ρ² = (−2 ln α + ln(−2 ln α + 1)) / t_opt, with t
    the prompts so far and t_opt those planned, where it is narrowest: 3.04 at α = 0.05, against
    1.96 for a single look. Source: the asymptotic confidence sequence of Waudby-Smith, Arbour,
    Sinha, Kennedy & Ramdas, "Time-uniform central limit theory", Annals of Statistics (2024).
    Assumes that the standard error is nearly right, so not before LEAST_PROMPTS prompts.
    """
    if prompts < 1 or planned < 1:
        raise ValueError("prompts and planned must be at least 1")
    t = mixture_at(prompts, planned, alpha)
    return math.sqrt(2 * (t + 1) / t * math.log(math.sqrt(t + 1) / alpha))


def mixture_at(prompts: int, planned: int, alpha: float) -> float:
    """tρ² of `sequence_factor`."""
    log = -2 * math.log(alpha)
    return prompts * (log + math.log(log + 1)) / planned


def effective_number(counts: Floats | Sequence[float]) -> float:
    """(Σ n)² / Σ n²: how many equal parts would be as uneven as these (Kish, Survey Sampling,
    1965). 60 % of one person and the rest of six others is 2.6."""
    n = np.asarray(counts, dtype=np.float64)
    if not len(n) or not n.sum():
        raise ValueError("an effective number needs counts")
    return float(n.sum() ** 2 / (n**2).sum())


def least_of(plan: Plan) -> tuple[int, int]:
    """People and prompts with votes before anything is concluded."""
    return (LEAST_EXACT, LEAST_EXACT) if plan.is_exact else (LEAST_PEOPLE, LEAST_PROMPTS)


def votes_needed(
    *,
    difference: float,
    ties: float = 0.15,
    power: float = 0.8,
    effect: float = 1.0,
    alpha: float = ALPHA,
) -> int:
    """Votes with which a system that wins ½ + difference is called better by a single look.

    n = (z(1 − α/2) + z(power))² · v · effect / difference², v = (1 − ties)/4 − difference²; effect:
    the design effect, by which votes that hang together are worth less. Looking at any time takes
    about 1.1 times as many on average where the difference is that large.
    """
    if not 0 < difference < 0.5 or not 0 <= ties < 1 or effect <= 0:
        raise ValueError("difference in (0, 0.5), ties in [0, 1), effect above 0")
    normal = NormalDist()
    z = normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)
    spread = max((1 - ties) / 4 - difference**2, 0.0)
    return max(1, math.ceil(z**2 * spread * effect / difference**2))


# The parts.


def _estimate(votes: Votes, plan: Plan, n_prompts: int, n_people: int) -> Estimate:
    """Prompts weigh alike, however many votes each has so far."""
    _, prompts, counts = np.unique(votes.prompt, return_inverse=True, return_counts=True)
    people = np.unique(votes.person, return_inverse=True)[1]
    weights = 1.0 / (n_prompts * counts[prompts])
    mean = float(weights @ votes.score)
    parts = two_way_variances(weights * (votes.score - mean), prompts, people)
    variance = parts.two_way
    asked = plan.prompts / (plan.prompts + plan.alike)  # the rest is ½ for sure
    value = 0.5 + asked * (mean - 0.5)
    df = max(min(n_prompts, n_people) - 1, 1)
    error = asked * math.sqrt(variance)
    bare = Estimate(
        value=value,
        error=error or None,
        by_people=asked**2 * max(parts.by_person - parts.by_both, 0.0),
        df=df,
    )
    if plan.is_exact:
        return _exact(bare, votes, plan.alpha, asked)
    if n_people < LEAST_PEOPLE or n_prompts < LEAST_PROMPTS:
        return bare
    if np.ptp(votes.score) == 0:
        return _of_one_mind(bare, mean, asked, plan.alpha, min(n_prompts, n_people))
    once = float(stdtrit(df, 0.975)) * error
    held = float(stdtrit(df, 1 - plan.alpha / 2)) * error
    if plan.stopping == Stopping.ANY_TIME:
        # Few people make the standard error itself uncertain: t in place of the normal quantile.
        few = float(stdtrit(df, 0.975)) / NormalDist().inv_cdf(0.975)
        held = sequence_factor(n_prompts, plan.prompts, plan.alpha) * few * error
    low, high = max(value - held, 0.0), min(value + held, 1.0)
    at_once = max(value - once, 0.0), min(value + once, 1.0)
    return replace(bare, low=low, high=high, once_low=at_once[0], once_high=at_once[1])


def _of_one_mind(bare: Estimate, mean: float, asked: float, alpha: float, units: int) -> Estimate:
    """The interval where all votes are alike, so that no variance can be seen.

    Of units that all say one thing, a share u = 1 − (α/2)^(1/units) at most says another, and that
    lies anywhere in [0, 1]. It holds at every look: were the share larger, betting all on agreement
    would multiply a stake by 2/α with probability α/2 at most (Ville's inequality).
    """

    def bounds(alpha: float) -> tuple[float, float]:
        other = 1 - (alpha / 2) ** (1 / units)
        ends = mean * (1 - other), mean * (1 - other) + other
        return 0.5 + asked * (ends[0] - 0.5), 0.5 + asked * (ends[1] - 0.5)

    (low, high), (once_low, once_high) = bounds(alpha), bounds(ALPHA)
    return replace(bare, low=low, high=high, once_low=once_low, once_high=once_high)


def _exact(bare: Estimate, votes: Votes, alpha: float, asked: float) -> Estimate:
    rows = apart(votes.prompt, votes.person)
    if len(rows) < LEAST_EXACT:
        return replace(bare, exact_votes=len(rows))

    def bounds(alpha: float) -> tuple[float, float]:
        found = (0.5 + asked * (end - 0.5) for end in exact_interval(votes.score[rows], alpha))
        low, high = found
        return min(low, bare.value), max(high, bare.value)

    (low, high), (once_low, once_high) = bounds(alpha), bounds(ALPHA)
    return replace(
        *(bare,),
        low=low,
        high=high,
        once_low=once_low,
        once_high=once_high,
        exact_votes=len(rows),
    )


def apart(prompt: Ints, person: Ints) -> Ints:
    """Places of votes that share neither prompt nor person, taken in the order in which they came:
    each that is the first of its prompt and of its person among those taken."""
    prompts: set[int] = set()
    people: set[int] = set()
    found = []
    for place, (p, a) in enumerate(zip(prompt.tolist(), person.tolist(), strict=True)):
        if p not in prompts and a not in people:
            prompts.add(p)
            people.add(a)
            found.append(place)
    return np.array(found, dtype=np.int64)


def exact_interval(score: Floats, alpha: float = ALPHA) -> tuple[float, float]:
    """Where the mean of independent scores in [0, 1] lies, exactly, however few and however often
    one looks.

    {m : ∫₀¹ Π_v (q y_v / m + (1 − q)(1 − y_v) / (1 − m)) dq < 1/α}. For each q the product is a
    stake that is bet on the scores and has expectation 1 where the mean is m, so by Ville's
    inequality it ever reaches 1/α with probability α at most. Sources: Robbins, Annals of
    Mathematical Statistics 41 (1970); Waudby-Smith & Ramdas, "Estimating means of bounded random
    variables by betting", J. Royal Statistical Society B 86 (2024). Assumes independent scores
    (`apart`), and nothing else. With all alike LEAST_EXACT are the fewest that exclude ½ at 5 %.
    """
    if not len(score):
        return 0.0, 1.0
    values, times = np.unique(score, return_counts=True)

    def outside(m: float) -> bool:
        return float(_log_stake(_log_bets(values, m) @ times)) >= -math.log(alpha)

    mean = min(max(float(score.mean()), _NEAR), 1 - _NEAR)
    ends = []
    for end, last in ((0.0, _NEAR), (1.0, 1 - _NEAR)):
        if not outside(last):
            ends.append(end)
            continue
        inside, beyond = mean, last
        for _ in range(40):
            middle = (inside + beyond) / 2
            inside, beyond = (inside, middle) if outside(middle) else (middle, beyond)
        ends.append(beyond)
    return ends[0], ends[1]


def stake_path(score: Floats, mean: float) -> Floats:
    """(n,) logarithm of the stake of `exact_interval` against a mean, after each score.

    score: (n,) in [0, 1], in the order in which they came; mean: in (0, 1). Where it is −ln α or
    more, the mean lies outside the interval of the scores up to there; where that is the true mean,
    this happens in a share α of all sequences at most, however long. Assumes independent scores.
    """
    if not 0 < mean < 1:
        raise ValueError(f"mean must lie between 0 and 1, not {mean}")
    return _log_stake(np.cumsum(_log_bets(np.asarray(score, dtype=np.float64), mean), axis=1))


def _log_bets(values: Floats, m: float) -> Floats:
    """(nodes, n) logarithm of what each share q makes of each value."""
    q = _SHARES[:, None]
    return np.asarray(np.log(q * values / m + (1 - q) * (1 - values) / (1 - m)))


def _log_stake(logs: Floats) -> Floats:
    """(…) of (nodes, …): the logarithm of the mean over q. It is a bet whatever the number of
    nodes, since their weights add up to 1."""
    most = logs.max(axis=0)
    return np.asarray(most + np.log(_WEIGHTS @ np.exp(logs - most)))


def _verdict(
    votes: Votes, plan: Plan, estimate: Estimate | None, n_prompts: int, n_people: int, told: bool
) -> Verdict:
    if one_sided(votes.left):
        return Verdict.ONE_SIDED
    if plan.stopping == Stopping.AT_THE_END and not told:
        return Verdict.WAITING
    least_people, least_prompts = least_of(plan)
    if n_people < least_people:
        return Verdict.TOO_FEW_PEOPLE if told or len(votes) else Verdict.WAITING
    if n_prompts < least_prompts:
        return Verdict.TOO_FEW_PROMPTS
    if estimate is None or estimate.low is None or estimate.high is None:
        return Verdict.NOT_DECIDED if told else Verdict.UNDECIDED
    if estimate.low > 0.5:
        return Verdict.BETTER
    if estimate.high < 0.5:
        return Verdict.WORSE
    if estimate.low > 0.5 - plan.margin and estimate.high < 0.5 + plan.margin:
        return Verdict.NO_DIFFERENCE
    return Verdict.NOT_DECIDED if told else Verdict.UNDECIDED


def one_sided(left: Floats) -> bool:
    """Whether the sides are so uneven that they were not drawn: left of LEAST_SIDES votes or more,
    over SIDE_DEVIATIONS standard deviations from half. Votes whose sides nobody knows (imports) are
    not judged."""
    known = left[~np.isnan(left)]
    if len(known) < LEAST_SIDES:
        return False
    return abs(float(known.sum()) - len(known) / 2) > SIDE_DEVIATIONS * math.sqrt(len(known)) / 2


def outcomes_of(votes: Votes) -> dict[str, int]:
    """Votes by `OUTCOMES`."""
    return {
        "win": int((votes.score == 1).sum()),
        "tie": int(((votes.score == 0.5) & ~votes.both_bad).sum()),
        "both_bad": int(votes.both_bad.sum()),
        "loss": int((votes.score == 0).sum()),
    }


def _pull(votes: Votes) -> float | None:
    """How far the left answer is preferred over half, among votes that prefer one: the mean over
    the two sides that the first system can have, so that a better system is no pull."""
    decided = (votes.score != 0.5) & ~np.isnan(votes.left)
    rates = []
    for side in (0.0, 1.0):
        here = decided & (votes.left == side)
        if not here.any():
            return None
        chose_left = votes.score[here] == side
        rates.append(float(chose_left.mean()))
    return sum(rates) / 2 - 0.5


def people_needed(estimate: Estimate | None, plan: Plan, n_people: int) -> int | None:
    """How many would make the interval of a single look as narrow as the margin: A' people with
    t(.975, A' − 1) · √(by_people · A / A') = margin; None where it
    is now, or no number under MOST_PEOPLE does it."""
    if n_people < least_of(plan)[0]:
        return least_of(plan)[0]
    if estimate is None or not estimate.by_people:
        return None

    def half(people: int) -> float:
        spread = math.sqrt(estimate.by_people * n_people / people)
        return float(stdtrit(people - 1, 0.975)) * spread

    if half(n_people) <= plan.margin:
        return None
    return next((a for a in range(n_people + 1, MOST_PEOPLE) if half(a) <= plan.margin), None)


def _flips(votes: Votes) -> int | None:
    """The fewest votes of one person whose removal takes the plain mean over ½ or onto it."""
    ahead = float((votes.score - 0.5).sum())
    if not len(votes) or ahead == 0:
        return None
    needed = math.ceil(abs(ahead) / 0.5)
    mine = votes.score == (1.0 if ahead > 0 else 0.0)
    people = np.unique(votes.person[mine], return_counts=True)[1]
    return needed if len(people) and people.max() >= needed else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
