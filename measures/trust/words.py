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

from measures.bootstrap import LEAST_UNITS
from measures.estimate import Interval
from measures.trust.findings import Finding, Intervals, Table, Verdict, unmeasured
from measures.trust.pairs import Pairs
from measures.trust.weighing import apart_too_few, some
from measures.trust.word_audit import (
    LEAST_PAIRS,
    MOST_EXCESS,
    MOST_FALSE,
    WordAudit,
    word_audit,
)
from measures.trust.wording import listed, percent, plain

Ints = NDArray[np.int64]

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
