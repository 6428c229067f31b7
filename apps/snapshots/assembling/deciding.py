"""What the votes that are left on a comparison amount to: by counting, by a model, by a ruling.

Where a model of the voters decides, it is fitted twice: on the votes on training comparisons alone,
which decides those, and on all votes, which decides the rest. So no vote on a comparison that is
measured on has a part in a training row, not even through what it says about its annotator.

Single votes decide by themselves, and a model says how far each is to be believed. It learns from
comparisons with two votes or more: a lone vote agrees with itself and shows nobody's reliability.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apps.snapshots.assembling.material import (
    BY_LABEL,
    BY_MODEL,
    BY_ONE,
    BY_RULING,
    BY_VOTES,
    CurrentVote,
    Judgement,
    Pair,
)
from apps.snapshots.recipe import OVERRIDE, PUBLISHED, SINGLE, TRAIN, SnapshotRecipe, moments
from measures.consensus import Fit, Votes, fit, votes_from, winners
from measures.voting import CHOICES, Choice, decide_many, decide_many_by_posterior

# Why nothing is decided. Short, stable words: pages and tests count by them.
NO_VOTES, FEW_VOTES = "no votes left", "too few votes"
VOTE_TIE, LITTLE_AGREEMENT = "vote tie", "too little agreement"
LITTLE_POSTERIOR = "posterior too low"
NO_LABEL = "no published label"

COLUMN = {choice: column for column, choice in enumerate(CHOICES)}
# Posteriors are rounded here, so that the last bit of an exponential, which differs from machine to
# machine, does not make another file of the same votes.
_DIGITS = 6
_SUREST = 0.999  # nobody is believed more, so that one vote is never certain


@dataclass(frozen=True, slots=True)
class DecidedBy:
    """winner: a choice, or "" where `undecided` says why. share: of the votes for the winner (or
    for what leads), ties in the whole. p_a: P(A is preferred), tie and both-bad half each.
    certainty: P(winner), by what decided: the share, the posterior, or 1."""

    winner: str
    undecided: str
    share: float
    p_a: float
    certainty: float
    posterior: float | None = None
    by: str = BY_VOTES
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Decided:
    """Verdicts by pair; reliability by person where a model was fitted; what became of rulings."""

    verdicts: Mapping[int, DecidedBy]
    n_votes: Sequence[int]
    reliability: Mapping[int, float]
    rulings: Mapping[str, int]


def decide_pairs(
    candidates: Sequence[Pair],
    seen: Mapping[int, Sequence[CurrentVote]],
    split: Mapping[int, str],
    recipe: SnapshotRecipe,
    *,
    barred: frozenset[int],
    is_held: Callable[[str], bool],
) -> Decided:
    """A verdict for every candidate, from the votes in `seen` alone.

    split: of the candidates that have one; is_held: whether a person, by key, is held out. A ruling
    by somebody who is held out or left out, or outside the time range, is set aside and counted,
    and the votes decide.
    """
    votes = _votes(candidates, seen)
    table = votes.counts()
    modelled = recipe.by_model or recipe.reliability_weights or recipe.decide_by == SINGLE
    fits = _fits(candidates, votes, split, recipe) if modelled else {}
    decisions = (
        decide_many_by_posterior(
            table,
            posteriors := _posteriors(candidates, fits, split),
            recipe.posterior_rule,
            votes_possible=table.sum(axis=1),
        )
        if recipe.by_model
        else decide_many(table, recipe.rule, votes_possible=table.sum(axis=1))
    )
    by_side = {side: _reliability(seen, fits.get(side)) for side in (True, False)}
    found: dict[int, DecidedBy] = {}
    for row, pair in enumerate(candidates):
        n, top, code = (
            int(x[row]) for x in (decisions.n_votes, decisions.n_agreeing, decisions.winner)
        )
        if recipe.decide_by == PUBLISHED:
            found[pair.id] = _published(pair)
            continue
        if recipe.decide_by == SINGLE:
            trusted = by_side[split.get(pair.id) == TRAIN]
            found[pair.id] = _by_single(seen.get(pair.id, ()), trusted)
            continue
        share = top / n if n else 0.0
        winner = str(CHOICES[code]) if code >= 0 else ""
        if recipe.by_model:
            p = posteriors[row]
            best = round(float(p.max()), _DIGITS) if n else None
            found[pair.id] = DecidedBy(
                winner,
                "" if winner else _unsure(n, p, recipe),
                share,
                p_a=round(float(p[0] + (p[2] + p[3]) / 2), _DIGITS),
                certainty=best or 0.0,
                posterior=best,
                by=BY_MODEL,
            )
        else:
            a, b, *_ = (int(x) for x in table[row])
            found[pair.id] = DecidedBy(
                winner,
                "" if winner else _undecided(n, top, recipe),
                share,
                p_a=(a + (n - a - b) / 2) / n if n else 0.5,
                certainty=share,
            )
    rulings = _rule_over(found, candidates, seen, recipe, barred, is_held)
    # As the votes on training comparisons have it.
    return Decided(found, [int(n) for n in decisions.n_votes], by_side[True], rulings)


def _published(pair: Pair) -> DecidedBy:
    """What its import said, which no vote of ours is behind."""
    if not pair.gold:
        return DecidedBy("", NO_LABEL, 0.0, 0.5, 0.0, by=BY_LABEL)
    p_a = {"a": 1.0, "b": 0.0}.get(pair.gold, 0.5)
    return DecidedBy(pair.gold, "", share=1.0, p_a=p_a, certainty=1.0, by=BY_LABEL)


def _by_single(votes: Sequence[CurrentVote], reliability: Mapping[int, float]) -> DecidedBy:
    """The label of whoever voted, with P(A is preferred) by how reliable they are: of one vote for
    A that person's reliability, of several the one-coin posterior, of a tie one half."""
    if not votes:
        return DecidedBy("", NO_VOTES, 0.0, 0.5, 0.0, by=BY_ONE)
    sign = {Choice.A: 1, Choice.B: -1}
    trust = [min(max(reliability[vote.person], 0.5), _SUREST) for vote in votes]
    odds = sum(
        sign.get(Choice(vote.choice), 0) * math.log(q / (1 - q))
        for vote, q in zip(votes, trust, strict=True)
    )
    p_a = round(1 / (1 + math.exp(-odds)), _DIGITS)
    said = {vote.choice for vote in votes}
    if len(said) == 1:
        winner = said.pop()
    elif p_a == 0.5:
        winner = ""
    else:
        winner = "a" if p_a > 0.5 else "b"
    certainty = max(p_a, 1 - p_a)
    return DecidedBy(
        winner,
        "" if winner else VOTE_TIE,
        share=sum(vote.choice == winner for vote in votes) / len(votes),
        p_a=p_a,
        certainty=certainty,
        posterior=certainty,
        by=BY_ONE if len(votes) == 1 else BY_MODEL,
    )


