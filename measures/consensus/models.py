"""The models of how people err, and the EM that fits them: one coin, Dawid and Skene, MACE."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from scipy import sparse

from measures.consensus.votes import Floats, Ints, Votes, row_max, softmax

# The loop that every model of the voters shares: posteriors, expected counts, matrices, again.
#
# Letters: n votes, I items, J annotators, K choices known, k a truth, c a vote. All models are
# functions of the tensor N (J, K, K): N[j, k, c] is the expected number of j's votes for c on items
# whose truth is k, the posteriors taken as weights. Only the step from N to matrices differs.
#
# The votes are one sparse matrix X (I, J·K) with a 1 at (item, annotator·K + choice). The E-step is
# X · log matrices and the M-step Xᵀ · posteriors, so that an iteration costs two sparse products.
#
# Without an echo: plain EM judges an item by matrices that the item itself has shaped. Somebody
# with two votes is then right about both because they said so. So once the loop has nearly
# settled, each item is judged by its annotators' expected counts less what the item itself put
# there (Dawid–Skene on the argument pairs, where half the people voted once: 91.4 instead of 90.7
# % right, and 91.0 instead of 86.9 where the crowd's own matrix is free, see docs/consensus.md).
# That is collapsed variational inference of order zero (Asuncion, Welling, Smyth & Teh, "On
# smoothing and inference for topic models", UAI 2009). Annotators with `ECHO_VOTES` votes or more
# are spared the effort: one item moves their matrices by less than half a per cent.

ECHO_VOTES = 200
MOST_ITERATIONS = 100
# Mean over items of the largest change of a posterior: where the echo is taken out, and where the
# loop stops.
NEARLY, TOLERANCE = 2e-3, 5e-4
# Items imagined for every choice when priors are taken from posteriors: one for each, so that a
# choice which nobody has cast yet stays possible.
PRIOR_ITEMS = 1.0
_CHUNK = 100_000  # votes whose matrices are held at once


class Model(Protocol):
    """A model of the voters: how expected counts become confusion matrices."""

    def learn(self, counts: Floats) -> None:
        """Take from N (J, K, K) what is shared by the whole crowd."""

    def matrices(self, counts: Floats, of: Ints | None = None) -> Floats:
        """(m, K, K) rows P(vote | truth) from counts (m, K, K), given what was learned.

        of: (m,) the annotator whose counts each entry nearly has; None where the counts are those
        of `learn`, or of somebody never seen (all zero).
        """


@dataclass(frozen=True, slots=True)
class Cells:
    """Votes in the form the loop works on; `classes` are the K known indices into `CHOICES`.

    items, annotators, choices: (n,), the choices numbered within `classes`; n_by: (J,) votes cast.
    """

    items: Ints
    annotators: Ints
    choices: Ints
    by_item: sparse.csr_array
    by_cell: sparse.csr_array
    classes: Ints
    n_by: Ints

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    def expected_counts(self, posteriors: Floats) -> Floats:
        """N (J, K, K) from posteriors (I, K)."""
        k = self.n_classes
        return (self.by_cell @ posteriors).reshape(len(self.n_by), k, k).transpose(0, 2, 1)

    def log_likelihoods(self, matrices: Floats) -> Floats:
        """(I, K) log P(votes of the item | truth) from matrices (J, K, K)."""
        table = np.log(np.maximum(matrices, 1e-300)).transpose(0, 2, 1)
        return self.by_item @ np.ascontiguousarray(table).reshape(-1, self.n_classes)


def cells_of(votes: Votes) -> Cells:
    """The two sparse forms of the votes."""
    classes = np.flatnonzero(votes.known)
    choices = (np.cumsum(votes.known) - 1)[votes.choices]
    shape = (votes.n_items, votes.n_annotators * len(classes))
    columns = votes.annotators * len(classes) + choices
    by_item = sparse.csr_array((np.ones(len(votes)), (votes.items, columns)), shape=shape)
    return Cells(
        votes.items,
        votes.annotators,
        choices,
        by_item,
        by_item.T.tocsr(),
        classes,
        np.bincount(votes.annotators, minlength=votes.n_annotators),
    )


@dataclass(frozen=True, slots=True)
class Settled:
    """Where the loop ended: priors (K,), matrices (J, K, K), posteriors (I, K) without an echo."""

    model: Model
    priors: Floats
    matrices: Floats
    posteriors: Floats
    iterations: int
    converged: bool


def settle(
    model: Model,
    cells: Cells,
    posteriors: Floats,
    *,
    alike: bool,
    tie_weight: float = 0.0,
    echo: bool = False,
    most_iterations: int = MOST_ITERATIONS,
    tolerance: float = TOLERANCE,
) -> Settled:
    """Expectation–maximisation from the given posteriors (I, K) on, until they stop moving.

    alike, tie_weight: see `priors_from`. echo: True for plain EM (Dempster, Laird & Rubin, JRSS B
    39, 1977), which the reference implementations run. Items without votes take no part.
    """
    voted = (np.diff(cells.by_item.indptr) > 0).astype(np.float64)
    n_voted = float(voted.sum())
    few = np.flatnonzero(cells.n_by[cells.annotators] < ECHO_VOTES)
    cast = np.bincount(cells.choices, minlength=cells.n_classes) / max(1, len(cells.choices))
    echo = echo or not len(few)
    removing, current, iteration = False, posteriors, 0
    while True:
        iteration += 1
        counts = cells.expected_counts(current)
        model.learn(counts)
        matrices = model.matrices(counts)
        priors = priors_from(voted @ current, cast, n=n_voted, alike=alike, tie_weight=tie_weight)
        scores = cells.log_likelihoods(matrices)
        if removing:
            scores += _echo(model, cells, counts, matrices, current, few)
        following = softmax(scores + np.log(priors))
        moved = float(row_max(np.abs(following - current)) @ voted) / max(1.0, n_voted)
        current = following
        settled = moved <= tolerance and (removing or echo)
        if settled or iteration >= most_iterations:
            return Settled(model, priors, matrices, current, iteration, settled)
        removing = removing or (not echo and moved <= NEARLY)


def without_echo(
    model: Model, cells: Cells, counts: Floats, posteriors: Floats, priors: Floats
) -> Floats:
    """(I, K) one step without an echo by a model that has learned from counts."""
    matrices = model.matrices(counts)
    scores = cells.log_likelihoods(matrices) + np.log(priors)
    few = np.flatnonzero(cells.n_by[cells.annotators] < ECHO_VOTES)
    if len(few):
        scores += _echo(model, cells, counts, matrices, posteriors, few)
    return softmax(scores)


def priors_from(
    totals: Floats, cast: Floats, *, n: float, alike: bool, tie_weight: float
) -> Floats:
    """(K,) P(truth): the mean posterior, with `PRIOR_ITEMS` imagined items per choice.

    totals: (K,) posteriors summed over n items; cast: (K,) shares of the choices among all votes.
    alike: A and B, which come first, get their mean. tie_weight: ties and both-bad are drawn
    towards `cast` with the weight of so many items for each that there is.
    """
    k = len(totals)
    priors = (totals + PRIOR_ITEMS) / (n + PRIOR_ITEMS * k)
    if k > 2:
        rest = (priors[2:] + tie_weight * cast[2:]) / (1 + tie_weight)
        priors[:2] *= (1 - rest.sum()) / priors[:2].sum()
        priors[2:] = rest
    if alike:
        priors[:2] = priors[:2].mean()
    return priors


def matrices_without(
    model: Model, cells: Cells, counts: Floats, posteriors: Floats, votes: Ints
) -> Floats:
    """(m, K, K) the matrix of each vote's annotator with the vote's own item taken out of N.

    votes: (m,) numbers of the votes.
    """
    annotators, choices = cells.annotators[votes], cells.choices[votes]
    left = counts[annotators]
    left[np.arange(len(votes)), :, choices] -= posteriors[cells.items[votes]]
    np.maximum(left, 0.0, out=left)
    return model.matrices(left, annotators)


def _echo(
    model: Model,
    cells: Cells,
    counts: Floats,
    matrices: Floats,
    posteriors: Floats,
    few: Ints,
) -> Floats:
    """(I, K) what taking the echo out adds to the log-likelihoods."""
    added = np.empty((len(few), cells.n_classes))
    for begin in range(0, len(few), _CHUNK):
        part = few[begin : begin + _CHUNK]
        choices = cells.choices[part]
        made = matrices_without(model, cells, counts, posteriors, part)
        clean = made[np.arange(len(part)), :, choices]
        with_echo = matrices[cells.annotators[part], :, choices]
        added[begin : begin + _CHUNK] = np.log(np.maximum(clean, 1e-300)) - np.log(
            np.maximum(with_echo, 1e-300)
        )
    return summed_by_item(added, cells.items[few], len(posteriors))


def summed_by_item(values: Floats, items: Ints, n_items: int) -> Floats:
    """(n_items, K) sums of (m, K) values over the votes of each item."""
    return np.stack(
        [np.bincount(items, weights=column, minlength=n_items) for column in values.T], axis=1
    )


def vote_shares(votes: Votes, cells: Cells) -> Floats:
    """(I, K) shares of the votes, the usual start; even where there are none."""
    counts = votes.counts()[:, cells.classes].astype(np.float64)
    total = counts.sum(axis=1, keepdims=True)
    even = np.full_like(counts, 1 / cells.n_classes)
    return np.divide(counts, total, out=even, where=total > 0)


# One-coin Dawid–Skene: one number per annotator, the chance q to vote for what is right.

# Beta(4, 1.5): mean 0.73, as good as four votes right and one and a half wrong.
RIGHT, WRONG = 4.0, 1.5


@dataclass(slots=True)
class OneCoin:
    """q_j = (right_j + 4) / (n_j + 5.5); the rest, 1 − q_j, falls on the other choices as often as
    they are cast.

    With two choices an item's log-odds are Σ ± log(q_j / (1 − q_j)). Source: Dawid & Skene, Applied
    Statistics 28 (1979) with one parameter per annotator; prior Beta(4, 1.5) on q.

    Departures. q is the mean of its Beta posterior, not the mode (which is the mode under
    Beta(5, 2.5), so the loop still climbs one objective): an annotator never seen has q = 4/5.5 =
    0.73. With more than two choices plain one-coin spreads wrong votes evenly (`even`): then a
    single tie among a thousand votes takes half of every error, and votes weigh less (argument
    pairs: 86.5 % right so, 89.9 % by the shares of the votes, (cast_c + 1) / (n + K)). Where ties
    are taken for A or B more often than A for B, either is wrong, and the check says so.
    """

    right: float = RIGHT
    wrong: float = WRONG
    even: bool = False
    cast: Floats | None = None  # (K,) shares of the votes

    def learn(self, counts: Floats) -> None:
        """The shares of the choices, the same whatever the truths are."""
        cast = counts.sum(axis=(0, 1)) + 1
        self.cast = np.ones_like(cast) if self.even else cast / cast.sum()

    def matrices(self, counts: Floats, of: Ints | None = None) -> Floats:
        k = counts.shape[-1]
        if k == 1:
            return np.ones(counts.shape)
        right = np.trace(counts, axis1=-2, axis2=-1)
        total = counts.sum(axis=(-2, -1))
        q = (right + self.right) / (total + self.right + self.wrong)
        errors = np.tile(np.ones(k) if self.cast is None else self.cast, (k, 1))
        np.fill_diagonal(errors, 0)
        errors /= errors.sum(axis=1, keepdims=True)
        return (1 - q)[:, None, None] * errors + q[:, None, None] * np.eye(k)


# Full Dawid–Skene: a confusion matrix per annotator, shrunk towards the crowd's.

# Votes per cell of a matrix for which the crowd's counts in everybody's.
STRENGTH = 4.0
# Votes imagined per truth in the crowd's own matrix, as many as the one-coin prior Beta(4, 1.5).
_RIGHT, _WRONG = 4.0, 1.5


@dataclass(slots=True)
class DawidSkene:
    """Rows (N_jkc + s·C_kc) / (N_jk + s): C is the crowd's matrix, s = 4 K votes.

    Source: Dawid & Skene, Applied Statistics 28 (1979). Departures:

    - Each row has a Dirichlet prior with its mean at the crowd's row, so that somebody with few
      votes is taken for an average member of the crowd (partial pooling, as in Paun et al., TACL 6,
      2018). Half of s lost on sparse crowds and twice as much on one-sided ones; estimating it,
      or shrinking towards the annotator's own accuracy first, was worse on the whole.
    - The crowd's matrix is pooled over all annotators, then made symmetric under exchanging A and B
      (which response is called A is arbitrary, and letting a sparse crowd be wrong about A more
      than about B lets the model drift to "all A"), then averaged with one in which every truth is
      recognised equally often and errors fall on the other choices as they do in all. Without that
      a rare choice turns into a class for whatever is hard: the votes are predicted better and the
      labels are wrong. A single annotator may still have a side, and see ties worse than others.
    """

    strength: float = STRENGTH
    right: float = _RIGHT
    wrong: float = _WRONG
    levelled: bool = True
    crowd: Floats = field(default_factory=lambda: np.eye(2))

    def learn(self, counts: Floats) -> None:
        k = counts.shape[-1]
        if k == 1:
            self.crowd = np.ones((1, 1))
            return
        wrong = self.wrong / (k - 1)
        pooled = counts.sum(axis=0) + wrong + (self.right - wrong) * np.eye(k)
        if self.levelled:
            swapped = np.arange(k)
            swapped[:2] = 1, 0
            pooled = (pooled + pooled[swapped][:, swapped]) / 2
        self.crowd = pooled / pooled.sum(axis=1, keepdims=True)
        if self.levelled:
            self.crowd = (self.crowd + _levelled(pooled)) / 2

    def matrices(self, counts: Floats, of: Ints | None = None) -> Floats:
        made = counts + self.strength * counts.shape[-1] * self.crowd
        made /= made.sum(axis=-1, keepdims=True)
        return made


def _levelled(pooled: Floats) -> Floats:
    """(K, K) rows with one accuracy for every truth, errors shared out as over all truths."""
    k = len(pooled)
    accuracy = np.trace(pooled) / pooled.sum()
    errors = pooled.sum(axis=0) - np.diag(pooled)
    rows = np.tile(errors, (k, 1)) * (1 - np.eye(k))
    rows *= (1 - accuracy) / rows.sum(axis=1, keepdims=True)
    return rows + accuracy * np.eye(k)


# MACE: an annotator either knows what is right, or votes by a habit of their own.

KNOW_WEIGHT, HABIT_WEIGHT = 4.0, 5.0
_STEPS = 3


@dataclass(slots=True)
class Mace:
    """P(vote c | truth k) = know_j [c = k] + (1 − know_j) habit_jc.

    Source: Hovy, Berg-Kirkpatrick, Vaswani & Hovy, "Learning whom to trust with MACE", NAACL 2013.
    Departures:

    - Priors: know_j has a Beta prior of `know_weight` votes around the crowd's share of votes cast
      knowingly, habit_j a Dirichlet of `habit_weight` votes around what the crowd votes when it
      does not know; both centres are learned. The paper has Beta(0.5, 0.5) and Dirichlet(10): it
      takes somebody with one agreeing vote for nearly sure to know, which loses on sparse crowds.
    - Posterior means instead of the digamma weights of variational Bayes.
    - One start, at the shares of the votes, instead of ten at random: labels cannot switch, and two
      runs agree. The truths' priors are estimated (the paper's are even).

    The split of j's votes into known and habitual ones is a small EM of its own on N. Every
    iteration of the outer loop does three steps of it, going on where the last one stopped.
    """

    know_weight: float = KNOW_WEIGHT
    habit_weight: float = HABIT_WEIGHT
    know: Floats = field(default_factory=lambda: np.zeros(0))
    habit: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    crowd_know: float = 0.5
    crowd_habit: Floats = field(default_factory=lambda: np.zeros(0))

    def learn(self, counts: Floats) -> None:
        k = counts.shape[-1]
        if self.habit.shape != (len(counts), k):
            self.know = np.full(len(counts), 0.5)
            self.crowd_habit = np.full(k, 1 / k)
            self.habit = np.tile(self.crowd_habit, (len(counts), 1))
        self.know, self.habit, known, unknown = self._stepped(counts, self.know, self.habit)
        self.crowd_know = float((known + 1) / (known + unknown.sum() + 2))
        self.crowd_habit = (unknown + 1) / (unknown.sum() + k)

    def matrices(self, counts: Floats, of: Ints | None = None) -> Floats:
        k = counts.shape[-1]
        if of is not None:
            know, habit, _, _ = self._stepped(counts, self.know[of], self.habit[of])
        elif len(counts) == len(self.know):
            know, habit = self.know, self.habit
        else:
            know = np.full(len(counts), self.crowd_know)
            habit = np.tile(self.crowd_habit, (len(counts), 1))
        made = np.repeat(((1 - know)[:, None] * habit)[:, None, :], k, axis=1)
        diagonal = np.arange(k)
        made[:, diagonal, diagonal] += know[:, None]
        return made

    def _stepped(
        self, counts: Floats, know: Floats, habit: Floats
    ) -> tuple[Floats, Floats, float, Floats]:
        """know (m,), habit (m, K), votes known in all, votes by habit per choice (K,)."""
        right = np.diagonal(counts, axis1=-2, axis2=-1)
        cast = counts.sum(axis=-2)
        total = cast.sum(axis=-1)
        for _ in range(_STEPS):
            sure = know[:, None]
            known = right * (sure / np.maximum(sure + (1 - sure) * habit, 1e-300))
            unknown = cast - known
            know = (known.sum(axis=-1) + self.know_weight * self.crowd_know) / (
                total + self.know_weight
            )
            habit = unknown + self.habit_weight * self.crowd_habit
            habit /= habit.sum(axis=-1, keepdims=True)
        return know, habit, float(known.sum()), unknown.sum(axis=0)
