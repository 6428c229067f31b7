"""Everything about single annotators in one pass over the votes: figures, tests, flags."""

from dataclasses import dataclass, field

import numpy as np

from measures.annotators.agreeing import Agreement, Drift, agreement_of, drift_of, places_of
from measures.annotators.work import (
    TIE,
    Bools,
    Floats,
    Ints,
    Means,
    Others,
    Repeats,
    Work,
    means_by,
    others_of,
)

# Whether somebody chooses the longer answer more often than their judgement explains.
#
# Where longer answers are better, a good judge chooses them oftener than the others do: to be
# beside the others is not enough. What is expected of an honest person is scaled by how far they
# agree.

LEAST_COMPARED = 30  # pairs with two other votes for a side
# The others' agreement above one half, in its standard errors: a ratio to less than that is noise.
LEAST_SURE = 4.0
# Somebody right in 95 % among people right in 60 % agrees by (0.95 − ½) / (0.6 − ½) as much.
MOST_RATIO = 4.5


@dataclass(frozen=True, slots=True)
class Longer:
    """own, others: means of choosing the longer answer, on pairs that both chose on; expected: (J,)
    what an honest person who agrees with the others as far would show; difference: own less
    expected; judged: (J,) whether the others agree clearly enough for r to be measured.
    """

    own: Means
    others: Means
    expected: Floats
    difference: Means
    judged: Bools


def longer_of(work: Work, others: Others) -> Longer:
    """expected = ½ + r (m − ½), m the others' share of the longer answer on the same pairs.

    r = (agreement with the others − ½) / (the others' agreement among themselves − ½) on those
    pairs, votes for A or B only. If each person k is pulled to the better answer of a pair in
    proportion, δ_kp = r_k δ_p with δ = 2 P(chooses A) − 1, the share of longer answers less ½ is
    proportional to r_k too, however hard the pairs and however often the longer one is better. The
    error of the difference includes that of r (delta method, pairs independent).

    The others' agreement is taken from the same pairs if it is above one half by `LEAST_SURE`
    standard errors there, else from all votes in the project but the person's. Where that is not
    sure either, r is taken to be MOST_RATIO (or 0, whichever expects more), so that a good judge
    among weak ones is let pass; beside coin-flippers they would seem to have a length bias.
    """
    n_people = work.n_people
    own = np.where(work.longer >= 0, work.longer, np.nan).astype(np.float64)
    there = ~np.isnan(own) & ~np.isnan(others.longer)
    own, theirs = np.where(there, own, np.nan), np.where(there, others.longer, np.nan)
    same = np.where(there, others.side_same - 0.5, np.nan)
    alike = np.where(there, others.side_alike - 0.5, np.nan)

    among = means_by(work.who, alike, n_people)
    here = (among.n >= LEAST_COMPARED) & (among.mean > LEAST_SURE * among.error)
    everywhere, error = _without_each(work, there, others.side_same)
    signal = np.where(here, among.mean, everywhere)
    judged = here | (everywhere > LEAST_SURE * error)
    compared = np.where(here[work.who], alike, signal[work.who])
    rows = np.where(np.isnan(compared), np.nan, same)
    agrees = means_by(work.who, rows, n_people)

    first, second = means_by(work.who, own, n_people), means_by(work.who, theirs, n_people)
    lean = second.mean - 0.5
    measured = np.divide(agrees.mean, signal, out=np.full(n_people, np.nan), where=judged)
    ratio = np.where(judged, measured, np.where(lean > 0, MOST_RATIO, 0.0))
    expected = np.clip(0.5 + ratio * lean, 0.0, 1.0)
    gap = first.mean - expected
    residual = (own - 0.5) - ratio[work.who] * (theirs - 0.5)
    centre = means_by(work.who, residual, n_people).mean
    part = np.nan_to_num((residual - centre[work.who]) / first.n[work.who])
    # What is not known of r: this person's agreement, and (from other pairs) that of the others.
    unit = np.divide(lean, signal, out=np.zeros(n_people), where=judged)
    about = (rows - ratio[work.who] * compared) / agrees.n[work.who]
    part -= np.nan_to_num(unit[work.who] * about)
    spread = np.bincount(work.who, weights=part**2, minlength=n_people)
    spread = spread + np.where(judged & ~here, (unit * ratio * np.nan_to_num(error)) ** 2, 0.0)
    deviation = np.where(np.isnan(first.error), np.nan, np.sqrt(spread))
    return Longer(first, second, expected, Means.of(first.n, gap, deviation), judged)


def _without_each(work: Work, there: Bools, side_same: Floats) -> tuple[Floats, Floats]:
    """(J,) agreement above one half over all pairs of votes that a person is no part of, and its
    standard error."""
    n_pairs = int(work.pair.max()) + 1 if len(work) else 0
    pair, who = work.pair[there], work.who[there]
    rest = np.bincount(pair, minlength=n_pairs)[pair] - 1.0  # others that chose a side too
    agreeing = side_same[there] * rest
    n = rest.sum() / 2 - np.bincount(who, weights=rest, minlength=work.n_people)
    hits = agreeing.sum() / 2 - np.bincount(who, weights=agreeing, minlength=work.n_people)
    share = np.divide(hits, n, out=np.full(work.n_people, np.nan), where=n >= LEAST_COMPARED)
    error = np.sqrt(np.maximum(share * (1 - share), 0) / np.maximum(n, 1))
    return share - 0.5, error


