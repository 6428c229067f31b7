"""Which of several systems is better, by votes of people that are looked at while they come in?

A vote compares two of the systems' answers to one prompt. Strengths are those of Bradley and Terry,
by the fit of `measures.model_ranking`; every difference of two systems is tested, and all of them
together make at most alpha false calls, however often anybody looks.

The rule of looks: for each difference an anytime-valid p-value from the same asymptotic confidence
sequence that two systems are decided by, then Holm over all pairs. Holm needs nothing of how the
p-values hang together, and p-values that hold at every look may be put into it at any of them.
Spending alpha over planned looks would be narrower for a few of them, but a page that anybody may
open has no plan of looks.

    n votes, M systems, m = M (M − 1) / 2 differences; system BASELINE is what others are set beside
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, stdtr, stdtrit

from measures.head_to_head import (
    ALPHA,
    Difference,
    Estimate,
    Floats,
    Habit,
    Plan,
    Result,
    Several,
    Standing,
    Stopping,
    Verdict,
    effective_number,
    mixture_at,
    one_sided,
    people_needed,
)
from measures.model_ranking import (
    CONTROLS,
    LEAST_PEOPLE,
    LEAST_PROMPTS,
    NOT_CONNECTED,
    Gaps,
    ModelVotes,
    meetings,
    strength_gaps,
)

LEAST_SYSTEMS, MOST_SYSTEMS = 3, 8
BASELINE = 1
MOST_CHECKED = 6  # ways to turn the first place that are tried by fitting again


def several_result(votes: ModelVotes, plan: Plan, *, ended: bool = False) -> Result:
    """What the votes say under the plan; `several` holds systems and differences, `estimate` system
    0 against the baseline, `flips` the fewest votes of one person found without which another
    system stands first (by their influence on the fit, and checked by fitting again).

    A tie is half a win for both; votes that both answers are bad say nothing about which is better
    and are counted beside. Nothing is concluded under LEAST_PEOPLE people, or while a system has
    votes on fewer than LEAST_PROMPTS prompts, or sides are so uneven that nobody drew them, or
    votes do not connect all systems, or one won or lost all of its votes (no bound).
    """
    people = np.unique(votes.person, return_counts=True)[1].astype(float)
    left = np.where(votes.side == 0, np.nan, votes.side + 0.5)
    gaps, held = strength_gaps(votes), strength_gaps(votes, controls=CONTROLS)
    n_prompts, told = len(np.unique(votes.prompt)), ended or len(votes) >= plan.votes
    enough = len(people) >= LEAST_PEOPLE and least_prompts(votes) >= LEAST_PROMPTS
    rule = _Rule(plan, n_prompts, min(n_prompts, len(people)), votes.n_models) if enough else None
    several = _several(votes, gaps, held, rule)
    estimate = _estimate(gaps, rule) if not gaps.reason else None
    ties, bad = int((votes.score == 0.5).sum()), int(np.isnan(votes.score).sum())
    result = Result(
        n=len(votes),
        n_prompts=n_prompts,
        n_people=len(people),
        outcomes={"prefers_one": len(votes) - ties - bad, "tie": ties, "both_bad": bad},
        estimate=estimate,
        verdict=Verdict.UNDECIDED,
        effective_people=effective_number(people) if len(people) else None,
        left_share=float(np.nanmean(left)) if (~np.isnan(left)).any() else None,
        pull=None,
        net=None,
        decided_rate=None,
        people_needed=people_needed(estimate, plan, len(people)),
        flips=_flips(votes, gaps, several.first),
        several=several,
    )
    return replace(result, verdict=_verdict(result, several, plan, left, enough, told))


def least_prompts(votes: ModelVotes) -> int:
    """Of all systems, the fewest prompts on which one has votes."""
    return min(
        len(np.unique(votes.prompt[(votes.first == k) | (votes.second == k)]))
        for k in range(votes.n_models)
    )


@dataclass(frozen=True, slots=True)
class _Rule:
    """How wide an interval is, and how small a p-value. units: min(prompts, people)."""

    plan: Plan
    prompts: int
    units: int
    systems: int

    @property
    def df(self) -> int:
        return max(self.units - 1, 1)

    @property
    def each(self) -> float:
        """Alpha of one of the differences, by Bonferroni."""
        return self.plan.alpha / (self.systems * (self.systems - 1) / 2)

    @property
    def _few(self) -> float:
        """Few people make the standard error itself uncertain."""
        t = float(stdtrit(self.df, 1 - self.each / 2))
        return t / float(stdtrit(10**6, 1 - self.each / 2))

    @property
    def _mixture(self) -> float:
        return mixture_at(self.prompts, self.plan.prompts, self.each)

    def half(self, error: float) -> float:
        """Half the width of an interval that holds for all differences together."""
        if self.plan.stopping == Stopping.AT_THE_END:
            return float(stdtrit(self.df, 1 - self.each / 2)) * error
        t = self._mixture
        return (
            self._few * error * math.sqrt(2 * (t + 1) / t * math.log(math.sqrt(t + 1) / self.each))
        )

    def once(self, error: float) -> float:
        return float(stdtrit(self.df, 1 - ALPHA / 2)) * error

    def p(self, gap: float, error: float) -> float:
        """Of no difference: the alpha at which the interval would just touch it."""
        z = abs(gap) / max(error, 1e-12)
        if self.plan.stopping == Stopping.AT_THE_END:
            return float(2 * stdtr(self.df, -z))
        t, z = self._mixture, z / self._few
        return min(1.0, math.sqrt(t + 1) * math.exp(-(z**2) * t / (2 * (t + 1))))


def _several(votes: ModelVotes, gaps: Gaps, held: Gaps, rule: _Rule | None) -> Several:
    size = votes.n_models
    tests = []
    if rule is not None and not gaps.reason:
        tests = sorted(
            (rule.p(gaps.values[i, j], gaps.errors[i, j]), i, j)
            for i in range(size)
            for j in range(i + 1, size)
        )
    above = np.zeros((size, size), dtype=bool)
    for k, (p, i, j) in enumerate(tests):
        if rule is None or p > rule.plan.alpha / (len(tests) - k):
            break
        above[(i, j) if gaps.values[i, j] > 0 else (j, i)] = True
    order = [] if gaps.reason else np.argsort(-gaps.values[:, BASELINE], kind="stable").tolist()
    ps = {(i, j): p for p, i, j in tests}
    met = {(one.first, one.second): one for one in meetings(votes)}
    differences = []
    for i in range(size):
        for j in range(i + 1, size):
            one = met.get((i, j))
            low, high = _bounds(gaps, i, j, rule)
            differences.append(
                Difference(
                    i,
                    j,
                    value=None if gaps.reason else float(expit(gaps.values[i, j])),
                    low=low,
                    high=high,
                    p=ps.get((i, j)),
                    told=bool(above[i, j] or above[j, i]),
                    wins=one.wins if one else 0,
                    losses=one.losses if one else 0,
                    ties=one.ties if one else 0,
                    both_bad=one.both_bad if one else 0,
                )
            )
    return Several(
        [_standing(votes, gaps, held, rule, above, system) for system in order],
        differences,
        _habits(held, rule),
        gaps.reason,
        [list(group) for group in gaps.groups],
        order[0] if order else None,
    )


def _standing(
    votes: ModelVotes, gaps: Gaps, held: Gaps, rule: _Rule | None, above: np.ndarray, system: int
) -> Standing:
    low, high = _bounds(gaps, system, BASELINE, rule)
    once_low, once_high = _bounds(gaps, system, BASELINE, rule, once=True)
    controlled_low, controlled_high = _bounds(held, system, BASELINE, rule)
    return Standing(
        system,
        float(expit(gaps.values[system, BASELINE])),
        *(low, high, once_low, once_high),
        best=1 + int(above[:, system].sum()),
        worst=votes.n_models - int(above[system].sum()),
        controlled=None if held.reason else float(expit(held.values[system, BASELINE])),
        controlled_low=controlled_low,
        controlled_high=controlled_high,
        n=int(((votes.first == system) | (votes.second == system)).sum()),
    )


def _bounds(
    gaps: Gaps, i: int, j: int, rule: _Rule | None, *, once: bool = False
) -> tuple[float | None, float | None]:
    """Of the probability that i beats j; none for the baseline against itself."""
    if gaps.reason or rule is None or i == j:
        return None, None
    error = float(gaps.errors[i, j])
    half = rule.once(error) if once else rule.half(error)
    value = float(gaps.values[i, j])
    return float(expit(value - half)), float(expit(value + half))


def _habits(held: Gaps, rule: _Rule | None) -> list[Habit]:
    if rule is None:
        return []
    return [
        Habit(name, value, value - rule.once(error), value + rule.once(error))
        for name, (value, error) in held.controls.items()
    ]


def _estimate(gaps: Gaps, rule: _Rule | None) -> Estimate:
    """Of system 0 against the baseline, as a probability; its error by the delta method."""
    value = float(expit(gaps.values[0, BASELINE]))
    slope = value * (1 - value)
    low, high = _bounds(gaps, 0, BASELINE, rule)
    once_low, once_high = _bounds(gaps, 0, BASELINE, rule, once=True)
    return Estimate(
        value=value,
        error=slope * float(gaps.errors[0, BASELINE]) or None,
        by_people=slope**2 * float(gaps.by_people[0, BASELINE]),
        df=gaps.df,
        low=low,
        high=high,
        once_low=once_low,
        once_high=once_high,
    )


def _verdict(
    result: Result, several: Several, plan: Plan, left: Floats, enough: bool, told: bool
) -> Verdict:
    if one_sided(left):
        return Verdict.ONE_SIDED
    if not result.n or (plan.stopping == Stopping.AT_THE_END and not told):
        return Verdict.WAITING
    if result.n_people < LEAST_PEOPLE:
        return Verdict.TOO_FEW_PEOPLE
    if not enough:
        return Verdict.TOO_FEW_PROMPTS
    if several.reason == NOT_CONNECTED:
        return Verdict.NOT_CONNECTED
    if several.reason:
        return Verdict.SEPARATED
    if several.standings[0].worst == 1:
        return Verdict.BEST
    bounds = [(one.low, one.high) for one in several.differences]
    inside = (0.5 - plan.margin, 0.5 + plan.margin)
    if all(
        low is not None and high is not None and low > inside[0] and high < inside[1]
        for low, high in bounds
    ):
        return Verdict.NO_DIFFERENCE
    return Verdict.NOT_DECIDED if told else Verdict.UNDECIDED


def _flips(votes: ModelVotes, gaps: Gaps, first: int | None) -> int | None:
    """Each person's votes for the first system over a rival, those with most influence first."""
    if first is None:
        return None
    person = votes.person[gaps.row]
    ways: list[tuple[int, np.ndarray]] = []
    for rival in range(votes.n_models):
        ahead = float(gaps.values[first, rival])
        adds = gaps.pull[:, first] - gaps.pull[:, rival]
        for who in np.unique(person) if rival != first else ():
            mine = np.flatnonzero((person == who) & (adds > 0))
            mine = mine[np.argsort(-adds[mine], kind="stable")]
            needed = int(np.searchsorted(np.cumsum(adds[mine]), ahead)) + 1
            if needed <= len(mine):
                ways.append((needed, gaps.row[mine]))
    ways.sort(key=lambda way: way[0])
    found: int | None = None
    for needed, rows in ways[:MOST_CHECKED]:
        for k in range(max(1, needed - 2), min(len(rows), needed + 2) + 1):
            if found is not None and k >= found:
                break
            kept = np.ones(len(votes), dtype=bool)
            kept[rows[:k]] = False
            again = strength_gaps(votes.only(kept))
            if not again.reason and float(again.values[first].min()) < 0:
                found = k
                break
    return found
