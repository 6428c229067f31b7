"""Whether somebody chooses the longer answer more often than their judgement explains.

Where longer answers are better, a good judge chooses them oftener than the others do: to be beside
the others is not enough. What is expected of an honest person is scaled by how far they agree.
"""

from dataclasses import dataclass

import numpy as np

from measures.annotators.moments import Bools, Floats, Means, means_by
from measures.annotators.work import Others, Work

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
    among weak ones is let pass; beside coin-flippers they would look like a length-lover.
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