# --- the models ----------------------------------------------------------------------------------


def _votes(candidates: Sequence[Pair], seen: Mapping[int, Sequence[CurrentVote]]) -> Votes:
    """Items are rows of `candidates`, annotators numbered by their person's id."""
    people = {p: k for k, p in enumerate(_people(seen))}
    rows, who, what = [], [], []
    for row, pair in enumerate(candidates):
        for vote in seen.get(pair.id, ()):
            rows.append(row)
            who.append(people[vote.person])
            what.append(COLUMN[Choice(vote.choice)])
    vectors = (np.array(x, dtype=np.int64) for x in (rows, who, what))
    return votes_from(*vectors, n_items=len(candidates), n_annotators=len(people))


def _people(seen: Mapping[int, Sequence[CurrentVote]]) -> list[int]:
    return sorted({vote.person for votes in seen.values() for vote in votes})


def _fits(
    candidates: Sequence[Pair], votes: Votes, split: Mapping[int, str], recipe: SnapshotRecipe
) -> dict[bool, Fit]:
    """By whether the comparison is in training; a side without votes has no fit."""
    method = recipe.decide_by if recipe.by_model else "one_coin"
    trained = np.array([split.get(pair.id) == TRAIN for pair in candidates], dtype=bool)
    found = {}
    if recipe.decide_by == SINGLE:
        several = np.bincount(votes.items, minlength=len(candidates)) > 1
        known = several[votes.items]
        of_training = trained[votes.items]
        return {
            True: fit(method, votes.subset(known & of_training)),
            False: fit(method, votes.subset(known)),
        }
    of_training = trained[votes.items] if len(votes) else np.zeros(0, dtype=bool)
    if of_training.any():
        found[True] = fit(method, votes.subset(of_training))
    if (~of_training).any():
        found[False] = fit(method, votes)
    return found