FAST_MS = 2_000
# Seconds: the bins of the histogram of speed, a factor √2 apart; the last is open.
SPEED_EDGES = tuple(float(x) for x in 0.5 * 2 ** (np.arange(21) / 2))
MOST_BINS, LEAST_IN_BIN = 12, 20  # of agreement over time


@dataclass(frozen=True, slots=True)
class Counts:
    """(J,) how many of how many."""

    hits: Ints
    n: Ints


@dataclass(frozen=True, slots=True)
class Compared:
    """What a person did on pairs that others voted on too, what those did, and the difference."""

    own: Means
    others: Means
    difference: Means


@dataclass(frozen=True, slots=True)
class Crowd:
    """Everybody's figures as arrays over people; `apps.agreement.reports` words them.

    left, fast, gold: counts. gold_others: share of the others that are right on the same gold
    pairs. same, kept_side: of two-sided repeats, how many got the same answer again, and how many
    the same side (that is, the other answer). median_ms: NaN without times. timeline: (J,
    MOST_BINS) means of agreement with others in parts of equal size. speeds: (J,
    len(SPEED_EDGES) + 1) answers per bin. ordered: as `Work.ordered`.
    """

    n_votes: Ints
    median_ms: Floats
    fast: Counts
    left: Counts
    neither: Compared
    longer: Longer
    gold: Counts
    gold_others: Floats
    same: Counts
    kept_side: Counts
    n_repeats: Ints
    agreement: Agreement
    drift: Drift
    timeline: Means
    n_bins: Ints
    speeds: Ints
    ordered: Bools
    fast_ms: int = field(default=FAST_MS)


def crowd_figures(work: Work, repeats: Repeats | None = None, *, fast_ms: int = FAST_MS) -> Crowd:
    """All figures of J people from n votes, in array operations over the votes."""
    others = others_of(work)
    n_people = work.n_people

    def count(hit: Bools, there: Bools) -> Counts:
        return Counts(
            hits=np.bincount(work.who[hit & there], minlength=n_people),
            n=np.bincount(work.who[there], minlength=n_people),
        )

    agreement = agreement_of(work, others)
    timed = work.active_ms >= 0
    again = repeats or Repeats(*[np.empty(0, np.int64)] * 5)
    sided = (again.first_left >= 0) & (again.again_left >= 0)
    bins, timeline = _timeline(work, others)

    def of_repeats(hit: Bools) -> Counts:
        return Counts(
            hits=np.bincount(again.who[sided & hit], minlength=n_people),
            n=np.bincount(again.who[sided], minlength=n_people),
        )

    return Crowd(
        n_votes=np.bincount(work.who, minlength=n_people),
        median_ms=_medians(work.who[timed], work.active_ms[timed], n_people),
        fast=count(work.active_ms < fast_ms, timed),
        left=count(work.left == 1, work.left >= 0),
        neither=_compared(work, (work.choice >= TIE).astype(np.float64), others.neither),
        longer=longer_of(work, others),
        gold=count(work.choice == work.gold, work.gold >= 0),
        gold_others=means_by(work.who, others.right, n_people).mean,
        same=of_repeats(again.first == again.again),
        kept_side=of_repeats(again.first_left == again.again_left),
        n_repeats=np.bincount(again.who, minlength=n_people),
        agreement=agreement,
        drift=drift_of(work, others, agreement.same_pairs),
        timeline=timeline,
        n_bins=bins,
        speeds=_speeds(work.who[timed], work.active_ms[timed], n_people),
        ordered=np.ones(n_people, dtype=bool) if work.ordered is None else work.ordered,
        fast_ms=fast_ms,
    )


def _compared(work: Work, own: Floats, others: Floats) -> Compared:
    there = ~np.isnan(own) & ~np.isnan(others)
    own, others = np.where(there, own, np.nan), np.where(there, others, np.nan)
    return Compared(*(means_by(work.who, x, work.n_people) for x in (own, others, own - others)))


def _medians(who: Ints, values: Ints, n_people: int) -> Floats:
    order = np.lexsort((values, who))
    n = np.bincount(who, minlength=n_people)
    there = n > 0
    start = (np.cumsum(n) - n)[there]
    lower, upper = start + (n[there] - 1) // 2, start + n[there] // 2
    medians = np.full(n_people, np.nan)
    medians[there] = (values[order[lower]] + values[order[upper]]) / 2
    return medians


def _speeds(who: Ints, ms: Ints, n_people: int) -> Ints:
    width = len(SPEED_EDGES) + 1
    place = np.searchsorted(np.array(SPEED_EDGES) * 1000, ms, side="right")
    return np.bincount(who * width + place, minlength=n_people * width).reshape(n_people, width)


def _timeline(work: Work, others: Others) -> tuple[Ints, Means]:
    """How many parts each person's votes make, and agreement in each; rows are in cast order."""
    rows = np.where(work.random & work.in_order, others.same, np.nan)
    there = ~np.isnan(rows)
    who = work.who[there]
    n = np.bincount(who, minlength=work.n_people)
    bins = np.minimum(n // LEAST_IN_BIN, MOST_BINS)
    place = np.minimum(places_of(who, work.n_people), 1 - 1e-9) * bins[who]
    cell = who * MOST_BINS + place.astype(np.int64)
    found = means_by(cell, rows[there], work.n_people * MOST_BINS)
    return bins, found.reshape(work.n_people, MOST_BINS)
