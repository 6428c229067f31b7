"""Is it right, and more so than rules that read little or nothing?

Accuracy counts a tie in the scores as half and leaves out rows without a preferred side. All
intervals are 95 %, over what rows share (`Pairs.interval`).
"""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from measures.accuracy import pair_credit
from measures.blocks import Intervals, percent, share
from measures.corpus import Corpus, Counts
from measures.estimate import Interval
from measures.textmodel import fit, tfidf
from measures.trust.findings import Finding, Verdict, unmeasured
from measures.trust.gaps import overfit, unseen_people
from measures.trust.significance import (
    LEAST_PAIRS,
    Pairs,
    difference_of,
    half_width,
    more_needed,
    points,
    share_of,
    too_thin,
)

Floats = NDArray[np.float64]

__all__ = ["accuracy", "beats_length", "beats_words", "overfit", "unseen_people", "word_margins"]

LEAST_ACCURACY = 0.6  # SPEC: under it by its interval is a no-go
WORD_LOSS = 0.05  # half-width from which on a loss to counted words could have been missed
LEAST_TEXTS = 3  # a word in fewer training texts is no feature


def accuracy(pairs: Pairs, *, words: Floats | None = None) -> Finding:
    """Green: the lower bound is at least 60 %. words: margins of `word_margins`, shown beside."""
    line, decided = "accuracy", pairs.decided
    found = share_of(pairs, pairs.credit(), where=decided)
    if found.low is None or found.high is None:
        return too_thin(line, found, LEAST_PAIRS)
    rows = [("This model", found), ("The longer one", _by_length(pairs))]
    if words is not None:
        rows.append(("Counted words", share_of(pairs, pair_credit(words), where=decided)))
    evidence = (
        Intervals(
            title="Right on the same pairs",
            rows=tuple(rows),
            reference=LEAST_ACCURACY,
            reference_label="60 %",
        ),
    )
    said = f"{share(found)} right on {found.n:,} unseen pairs"
    if found.low >= LEAST_ACCURACY and found.n < LEAST_PAIRS:
        return unmeasured(
            line,
            f"{said}, but fewer than {LEAST_PAIRS} pairs are too few for a yes. Hold out more.",
            evidence=evidence,
        )
    if found.low >= LEAST_ACCURACY:
        verdict, says = Verdict.GREEN, f"{said}: over 60 %."
    elif found.high < 0.5:
        verdict = Verdict.RED
        says = f"{said}: worse than a coin. Its scores, or the labels, point the wrong way."
    elif not pairs.margins[decided].any():
        verdict, says = Verdict.RED, f"{said}: it gives both answers of every pair the same score."
    elif found.high < LEAST_ACCURACY:
        verdict, says = Verdict.RED, f"{said}: under 60 %."
    else:
        verdict = Verdict.RED
        says = f"{said}: it cannot be told apart from 60 % with {found.n:,} pairs."
    return Finding(
        line=line,
        verdict=verdict,
        says=says,
        figure=found,
        evidence=evidence,
        facts={
            "accuracy": found.value,
            "n": found.n,
            "ties": int((pairs.margins[decided] == 0).sum()),
            "no_preferred_side": int((~decided).sum()),
        },
    )


def beats_length(pairs: Pairs) -> Finding:
    """Green: more right than the rule of length on the same rows, by more than chance.

    The rule is "the longer one wins", or, where that is wrong by more than chance, "the shorter one
    wins": a model could use that just as well.
    """
    line, decided = "beats_length", pairs.decided
    longer = _by_length(pairs)
    shorter_wins = longer.high is not None and longer.high < 0.5
    one, two = pairs.lengths
    rule_margin = two - one if shorter_wins else one - two
    rule = "the shorter one wins" if shorter_wins else "the longer one wins"
    by_rule = share_of(pairs, pair_credit(rule_margin), where=decided)
    by_model = share_of(pairs, pairs.credit(), where=decided)
    ahead = difference_of(pairs, pairs.credit() - pair_credit(rule_margin), where=decided)
    if ahead.low is None or by_model.value is None or by_rule.value is None:
        return too_thin(line, ahead, LEAST_PAIRS)
    evidence = (
        Intervals(
            title="Right on the same pairs",
            rows=(("This model", by_model), (rule[0].upper() + rule[1:], by_rule)),
            reference=0.5,
            reference_label="a coin",
        ),
    )
    said = (
        f"{percent(by_model.value)} right, and “{rule}” {percent(by_rule.value)}, on the same "
        f"{ahead.n:,} pairs: {points(ahead)}"
    )
    if ahead.low > 0 and ahead.n < LEAST_PAIRS:
        return unmeasured(
            line,
            f"{said}, but fewer than {LEAST_PAIRS} pairs are too few for a yes. Hold out more.",
            evidence=evidence,
        )
    if ahead.low > 0:
        verdict, says = Verdict.GREEN, f"{said} better."
    elif ahead.high is not None and ahead.high < 0:
        verdict, says = Verdict.RED, f"{said}: worse than a rule that reads nothing."
    elif (pairs.credit() == pair_credit(rule_margin))[decided].all():
        verdict = Verdict.RED
        says = f"{said}: it decides every pair as “{rule}” does."
    else:
        verdict = Verdict.RED
        says = f"{said}: it cannot be told apart from the rule with {ahead.n:,} pairs."
    return Finding(
        line=line,
        verdict=verdict,
        says=says,
        figure=ahead,
        evidence=evidence,
        facts={
            "difference": ahead.value,
            "length_only": longer.value,
            "shorter_wins": bool(shorter_wins),
        },
    )


