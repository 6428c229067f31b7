"""Which words move its score by themselves?

Looked at in two ways. In the pairs: among those in which one answer alone holds the word, does the
model favour the holder more than people's choices explain, beyond what length does? And by trial,
where the recipe has put words into answers and taken them out: by how much did the score change?
The first needs no model at hand but cannot tell a word from what comes with it; the second can.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, stdtr

from measures.blocks import Intervals, Table
from measures.bootstrap import LEAST_UNITS
from measures.corpus import Corpus
from measures.estimate import Interval
from measures.tokens import SharedTexts, q_values
from measures.trust.findings import Finding, Verdict, unmeasured
from measures.trust.significance import Pairs
from workers.contract.numbers import listed, percent, plain
from workers.trust.wording import apart_too_few, some

# What each word does to a model's preference, and what people's choices say to that.
#
# With z = aΔ + b log(length ratio), a and b fitted to people's choices by logistic regression on
# these rows, the residual σ(z) − c is antisymmetric in the two sides, and its mean over the pairs
# where one answer alone holds a word, counted from the holder's side, is what the model gives the
# holder beyond what people's choices explain: the score test of that word in a Bradley–Terry model
# with offset z (Rao 1948). A model that is right about the word has mean 0, however strong its
# taste.
#
# p values are those of `measures.tokens` (texts recur), over all words by Benjamini & Hochberg.
# Assumes that a is positive: else the margins do not mean preference.

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


MOST_EFFECT = 0.3  # standard deviations of the score, for one word put in
HUGE_EFFECT = 1.0  # whatever people's choices say
SHOWN = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class WordEffect:
    """A trial: `change` is the mean change of the score, in standard deviations of the scores of
    real answers, when `word` is put into an answer (or less that when it is taken out); `n` counts
    answers."""

    word: str
    change: Interval


def spurious_words(pairs: Pairs, effects: Sequence[WordEffect] | None = None) -> Finding:
    """Red: a word that the model favours, or shuns, at least 10 points more than people's choices
    explain; one that settles four comparisons in five for it beyond length; one that by trial
    changes the score by over 0.3 standard deviations, 10 points more than people's choices explain;
    or one that by trial changes it by over a standard deviation. Each by more than chance, the
    first three allowing for how many words there are.

    Words that stand in fewer than ten answers are tested by trial alone. A word that the data
    themselves give away (people's choices go with it as often) is caught by the second test or the
    last only.
    """
    line = "spurious_words"
    tried = list(effects or ())
    audit = word_audit(pairs, {effect.word: effect.change.value or 0.0 for effect in tried})
    tested = 0 if audit is None else int(np.isfinite(audit.excess_q).sum())
    if audit is None:
        return unmeasured(line, _why_not(pairs))
    if not tested and not tried:
        return unmeasured(
            line, f"No word stands in at least {LEAST_UNITS} answers. Hold out more pairs."
        )
    over, deciding = audit.overvalued, audit.deciding
    moving = _moving(audit, tried)
    evidence = _evidence(audit, tried)
    facts = {
        "tested": tested,
        "tried": len(tried),
        "overvalued": [audit.names[k] for k in over],
        "deciding": [audit.names[k] for k in deciding],
        "moving": [effect.word for effect in moving],
    }
    if not len(over) and not len(deciding) and not moving:
        by_trial = f", and none of {len(tried)} put into answers moves the score" if tried else ""
        return Finding(
            line=line,
            verdict=Verdict.GREEN,
            says=f"None of {tested:,} words makes the model prefer an answer far more than "
            f"people's choices explain{by_trial}.",
            evidence=evidence,
            facts=facts,
        )
    parts = []
    if len(over):
        k = int(over[np.argmax(np.abs(audit.excess[over]))])
        parts.append(
            f"It gives answers with “{audit.names[k]}” {100 * abs(audit.excess[k]):.0f} points "
            f"{'more' if audit.excess[k] > 0 else 'less'} chance than people's choices explain "
            f"({audit.n[k]:,} pairs){_and_more(audit, over, k)}."
        )
    if len(deciding):
        k = int(deciding[np.argmax(np.abs(audit.beyond_length[deciding]))])
        parts.append(
            f"“{audit.names[k]}” decides: the model prefers the answer with it in "
            f"{percent(float(audit.holder_model[k]))} of {audit.n[k]:,} pairs, people in "
            f"{percent(float(audit.holder_people[k]))}{_and_more(audit, deciding, k)}."
        )
    if moving:
        worst = max(moving, key=lambda effect: abs(effect.change.value or 0.0))
        more = [effect.word for effect in moving if effect is not worst][:3]
        also = f"; so do {listed([f'“{word}”' for word in more])}" if more else ""
        parts.append(
            f"Putting in “{worst.word}” changes the score by {plain(worst.change.value or 0.0)} "
            f"standard deviations, n = {worst.change.n:,}{also}."
        )
    return Finding(
        line=line,
        verdict=Verdict.RED,
        says=" ".join(parts),
        figure=moving[0].change if moving and not len(over) and not len(deciding) else None,
        unit="number",
        evidence=evidence,
        facts=facts,
    )


def candidate_words(pairs: Pairs, most: int = 30) -> list[str]:
    """The words to try by putting them in: those the model favours most beyond length, and those it
    favours most beyond people's choices, in turns. [] where there are too few pairs."""
    audit = word_audit(pairs)
    if audit is None:
        return []
    by_moved = np.argsort(-np.nan_to_num(audit.strength), kind="stable")
    by_excess = np.argsort(-np.abs(np.nan_to_num(audit.excess_t)), kind="stable")
    known = np.isfinite(audit.excess_q)
    found: dict[str, None] = {}
    for one, other in zip(by_moved, by_excess, strict=True):
        for k in (one, other):
            if known[k] and len(found) < most:
                found.setdefault(audit.names[k], None)
    return list(found)


def _why_not(pairs: Pairs) -> str:
    n = int(pairs.decided.sum())
    if n < LEAST_PAIRS:
        return f"{some(n)}: too few to look at words. At least {LEAST_PAIRS} are needed."
    if few := apart_too_few(pairs, pairs.decided):
        return f"{few}. Hold out pairs of more prompts."
    return (
        "Beyond what length explains, its scores do not go with people's choices, so there is "
        "nothing to compare a word with. See whether it is right, first."
    )


def _moving(audit: WordAudit, effects: Sequence[WordEffect]) -> list[WordEffect]:
    """By trial too far either way, by more than chance and beyond people's choices."""
    found = []
    for effect in effects:
        low, high = effect.change.low, effect.change.high
        if low is None or high is None:
            continue
        at_least = low if low > 0 else -high  # of the change, in its own direction
        excess, q = audit.tried.get(effect.word, (1.0, 0.0))  # untested: nothing explains it
        unexplained = excess >= MOST_EXCESS and q < MOST_FALSE
        if at_least > HUGE_EFFECT or (at_least > MOST_EFFECT and unexplained):
            found.append(effect)
    return sorted(found, key=lambda effect: -abs(effect.change.value or 0.0))


def _and_more(audit: WordAudit, named: Ints, but: int) -> str:
    others = [f"“{audit.names[k]}”" for k in named if k != but][:3]
    return f"; so it is with {listed(others)}" if others else ""


def _evidence(audit: WordAudit, effects: Sequence[WordEffect]) -> tuple[Table | Intervals, ...]:
    order = np.argsort(-np.nan_to_num(audit.strength), kind="stable")
    named = [*audit.overvalued.tolist(), *audit.deciding.tolist()]
    shown = list(dict.fromkeys([*named, *order.tolist()]))[:SHOWN]
    shown = [k for k in shown if np.isfinite(audit.excess_q[k])]
    table = Table(
        title="Words that move it most",
        columns=("Word", "Pairs", "This model", "People", "Beyond people", "Beyond length", "q"),
        formats=("text", "count", "share", "share", "share", "share", "number"),
        rows=tuple(
            (
                audit.names[k],
                int(audit.n[k]),
                float(audit.holder_model[k]),
                float(audit.holder_people[k]),
                float(audit.excess[k]),
                float(audit.beyond_length[k]),
                float(audit.excess_q[k]),
            )
            for k in shown
        ),
        note="Of pairs in which one answer alone holds the word: how often the model scores it "
        "higher, how often people chose it, and how much of the model's chance for it neither "
        "people's choices nor length explain.",
    )
    if not effects:
        return (table,)
    largest = sorted(effects, key=lambda effect: -abs(effect.change.value or 0.0))[:SHOWN]
    return (
        Intervals(
            title="Change of the score when the word is put in",
            rows=tuple((effect.word, effect.change) for effect in largest),
            unit="number",
            reference=0.0,
            reference_label="no change",
            note="In standard deviations of the scores of real answers.",
        ),
        table,
    )
