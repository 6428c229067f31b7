"""The votes that consensus is estimated from, what each label is worth, and labels by counting."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.voting import CHOICES

# Votes as three index vectors, and what each item's votes look like as counts.

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

N_CHOICES = len(CHOICES)


@dataclass(frozen=True, slots=True)
class Votes:
    """One entry per vote: item i got choice c from annotator j.

    items, annotators: (n,) indices from 0, below n_items and n_annotators (either may have entries
    without a vote). choices: (n,) indices into `measures.voting.CHOICES`. known: (4,), A, B
    and every choice that was cast: a choice that nobody made is none that models reckon with. Build
    it with `votes_from`, which checks all this.
    """

    items: Ints
    annotators: Ints
    choices: Ints
    n_items: int
    n_annotators: int
    known: Bools

    def __post_init__(self) -> None:
        lengths = {len(self.items), len(self.annotators), len(self.choices)}
        if len(lengths) != 1:
            raise ValueError(f"items, annotators and choices differ in length: {sorted(lengths)}")
        _check_range("items", self.items, self.n_items)
        _check_range("annotators", self.annotators, self.n_annotators)
        _check_range("choices", self.choices, N_CHOICES)
        if self.known.shape != (N_CHOICES,) or self.known.dtype != np.bool_:
            raise ValueError(f"known must hold {N_CHOICES} truth values")
        if not self.known.any():
            raise ValueError("at least one choice must be known")
        if self.choices.size and not self.known[self.choices].all():
            raise ValueError("a choice was cast that is not known")

    def __len__(self) -> int:
        return len(self.items)

    def subset(self, mask: ArrayLike) -> Self:
        """Those votes only; items and annotators keep their numbers."""
        chosen = np.asarray(mask)
        return type(self)(
            self.items[chosen],
            self.annotators[chosen],
            self.choices[chosen],
            self.n_items,
            self.n_annotators,
            self.known,
        )

    def counts(self) -> Ints:
        """(n_items, 4) votes per item and choice."""
        cells = np.bincount(
            self.items * N_CHOICES + self.choices, minlength=self.n_items * N_CHOICES
        )
        return cells.reshape(self.n_items, N_CHOICES)


def votes_from(
    items: ArrayLike,
    annotators: ArrayLike,
    choices: ArrayLike,
    *,
    n_items: int | None = None,
    n_annotators: int | None = None,
) -> Votes:
    """Checked `Votes` from any integer vectors.

    n_items, n_annotators: None for one more than the largest index. A wrong index is a ValueError.
    What the label screen offered does not matter: a choice that nobody made, offered or not, says
    nothing of who is reliable, and models that reckon with it spread their doubt over it.
    """
    item, annotator, choice = (
        _indices(name, values)
        for name, values in (("items", items), ("annotators", annotators), ("choices", choices))
    )
    _check_range("choices", choice, N_CHOICES)
    known = np.array([True, True, False, False])
    known |= np.bincount(choice, minlength=N_CHOICES) > 0
    return Votes(
        item,
        annotator,
        choice,
        _size(item) if n_items is None else n_items,
        _size(annotator) if n_annotators is None else n_annotators,
        known,
    )


def _indices(name: str, values: ArrayLike) -> Ints:
    vector = np.asarray(values)
    if vector.ndim != 1:
        raise ValueError(f"{name} must be a vector, not of shape {vector.shape}")
    if vector.size and not np.issubdtype(vector.dtype, np.integer):
        raise ValueError(f"{name} must be whole numbers, not {vector.dtype}")
    return vector.astype(np.int64, copy=False)


def _size(vector: Ints) -> int:
    return int(vector.max()) + 1 if vector.size else 0


def _check_range(name: str, values: Ints, limit: int) -> None:
    if values.size and (values.min() < 0 or values.max() >= limit):
        raise ValueError(f"{name} must lie between 0 and {limit - 1}")


# One Bayes step: what the votes on an item say, given how each annotator votes.
#
# Everything a model of the voters has learned is its priors and one confusion matrix per annotator;
# this step turns them and the votes into posteriors. The fits end with it, the web application
# repeats it for the one comparison whose votes have changed, and both get the same numbers.

Floats = NDArray[np.float64]
Labels = NDArray[np.int8]

# Two posteriors or shares closer than this are the same number, differently rounded.
SAME = 1e-9


def posteriors_of(
    votes: Votes, priors: ArrayLike, confusion: ArrayLike, default: ArrayLike
) -> Floats:
    """(n_items, 4) P(truth k | an item's votes) ∝ prior_k Π_v confusion[annotator_v, k, choice_v].

    priors: (4,) summing to 1, 0 where a choice is not known. confusion: (m, 4, 4), of annotator j
    P(vote c | truth k) at [j, k, c]; default: (4, 4), used for every annotator numbered m or more.
    Assumes that annotators err independently given the truth.

    An item without votes gets the priors. A vote that is impossible under every truth with a
    positive prior (a choice the model never saw) says nothing and is passed over; contradicting
    votes that are impossible only together leave the priors.
    """
    prior = np.asarray(priors, dtype=np.float64)
    matrices = np.concatenate(
        [
            np.asarray(confusion, dtype=np.float64).reshape(-1, 4, 4),
            np.asarray(default, dtype=np.float64)[None],
        ]
    )
    known = prior > 0
    # [annotator, choice, truth], so that a vote's row lies together
    by_vote = np.ascontiguousarray(matrices.transpose(0, 2, 1))
    by_vote[by_vote[:, :, known].max(axis=2, initial=0.0) <= 0] = 1.0
    with np.errstate(divide="ignore"):
        rows = np.log(by_vote).reshape(-1, 4)
        score = np.log(prior)
    annotator = np.minimum(votes.annotators, len(matrices) - 1)
    cell = annotator * 4 + votes.choices
    scores = np.full((votes.n_items, 4), -np.inf)
    for k in np.flatnonzero(known):
        scores[:, k] = score[k] + np.bincount(
            votes.items, weights=rows[cell, k], minlength=votes.n_items
        )
    impossible = ~np.isfinite(row_max(scores))
    scores[impossible] = score
    return softmax(scores)


def softmax(scores: Floats) -> Floats:
    """Rows of log-weights to rows that sum to 1; −inf becomes exactly 0."""
    weights = np.exp(scores - row_max(scores)[:, None])
    weights /= (weights @ np.ones(weights.shape[1]))[:, None]
    return weights


def row_max(table: Floats) -> Floats:
    """(n,) largest entry per row of (n, K), by columns: ten times faster than along the axis."""
    largest = table[:, 0].copy()
    for column in table.T[1:]:
        np.maximum(largest, column, out=largest)
    return largest


def winners(scores: ArrayLike) -> Labels:
    """(n,) index of the largest entry per row, −1 where it is not alone (or the row is empty).

    scores: (n, 4) posteriors, shares or counts. Entries closer than 1e-9 count as equal: a tie is
    never broken by the rounding of the last digit, nor at random.
    """
    table = np.asarray(scores, dtype=np.float64)
    top = table.max(axis=1, initial=0.0)
    alone = (table >= top[:, None] - SAME).sum(axis=1) == 1
    return np.where(alone & (top > 0), table.argmax(axis=1), -1).astype(np.int8)


def share_right(scores: ArrayLike, gold: ArrayLike) -> Floats:
    """(n,) 1 where the largest entry is the gold one, 1/m where it is one of m equal ones, else 0.

    scores: (n, 4); gold: (n,) index, or −1 where none is known (NaN there). The convention by which
    methods that leave ties open are compared with those that do not.
    """
    table, truth = np.asarray(scores, dtype=np.float64), np.asarray(gold, dtype=np.int64)
    tops = table >= table.max(axis=1, keepdims=True, initial=0.0) - SAME
    right = tops[np.arange(len(truth)), truth] / tops.sum(axis=1)
    return np.where(truth >= 0, right, np.nan)


# Majority and Wawa: labels by counting, with vote ties left visible.


@dataclass(frozen=True, slots=True)
class Counted:
    """shares: (n_items, 4), rows sum to 1, all 0 without votes; winner: (n_items,) index into
    `CHOICES`, −1 at a tie or without votes; weights: (n_annotators,) what one vote counted.
    """

    shares: Floats
    winner: Labels
    weights: NDArray[np.float64]


def majority(votes: Votes) -> Counted:
    """Every vote counts 1; a tie of votes has no winner."""
    return _counted(votes, np.ones(votes.n_annotators))


def wawa(votes: Votes) -> Counted:
    """Worker agreement with aggregate: a vote counts as much as its annotator agrees with majority.

    Weight of annotator j: the mean over j's votes of 1 where the majority of that item is j's
    choice, 1/m at a tie of m that holds it, else 0 (j's own vote is in that majority). Source:
    crowd-kit's `Wawa`; departure: it breaks ties of votes before it counts agreement. An annotator
    without votes has weight 0.
    """
    counts = votes.counts()
    tops = (counts == counts.max(axis=1, keepdims=True, initial=0)) & (counts > 0)
    credit = tops / np.maximum(1, tops.sum(axis=1, keepdims=True))
    earned = np.bincount(
        votes.annotators,
        weights=credit[votes.items, votes.choices],
        minlength=votes.n_annotators,
    )
    cast = np.bincount(votes.annotators, minlength=votes.n_annotators)
    return _counted(votes, earned / np.maximum(1, cast))


def _counted(votes: Votes, weights: NDArray[np.float64]) -> Counted:
    sums = np.bincount(
        votes.items * 4 + votes.choices,
        weights=weights[votes.annotators],
        minlength=votes.n_items * 4,
    )
    totals = sums.astype(np.float64).reshape(-1, 4)  # whole numbers where there are no votes
    total = totals.sum(axis=1, keepdims=True)
    shares = np.divide(totals, total, out=np.zeros_like(totals), where=total > 0)
    return Counted(shares, winners(shares), weights)