def beats_words(pairs: Pairs, words: Floats | None) -> Finding:
    """Red: less right than counted words on the same rows, by more than chance.

    words: (n,) margins of `word_margins`. A loss must be shown to be red; where the interval is too
    wide to have shown five points, nothing was measured.
    """
    line, decided = "beats_words", pairs.decided
    if words is None:
        return unmeasured(
            line,
            "No training pairs to count words in. Assess it with the snapshot it learned from.",
        )
    by_words = share_of(pairs, pair_credit(words), where=decided)
    by_model = share_of(pairs, pairs.credit(), where=decided)
    ahead = difference_of(pairs, pairs.credit() - pair_credit(words), where=decided)
    if ahead.low is None or by_model.value is None or by_words.value is None:
        return too_thin(line, ahead, LEAST_PAIRS)
    evidence = (
        Intervals(
            title="Right on the same pairs",
            rows=(("This model", by_model), ("Counted words (TF-IDF)", by_words)),
            reference=0.5,
            reference_label="a coin",
            note="Bradley–Terry on TF-IDF and log length, fitted on the training pairs.",
        ),
    )
    said = (
        f"{percent(by_model.value)} right, and counted words {percent(by_words.value)}, on the "
        f"same {ahead.n:,} pairs: {points(ahead)}"
    )
    facts = {"difference": ahead.value, "words": by_words.value, "model": by_model.value}
    if ahead.high is not None and ahead.high < 0:
        return Finding(
            line=line,
            verdict=Verdict.RED,
            says=f"{said}: a list of words does better.",
            figure=ahead,
            evidence=evidence,
            facts=facts,
        )
    if ahead.low <= 0 and half_width(ahead) > WORD_LOSS:
        return unmeasured(line, f"{said}. {more_needed(ahead, WORD_LOSS)}", evidence=evidence)
    if ahead.n < LEAST_PAIRS:
        return unmeasured(
            line, f"{said}, but fewer than {LEAST_PAIRS} pairs are too few.", evidence=evidence
        )
    better = "better" if ahead.low > 0 else "no worse as far as these pairs show"
    return Finding(
        line=line,
        verdict=Verdict.GREEN,
        says=f"{said}: {better}.",
        figure=ahead,
        evidence=evidence,
        facts=facts,
    )


def word_margins(train: Pairs, held_out: Pairs) -> Floats:
    """(n,) margins, on the held-out rows, of a text model that knows the training texts alone.

    Words, their rarity and their weights come from `train`; its confidences are soft labels: a row
    counts c for chosen and 1 − c for rejected. See `measures.textmodel`.
    """
    texts: dict[str, int] = {}
    rows = [
        np.array([texts.setdefault(text, len(texts)) for text in side], dtype=np.int64)
        for side in (train.chosen_texts, train.rejected_texts)
    ]
    n_known = len(texts)
    asked = [
        np.array([texts.setdefault(text, len(texts)) for text in side], dtype=np.int64)
        for side in (held_out.chosen_texts, held_out.rejected_texts)
    ]
    corpus = Corpus(list(texts))
    known = np.arange(len(texts)) < n_known
    x = tfidf(_common(corpus.counts(), known), corpus.lengths, known=known)
    differences = (x[rows[0]] - x[rows[1]]).tocsr()
    confidence = np.asarray(train.confidence, dtype=float)
    if (confidence < 1).any():
        differences = sparse.vstack([differences, -differences], format="csr")
        confidence = np.concatenate([confidence, 1 - confidence])
    weights = fit(differences, weights=confidence)
    return np.asarray((x[asked[0]] - x[asked[1]]) @ weights)


def _common(counts: Counts, known: NDArray[np.bool_]) -> Counts:
    """Features that stand in at least `LEAST_TEXTS` of the known texts."""
    seen = counts.table.tocsr()[np.flatnonzero(known)]
    kept = np.flatnonzero(np.bincount(seen.indices, minlength=seen.shape[1]) >= LEAST_TEXTS)
    return Counts(tuple(counts.names[k] for k in kept), counts.table.tocsr()[:, kept])


def _by_length(pairs: Pairs) -> Interval:
    one, two = pairs.lengths
    return share_of(pairs, pair_credit(one - two), where=pairs.decided)
