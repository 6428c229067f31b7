"""Everything about single annotators in one pass over the votes: figures, tests, flags."""

from dataclasses import dataclass, field

import numpy as np

from measures.annotators.agreeing import Agreement, Drift, agreement_of, drift_of, places_of
from measures.annotators.lengths import Longer, longer_of
from measures.annotators.moments import Bools, Floats, Ints, Means, means_by
from measures.annotators.work import TIE, Others, Repeats, Work, others_of

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
    """Everybody's figures as arrays over people; `measures.annotators.report` words them.

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
