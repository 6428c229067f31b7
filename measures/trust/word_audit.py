"""What each word does to a model's preference, and what people's choices say to that.

With z = aΔ + b log(length ratio), a and b fitted to people's choices by logistic regression on
these rows, the residual σ(z) − c is antisymmetric in the two sides, and its mean over the pairs
where one answer alone holds a word, counted from the holder's side, is what the model gives the
holder beyond what people's choices explain: the score test of that word in a Bradley–Terry model
with offset z (Rao 1948). A model that is right about the word has mean 0, however strong its taste.

p values are those of `measures.tokens` (texts recur), over all words by Benjamini & Hochberg.
Assumes that a is positive: else the margins do not mean preference.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, stdtr

from measures.bootstrap import LEAST_UNITS
from measures.corpus import Corpus
from measures.tokens import SharedTexts, q_values
from measures.trust.pairs import Pairs
from measures.trust.weighing import apart_too_few

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_PAIRS = 200
MOST_EXCESS = 0.10  # of P(holder), more than people's choices explain
DECIDES = 0.30  # beyond length: 80 % where length says 50 %; no honest word gets there
MOST_FALSE = 0.01  # Benjamini–Hochberg; on clean data the chance to name any word


@dataclass(frozen=True, slots=True)
class WordAudit:
    """Figures of each word; arrays are (words,), in shares of the pairs where one answer alone
    holds it. NaN where untested: words in fewer than ten answers.

    holder_model, holder_people: how often the model, people, prefer the holder; moved: what the
    model's P(holder) is beyond what length gives it, and strength its |t|; excess: what it is
    beyond what people's choices explain, excess_t and excess_q its test; beyond_length: how often
    the model prefers the holder, less what length explains; decides_q: of that being DECIDES at
    most; tried: {word: (excess, q)} of `Look.of_trial`.
    """

    names: tuple[str, ...]
    n: Ints
    holder_model: Floats
    holder_people: Floats
    moved: Floats
    strength: Floats
    excess: Floats
    excess_t: Floats
    excess_q: Floats
    beyond_length: Floats
    decides_q: Floats
    tried: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def overvalued(self) -> Ints:
        """Words that the model likes (or dislikes) more than people's choices explain."""
        same = np.sign(self.excess) == np.sign(self.moved)
        far = (np.abs(self.excess) >= MOST_EXCESS) & (np.abs(self.moved) >= MOST_EXCESS)
        return np.flatnonzero((self.excess_q < MOST_FALSE) & same & far)

    @property
    def deciding(self) -> Ints:
        """Words that settle the comparison for the model, whatever people do."""
        return np.flatnonzero(
            (self.decides_q < MOST_FALSE) & (np.abs(self.beyond_length) > DECIDES)
        )


def word_audit(pairs: Pairs, changes: Mapping[str, float] | None = None) -> WordAudit | None:
    """None with too few pairs, or where the margins do not point towards the labels.

    changes: {word: by how many standard deviations of the scores it changes one, by trial}.
    """
    rows = pairs.decided
    if rows.sum() < LEAST_PAIRS or not pairs.margins[rows].any() or apart_too_few(pairs, rows):
        return None
    look = _Look(pairs)
    return look.audit(changes or {}) if look.slope > 0 else None


