"""Is it right, more so than rules that read little or nothing, and as much for what it has not met?

Accuracy counts a tie in the scores as half and leaves out rows without a preferred side. All
intervals are 95 %, over what rows share (`Pairs.interval`); a gap is between parts that share no
rows (`significance.gap_between`).
"""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from measures.accuracy import pair_credit
from measures.blocks import Intervals, Table
from measures.corpus import Corpus, Counts
from measures.estimate import Interval
from measures.intervals import mean_interval
from measures.textmodel import fit, tfidf
from measures.trust.findings import Finding, Verdict, unmeasured
from measures.trust.significance import (
    LEAST_PAIRS,
    Pairs,
    difference_of,
    gap_between,
    half_width,
    share_of,
)
from workers.contract.numbers import percent, share
from workers.trust.wording import more_needed, points, too_thin

Floats = NDArray[np.float64]

LEAST_ACCURACY = 0.6  # SPEC: under it by its interval is a no-go
WORD_LOSS = 0.05  # half-width from which on a loss to counted words could have been missed
MOST_OVERFIT = 0.15  # SPEC: train − validation
PEOPLE_GAP = 0.10  # half-width from which on a gap between people could have been missed
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


# Unseen pairs, unseen people.


def overfit(train: Pairs | None, held_out: Pairs | None) -> Finding:
    """Red: training accuracy is more than 15 points above held-out accuracy, and above it at all
    by more than chance.

    Assumes that the two share no clusters. The gap itself decides rather than its lower bound: a
    gap of 25 points from few pairs is no reason to believe in 14.
    """
    line = "overfit"
    if train is None or held_out is None or not len(train) or not len(held_out):
        missing = "training" if train is None or not len(train) else "unseen"
        return unmeasured(line, f"No {missing} pairs to compare with.")
    known = share_of(train, train.credit(), where=train.decided)
    unseen = share_of(held_out, held_out.credit(), where=held_out.decided)
    return _gap(
        line,
        known,
        unseen,
        ("Training pairs", "Unseen pairs"),
        limit=MOST_OVERFIT,
        bad="it has learned its training pairs by heart.",
        good="under 15 points.",
    )


def unseen_people(seen: Pairs | None, unseen: Pairs | None) -> Finding:
    """Red: more right for annotators that it learned from than for others, by more than chance.

    Both parts are of pairs unseen in training. The interval of each side is the wider of two: over
    what texts share, and over annotators, who are what the question is about. With fewer than ten
    annotators there is no interval over them, and the gap is one of those few: the sentence says
    how many they are.

    What several people agree on is easier to predict than one person's vote. A row of several
    therefore counts as right against one of them: c·p + (1 − c)(1 − p) for a credit of c and a
    chance p, the row's confidence, that another of them votes like that.
    """
    line = "unseen_people"
    if unseen is None or not len(unseen):
        return unmeasured(
            line,
            "No pairs of held-out annotators. Freeze a snapshot that holds some people out.",
        )
    if seen is None or not len(seen):
        return unmeasured(line, "No unseen pairs of the annotators that it learned from.")
    return _gap(
        line,
        _over_people(seen),
        _over_people(unseen),
        (f"People it learned from{_how_many(seen)}", f"People it never met{_how_many(unseen)}"),
        limit=0.0,
        most_half=PEOPLE_GAP,
        bad="it knows those people better than what people want.",
        good="no gap beyond chance.",
    )


def _how_many(pairs: Pairs) -> str:
    known = {str(name) for name in pairs.annotators if name}
    return f" ({len(known):,})" if known else ""


def _over_people(pairs: Pairs) -> Interval:
    credit = _against_one(pairs)
    found = share_of(pairs, credit, where=pairs.decided)
    if len(pairs.annotators) != len(pairs) or not all(pairs.annotators):
        return found
    names = np.asarray([str(name) for name in pairs.annotators])[pairs.decided]
    by_person = mean_interval(credit[pairs.decided], clusters=names, replicates=pairs.replicates)
    wider = half_width(by_person) > half_width(found) and by_person.low is not None
    return by_person if wider else found


def _against_one(pairs: Pairs) -> NDArray[np.float64]:
    credit, chance = pairs.credit(), np.asarray(pairs.confidence, dtype=float)
    several = np.array([not name for name in pairs.annotators] or [True] * len(pairs), dtype=bool)
    return np.where(several, credit * chance + (1 - credit) * (1 - chance), credit)


def _gap(
    line: str,
    one: Interval,
    other: Interval,
    names: tuple[str, str],
    *,
    limit: float,
    bad: str,
    good: str,
    most_half: float | None = None,
) -> Finding:
    gap = gap_between(one, other)
    if gap.value is None or gap.low is None or one.value is None or other.value is None:
        return too_thin(line, gap, LEAST_PAIRS)
    evidence = (
        Intervals(title="Right", rows=((names[0], one), (names[1], other))),
        Table(
            title="In numbers",
            columns=("", "Pairs", "Right", "From", "To"),
            formats=("text", "count", "share", "share", "share"),
            rows=tuple(
                (name, part.n, part.value, part.low, part.high)
                for name, part in zip(names, (one, other), strict=True)
            ),
        ),
    )
    said = (
        f"{names[0]}: {share(one)} right, n = {one.n:,}; {names[1][0].lower()}{names[1][1:]}: "
        f"{share(other)}, n = {other.n:,}. The gap is {points(gap)}"
    )
    facts = {"gap": gap.value, "gap_low": gap.low, "gap_high": gap.high}
    if gap.value > limit and gap.low > 0:
        verdict, says = Verdict.RED, f"{said}: {bad}"
    elif (other.low or 0.0) <= 0.5:
        return unmeasured(
            line,
            f"{said}, but it is not shown to be better than a coin on the latter, so there is "
            "nothing to compare.",
            evidence=evidence,
        )
    elif half_width(gap) > (most_half or limit):
        return unmeasured(
            line, f"{said}. {more_needed(gap, most_half or limit)}", evidence=evidence
        )
    elif min(one.n, other.n) < LEAST_PAIRS:
        return unmeasured(
            line, f"{said}, but under {LEAST_PAIRS} pairs are too few.", evidence=evidence
        )
    else:
        verdict, says = Verdict.GREEN, f"{said}: {good}"
    return Finding(
        line=line, verdict=verdict, says=says, figure=gap, evidence=evidence, facts=facts
    )
