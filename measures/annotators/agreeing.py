"""How far each person agrees with the others, in comparison with how far those agree among
themselves, and whether that changes while they work. On pairs drawn at random only."""

from dataclasses import dataclass

import numpy as np

from measures.annotators.work import (
    BOTH_BAD,
    TIE,
    Bools,
    Floats,
    Ints,
    Means,
    Others,
    Work,
    means_by,
)

# Pairs with two other votes, from which the others' agreement is taken on the same pairs.
LEAST_COMPARED = 30
# The others must agree by so much more than chance would make them, lower bound included.
LEAST_SIGNAL = 0.05
# Somebody right in 60 % of clear-cut pairs, among people right in 90 %, reaches ¼; a coin 0.
LEAST_SKILL = 0.25
THIRD = 20  # votes in the first and in the last third, at least
MOST_FALL = 0.05  # agreement with others may fall by so much from the first third to the last


@dataclass(frozen=True, slots=True)
class Agreement:
    """(J,) each; NaN where it cannot be known.

    others: share of the other votes on the person's pairs that chose the same, averaged over pairs.
    among: how far the others agree among themselves; same_pairs: on this person's pairs (else on
    the project's other pairs). chance: how far somebody with this person's share of ties who does
    not look would agree. skill = (agreement − chance) / (among − its chance): 1 like the others,
    0 a coin, −1 the reverse of them; skill_low, skill_high its 95 % interval. p: of skill ≥
    LEAST_SKILL. solid: whether the others agree enough among themselves for a skill.
    """

    others: Means
    among: Floats
    same_pairs: Bools
    chance: Floats
    skill: Floats
    skill_low: Floats
    skill_high: Floats
    p: Floats
    n_skill: Ints
    solid: Bools


def agreement_of(work: Work, others: Others) -> Agreement:
    """Leave-one-out agreement of each person, and the skill that it amounts to.

    skill estimates E[δ_k δ̄] / E[δ̄²], δ = 2 P(right) − 1 (two-way votes; in general the excess over
    chance): on the same pairs both share how hard the pairs are, so a person who gets harder pairs
    is not marked down. Chance is that of a vote cast without looking: A and B are drawn onto sides,
    so such a vote falls on either alike, whatever share A has in the data.

    Assumes that votes on a pair are independent given the pair, and that most of the others try.
    Where most pairs have only two votes, neither can be told to be the odd one on a pair, and the
    person is compared with the pairs of other people: undefined with fewer than two of those.
    """
    n_people = work.n_people
    same = np.where(work.random, others.same, np.nan)
    alike = np.where(work.random, others.alike, np.nan)
    there = ~np.isnan(same)
    chance, chance_among = _chance(work, there)
    both = there & ~np.isnan(alike)
    here = means_by(work.who, np.where(both, same, np.nan), n_people)
    same_pairs = here.n >= LEAST_COMPARED
    beside = means_by(work.who, np.where(both, alike, np.nan), n_people)
    elsewhere, elsewhere_error = _elsewhere(work, others, n_people)
    everywhere = means_by(work.who, same, n_people)

    among = np.where(same_pairs, beside.mean, elsewhere)
    among_error = np.where(same_pairs, beside.error, elsewhere_error)
    signal = among - chance_among
    solid = signal - 1.96 * among_error > LEAST_SIGNAL
    own = np.where(same_pairs, here.mean, everywhere.mean)
    skill = np.where(solid, (own - chance) / np.where(solid, signal, 1.0), np.nan)

    rows = np.where(same_pairs[work.who], np.where(both, same, np.nan), same)
    compared = np.where(same_pairs[work.who], alike, among[work.who])
    least = np.full(n_people, LEAST_SKILL)
    short = means_by(work.who, _gap(work, rows, compared, chance, chance_among, least), n_people)
    about = means_by(work.who, _gap(work, rows, compared, chance, chance_among, skill), n_people)
    error = about.error / np.where(solid, signal, 1.0)
    known = solid & (short.n >= LEAST_COMPARED)
    margin = 1.96 * error
    return Agreement(
        others=everywhere,
        among=among,
        same_pairs=same_pairs,
        chance=chance,
        skill=np.where(known, skill, np.nan),
        skill_low=np.where(known, skill - margin, np.nan),
        skill_high=np.where(known, skill + margin, np.nan),
        p=np.where(known, short.p_below(0.0), np.nan),
        n_skill=short.n,
        solid=solid,
    )