def _posteriors(
    candidates: Sequence[Pair], fits: Mapping[bool, Fit], split: Mapping[int, str]
) -> NDArray[np.float64]:
    table = np.full((len(candidates), len(CHOICES)), 1 / len(CHOICES))
    for row, pair in enumerate(candidates):
        found = fits.get(split.get(pair.id) == TRAIN)
        if found is not None:
            table[row] = found.posteriors[row]
    return table


def _reliability(seen: Mapping[int, Sequence[CurrentVote]], found: Fit | None) -> dict[int, float]:
    """By person."""
    if found is None:
        return {}
    return dict(zip(_people(seen), map(float, found.reliability), strict=True))


# --- words ---------------------------------------------------------------------------------------


def _undecided(n: int, top: int, recipe: SnapshotRecipe) -> str:
    if not n:
        return NO_VOTES
    if n < recipe.least_votes:
        return FEW_VOTES
    if top >= recipe.least_agreeing and top / n >= recipe.least_share:
        return VOTE_TIE
    return LITTLE_AGREEMENT


def _unsure(n: int, posterior: NDArray[np.float64], recipe: SnapshotRecipe) -> str:
    if not n:
        return NO_VOTES
    if n < recipe.least_votes:
        return FEW_VOTES
    return VOTE_TIE if int(winners(posterior[None])[0]) < 0 else LITTLE_POSTERIOR


# --- rulings -------------------------------------------------------------------------------------


def _rule_over(
    found: dict[int, DecidedBy],
    candidates: Sequence[Pair],
    seen: Mapping[int, Sequence[CurrentVote]],
    recipe: SnapshotRecipe,
    barred: frozenset[int],
    is_held: Callable[[str], bool],
) -> dict[str, int]:
    """Puts what was ruled in the place of what the votes say; returns the counts by what happened.

    A ruling stands whatever was voted after it: that somebody voted on is counted and said.
    """
    told: Counter[str] = Counter()
    for pair in candidates:
        ruling = pair.ruling
        if ruling is None:
            continue
        if aside := _set_aside(ruling, recipe, barred, is_held):
            told[aside] += 1
            continue
        told["used"] += 1
        votes = seen.get(pair.id, ())
        told["voted on since"] += bool(ruling.at and any(vote.at > ruling.at for vote in votes))
        told["against the votes"] += found[pair.id].winner not in ("", ruling.choice)
        said = sum(vote.choice == ruling.choice for vote in votes)
        found[pair.id] = DecidedBy(
            ruling.choice,
            "",
            share=said / len(votes) if votes else 0.0,
            p_a={"a": 1.0, "b": 0.0}.get(ruling.choice, 0.5),
            certainty=1.0,
            by=BY_RULING,
            reason=ruling.reason,
        )
    return {what: n for what, n in sorted(told.items()) if n}


def _set_aside(
    ruling: Judgement,
    recipe: SnapshotRecipe,
    barred: frozenset[int],
    is_held: Callable[[str], bool],
) -> str:
    if recipe.rulings != OVERRIDE:
        return "ignored, as the recipe says"
    if ruling.person_key and is_held(ruling.person_key):
        return "set aside: by a held-out annotator"
    out = barred | set(recipe.filters.left_out) | set(recipe.filters.without_annotators)
    if ruling.person in out:
        return "set aside: by somebody who is left out"
    start, end = moments(recipe.filters)
    if ruling.at and ((start and ruling.at < start) or (end and ruling.at >= end)):
        return "set aside: outside the time range"
    return ""