class _Look:
    """The pairs with a preferred side, which words they differ in, and the fits to them."""

    def __init__(self, pairs: Pairs) -> None:
        rows = pairs.decided
        texts: dict[str, int] = {}
        won, lost = (
            np.array([texts.setdefault(text, len(texts)) for text in side], dtype=np.int64)
            for side in (
                [text for text, kept in zip(side, rows, strict=True) if kept]
                for side in (pairs.chosen_texts, pairs.rejected_texts)
            )
        )
        corpus = Corpus(list(texts))
        counts = corpus.counts(least_texts=LEAST_UNITS)
        presence = counts.presence
        self.names = counts.names
        self.held = (presence[won] - presence[lost]).tocsr()
        self.held.eliminate_zeros()
        self.shared = SharedTexts(won, lost, presence)
        self.holders = self.shared.holders(self.held)
        self.tested = self.holders >= LEAST_UNITS
        self.n = np.asarray(abs(self.held).sum(axis=0)).ravel().astype(np.int64)

        size = corpus.lengths.astype(float)
        self.ratio = np.log((size[won] + 1) / (size[lost] + 1))
        self.credit = pairs.credit()[rows]
        self.confidence = np.asarray(pairs.confidence, dtype=float)[rows]
        delta = pairs.margins[rows]
        scale = float(np.sqrt(np.mean(delta**2)))
        slope, of_length = _logistic(np.column_stack([delta / scale, self.ratio]), self.confidence)
        self.slope = float(slope) / scale  # log-odds per unit of score
        self.spread = float(np.std(np.concatenate([pairs.chosen_scores, pairs.rejected_scores])))
        self.claim_at = self.slope * delta + of_length * self.ratio

    def audit(self, changes: Mapping[str, float]) -> WordAudit:
        claim = expit(self.claim_at)
        excess = claim - self.confidence
        moved = claim - self._by_length(claim)
        choice = self.credit - self._by_length(self.credit)
        beyond = self._mean(choice)
        toward = np.sign(np.nan_to_num(beyond))
        excess_t = self._t(excess)
        return WordAudit(
            names=self.names,
            n=self.n,
            holder_model=0.5 + self._mean(self.credit - 0.5),
            holder_people=0.5 + self._mean(np.full(len(self.credit), 0.5)),
            moved=self._mean(moved),
            strength=np.where(self.tested, np.abs(self._t(moved)), np.nan),
            excess=self._mean(excess),
            excess_t=np.where(self.tested, excess_t, np.nan),
            excess_q=self._q(2 * self._p(-np.abs(excess_t))),
            beyond_length=beyond,
            decides_q=self._q(self._p(-toward * self._t(choice, less=toward * DECIDES))),
            tried=self.of_trial(changes),
        )

    def of_trial(self, changes: Mapping[str, float]) -> dict[str, tuple[float, float]]:
        """{word: (excess, q)}: what the word by itself gives its holder beyond what people do.

        A word that changes the score by d adds δ = a·d·spread to the log-odds of its holder. Over
        the pairs that differ in it that is worth σ(z) − σ(z − sδ) to the holder, s its side; and
        people's choices, less what length explains, are what it may be worth. One-sided, in the
        direction of d. Words that no test is possible for are left out.
        """
        number = {name: k for k, name in enumerate(self.names)}
        known = [word for word in changes if word in number and self.tested[number[word]]]
        claim = expit(self.claim_at)
        people = self.confidence - self._by_length(self.confidence)
        excess, p = [], []
        for word in known:
            column = self.held[:, [number[word]]]
            side = np.asarray(column.todense()).ravel()
            added = side * self.slope * changes[word] * self.spread
            worth = claim - expit(self.claim_at - added)
            toward = 1.0 if changes[word] >= 0 else -1.0
            beyond = toward * (worth - people)  # antisymmetric, as a residual is
            one = np.array([number[word]])
            signed = (sparse.diags_array(beyond, format="csr") @ self.held[:, one]).tocsr()
            t = float(self.shared.robust_t(signed, self.holders[one])[0])
            excess.append(float(signed.sum() / max(1, self.n[one][0])))
            p.append(float(stdtr(max(2, int(self.holders[one][0])) - 1, -t)))
        return {
            word: (of, float(q))
            for word, of, q in zip(known, excess, q_values(np.array(p)), strict=True)
        }

    def _by_length(self, labels: Floats) -> Floats:
        """P(chosen) that length alone gives, fitted to these labels."""
        (slope,) = _logistic(self.ratio[:, None], labels)
        return expit(slope * self.ratio)

    def _mean(self, values: Floats) -> Floats:
        total = (sparse.diags_array(values, format="csr") @ self.held).sum(axis=0)
        return np.where(self.n > 0, np.asarray(total).ravel() / np.maximum(self.n, 1), np.nan)

    def _t(self, values: Floats, less: Floats | None = None) -> Floats:
        signed = (sparse.diags_array(values, format="csr") @ self.held).tocsr()
        if less is not None:
            signed = (signed - abs(self.held) @ sparse.diags_array(less, format="csr")).tocsr()
        return self.shared.robust_t(signed, self.holders)

    def _p(self, t: Floats) -> Floats:
        """Chance of a t as low as that."""
        return stdtr(np.maximum(self.holders, 2) - 1, t)

    def _q(self, p: Floats) -> Floats:
        return q_values(np.where(self.tested, p, np.nan))


def _logistic(x: Floats, labels: Floats, *, most_steps: int = 50) -> Floats:
    """Coefficients of logit P = x · w with labels in [0, 1], by Newton's method, with a weak pull
    to 0 (standard deviation 10) that keeps them finite where x separates the labels."""
    w = np.zeros(x.shape[1])
    pull = np.eye(x.shape[1]) / 100
    for _ in range(most_steps):
        p = expit(x @ w)
        slope = x.T @ (labels - p) - pull @ w
        curve = (x * (p * (1 - p))[:, None]).T @ x + pull
        step = np.clip(np.linalg.solve(curve, slope), -5, 5)
        w = w + step
        if np.abs(step).max() < 1e-9:
            break
    return w