def _gap(
    work: Work, same: Floats, among: Floats, chance: Floats, chance_among: float, skill: Floats
) -> Floats:
    """Per vote: agreement above chance, less what `skill` of the others' would be."""
    return (same - chance[work.who]) - skill[work.who] * (among - chance_among)


def _chance(work: Work, there: Bools) -> tuple[Floats, float]:
    """(J,) agreement by chance of each person with the others, and of the others by themselves."""
    who, choice = work.who[there], work.choice[there]
    n = np.maximum(np.bincount(who, minlength=work.n_people), 1)
    tie = np.bincount(who[choice == TIE], minlength=work.n_people) / n
    bad = np.bincount(who[choice == BOTH_BAD], minlength=work.n_people) / n
    total = max(len(choice), 1)
    all_tie, all_bad = (choice == TIE).sum() / total, (choice == BOTH_BAD).sum() / total
    sided = 1 - all_tie - all_bad
    own = (1 - tie - bad) * sided / 2 + tie * all_tie + bad * all_bad
    return own, float(sided**2 / 2 + all_tie**2 + all_bad**2)


def _elsewhere(work: Work, others: Others, n_people: int) -> tuple[Floats, Floats]:
    """(J,) mean agreement on the random pairs that a person did not vote on, and its error."""
    random = work.random & ~np.isnan(others.same)
    n_pairs = int(work.pair.max()) + 1 if len(work) else 0
    votes = np.bincount(work.pair[random], minlength=n_pairs)
    total = np.bincount(work.pair[random], weights=others.same[random], minlength=n_pairs)
    of_pair = np.divide(total, votes, out=np.zeros(n_pairs), where=votes > 0)
    mine = of_pair[work.pair[random]]
    who = work.who[random]
    n = (votes > 0).sum() - np.bincount(who, minlength=n_people)
    left = of_pair.sum() - np.bincount(who, weights=mine, minlength=n_people)
    mean = np.divide(left, n, out=np.full(n_people, np.nan), where=n >= LEAST_COMPARED)
    return mean, np.sqrt(np.maximum(mean * (1 - mean), 0) / np.maximum(n, 1))


@dataclass(frozen=True, slots=True)
class Drift:
    """(J,) first, last: agreement in the first and last third of a person's votes; change, its 95 %
    bounds; p: of a fall by at most MOST_FALL; n: votes counted. Where the others' agreement on the
    same pairs is known, the change is that of the difference to it (hard pairs fall to all)."""

    first: Means
    last: Means
    change: Floats
    low: Floats
    high: Floats
    p: Floats
    n: Ints


def drift_of(work: Work, others: Others, same_pairs: Bools) -> Drift:
    """Welch's comparison of the two thirds; undefined under `THIRD` votes in each."""
    rows = np.where(work.random & work.in_order, others.same, np.nan)
    adjusted = np.where(same_pairs[work.who], rows - others.alike, rows)
    there = ~np.isnan(adjusted)
    part = np.full(len(work), 1.0)
    part[there] = places_of(work.who[there], work.n_people)
    early, late = there & (part < 1 / 3), there & (part >= 2 / 3)

    def of(which: Bools, values: Floats) -> Means:
        return means_by(work.who, np.where(which, values, np.nan), work.n_people)

    before, after = of(early, adjusted), of(late, adjusted)
    enough = (before.n >= THIRD) & (after.n >= THIRD)
    change = np.where(enough, after.mean - before.mean, np.nan)
    error = np.hypot(before.error, after.error)
    both = Means.of(before.n + after.n - 1, change, error)
    return Drift(
        first=of(early, rows),
        last=of(late, rows),
        change=change,
        low=both.low,
        high=both.high,
        p=np.where(enough, both.p_below(-MOST_FALL), np.nan),
        n=np.bincount(work.who[there], minlength=work.n_people),
    )


def places_of(who: Ints, n_people: int) -> Floats:
    """(n,) where each vote stands among its person's, from 0 up to (not including) 1."""
    order = np.argsort(who, kind="stable")
    n = np.bincount(who, minlength=n_people)
    start = np.cumsum(n) - n
    place = np.empty(len(who))
    place[order] = np.arange(len(who)) - start[who[order]]
    return place / np.maximum(n, 1)[who]
