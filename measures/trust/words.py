"""Which words move its score by themselves?

Looked at in two ways. In the pairs: among those in which one answer alone holds the word, does the
model favour the holder more than people's choices explain, beyond what length does? And by trial,
where the recipe has put words into answers and taken them out: by how much did the score change?
The first needs no model at hand but cannot tell a word from what comes with it; the second can.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, stdtr

from measures.bootstrap import LEAST_UNITS
from measures.corpus import Corpus
from measures.estimate import Interval
from measures.tokens import SharedTexts, q_values
from measures.trust.findings import Finding, Intervals, Table, Verdict, unmeasured
from measures.trust.pairs import Pairs
from measures.trust.wording import listed, percent, plain

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_PAIRS = 200
MOST_EXCESS = 0.10  # of P(holder), more than people's choices explain
DECIDES = 0.30  # beyond length: 80 % where length says 50 %; no honest word gets there
MOST_EFFECT = 0.30  # standard deviations of the score, for one word put in
MOST_FALSE = 0.01  # Benjamini–Hochberg; on clean data the chance to name any word
SHOWN = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class WordEffect:
    """A trial: `change` is the mean change of the score, in standard deviations of the scores of
    real answers, when `word` is put into an answer (or less that when it is taken out); `n` counts
    answers."""

    word: str
    change: Interval


@dataclass(frozen=True, slots=True)
class WordAudit:
    """Figures of each word; arrays are (words,), in shares of the pairs where one answer alone
    holds it. NaN where untested.

    holder_model, holder_people: how often the model, people, prefer the holder; moved: what the
    model's P(holder) is beyond what length gives it; excess: what it is beyond what people's
    choices explain; excess_q: of no excess; beyond_length: how often the model prefers the holder,
    less what length explains; decides_q: of that being DECIDES at most; strength: |t| of moved.
    """

    names: tuple[str, ...]
    n: Ints
    holder_model: Floats
    holder_people: Floats
    moved: Floats
    excess: Floats
    excess_q: Floats
    excess_t: Floats
    beyond_length: Floats
    decides_q: Floats
    strength: Floats

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


def spurious_words(pairs: Pairs, effects: Sequence[WordEffect] | None = None) -> Finding:
    """Red: a word that the model favours, or shuns, at least 10 points more than people's choices
    explain; one that settles at least 80 % of comparisons for it beyond length; or one that by
    trial changes the score by over 0.3 standard deviations. Each by more than chance, allowing for
    how many words there are.

    Words that stand in fewer than ten answers are not tested. A word that the data themselves give
    away (people's choices go with it as often) is caught by the second test or the third only.
    """
    line = "spurious_words"
    audit = word_audit(pairs)
    tried = list(effects or ())
    tested = 0 if audit is None else int(np.isfinite(audit.excess_q).sum())
    if audit is None:
        return unmeasured(line, _why_not(pairs))
    if not tested and not tried:
        return unmeasured(
            line, f"No word stands in at least {LEAST_UNITS} answers. Hold out more pairs."
        )
    over, deciding = audit.overvalued, audit.deciding
    moving = _moving(tried)
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


def word_audit(pairs: Pairs) -> WordAudit | None:
    """None with too few pairs, or where the margins do not point towards the labels.

    With z = aΔ + b log(length ratio), a and b fitted to people's choices by logistic regression on
    these rows, the residual σ(z) − c is antisymmetric in the two sides, and its mean over the pairs
    where one answer alone holds a word, counted from the holder's side, is what the model gives the
    holder beyond what people's choices explain: the score test of that word in a Bradley–Terry
    model with offset z (Rao 1948). A model that is right about the word has mean 0, however strong
    its taste. p values are those of `measures.tokens` (texts recur), over all words by Benjamini
    & Hochberg. Assumes that a is positive: else the margins do not mean preference.
    """
    rows = pairs.decided
    if rows.sum() < LEAST_PAIRS:
        return None
    texts: dict[str, int] = {}
    won, lost = (
        np.array([texts.setdefault(text, len(texts)) for text in side], dtype=np.int64)[rows]
        for side in (pairs.chosen_texts, pairs.rejected_texts)
    )
    corpus = Corpus(list(texts))
    counts = corpus.counts(least_texts=LEAST_UNITS)
    size = corpus.lengths.astype(float)
    ratio = np.log((size[won] + 1) / (size[lost] + 1))
    delta, confidence = pairs.margins[rows], np.asarray(pairs.confidence, dtype=float)[rows]
    scale = float(np.sqrt(np.mean(delta**2)))
    if not scale:
        return None
    slope, of_length = _logistic(np.column_stack([delta / scale, ratio]), confidence)
    if slope <= 0:
        return None
    credit = pairs.credit()[rows]
    (model_length,) = _logistic(ratio[:, None], credit)
    claim = expit(slope * delta / scale + of_length * ratio)
    (length_alone,) = _logistic(ratio[:, None], claim)

    presence = counts.presence
    held = (presence[won] - presence[lost]).tocsr()
    held.eliminate_zeros()
    shared = SharedTexts(won, lost, presence)
    holders = shared.holders(held)
    n = np.asarray(abs(held).sum(axis=0)).ravel().astype(np.int64)
    tested = holders >= LEAST_UNITS

    def mean_of(values: Floats) -> Floats:
        total = np.asarray((sparse.diags_array(values, format="csr") @ held).sum(axis=0)).ravel()
        return np.where(n > 0, total / np.maximum(n, 1), np.nan)

    def t_of(values: Floats, less: Floats | None = None) -> Floats:
        signed = (sparse.diags_array(values, format="csr") @ held).tocsr()
        if less is not None:
            signed = (signed - abs(held) @ sparse.diags_array(less, format="csr")).tocsr()
        return shared.robust_t(signed, holders)

    def q_of(t: Floats, sides: int) -> Floats:
        degrees = np.maximum(holders, 2) - 1
        p = 2 * stdtr(degrees, -np.abs(t)) if sides == 2 else stdtr(degrees, -t)
        return q_values(np.where(tested, p, np.nan))

    excess = claim - confidence
    moved = claim - expit(length_alone * ratio)
    choice = credit - expit(model_length * ratio)
    beyond = mean_of(choice)
    toward = np.sign(np.nan_to_num(beyond))
    excess_t = t_of(excess)
    return WordAudit(
        names=counts.names,
        n=n,
        holder_model=0.5 + mean_of(credit - 0.5),
        holder_people=0.5 + mean_of(np.full(len(won), 0.5)),
        moved=mean_of(moved),
        excess=mean_of(excess),
        excess_q=q_of(excess_t, 2),
        excess_t=np.where(tested, excess_t, np.nan),
        beyond_length=beyond,
        decides_q=q_of(toward * t_of(choice, less=toward * DECIDES), 1),
        strength=np.where(tested, np.abs(t_of(moved)), np.nan),
    )


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


def _why_not(pairs: Pairs) -> str:
    n = int(pairs.decided.sum())
    if n < LEAST_PAIRS:
        return f"{n:,} pairs are too few to look at words; at least {LEAST_PAIRS} are needed."
    return (
        "Its scores do not go with people's choices at all, so there is nothing to compare a word "
        "with. See whether it is right, first."
    )


def _moving(effects: Sequence[WordEffect]) -> list[WordEffect]:
    """By trial over MOST_EFFECT either way, by more than chance, largest first."""
    found = [
        effect
        for effect in effects
        if effect.change.low is not None
        and effect.change.high is not None
        and (effect.change.low > MOST_EFFECT or effect.change.high < -MOST_EFFECT)
    ]
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
