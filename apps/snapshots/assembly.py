"""From votes to the rows of a preference snapshot. Pure: the same input gives the same rows.

The order matters and is fixed. (1) Filters take out comparisons, then votes. (2) The votes of
held-out annotators are set aside. (3) Every comparison is decided anew from what is left.
(4) Held-out groups go to their own file, together with every pair that shares an argument with them
out of the way; the rest is split by group or by argument. (5) The votes that were set aside come
back as an evaluation file of their own, one row a vote, on comparisons that no training row and no
dev row shares a text with.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from apps.snapshots.material import Assembly, Ballot, Drop, Line, Material, Pair
from apps.snapshots.recipe import (
    HELDOUT_ANNOTATORS,
    HELDOUT_GROUPS,
    PUBLIC_TEST,
    SPLITS,
    SnapshotRecipe,
    moments,
)
from apps.snapshots.tally import tally, warnings_about
from apps.snapshots.units import Units, place, units_of
from measures.splits import fold_of
from measures.voting import CHOICES, Choice, Decisions, Rule, decide_many

# Why a comparison is in no decided file. Short, stable words: pages and tests count by them.
DROPPED = "the comparison was dropped"
SAME_TEXT = "both answers are the same"
OTHER_GROUP, OTHER_TOPIC = "left out by group", "left out by topic"
OTHER_BATCH, OTHER_STRATUM = "left out by batch", "left out by stratum"
NO_VOTES, FEW_VOTES = "no votes left", "too few votes"
VOTE_TIE, LITTLE_AGREEMENT = "vote tie", "too little agreement"
DECIDED_TIE, DECIDED_BAD = "decided: tie", "decided: both bad"
SHARES_HELDOUT = "shares an argument with a held-out group"

_COLUMN = {choice: column for column, choice in enumerate(CHOICES)}


def assemble(material: Material, recipe: SnapshotRecipe) -> Assembly:
    """Rows, drops with reasons, counts and warnings."""
    pairs = {pair.id: pair for pair in material.pairs}
    left_out = {p.id: reason for p in material.pairs if (reason := _filtered(p, recipe))}
    seen, held, refused = _sort_votes(material, recipe, set(left_out))
    candidates = [pair for pair in material.pairs if pair.id not in left_out]

    split, units, notes = _splits(candidates, recipe)
    decisions = _decide(candidates, seen, recipe.rule)
    lines: dict[str, list[Line]] = defaultdict(list)
    drops = [Drop(pair, reason) for pair, reason in left_out.items()]
    for row, pair in enumerate(candidates):
        votes = seen.get(pair.id, ())
        reason = SHARES_HELDOUT if pair.id not in split else _undecided(decisions, row, recipe.rule)
        if reason:
            drops.append(Drop(pair.id, reason, tuple(vote.id for vote in votes)))
            continue
        where = split[pair.id]
        lines[where].append(_decided_line(pair, where, decisions, row, votes))
    lines[HELDOUT_ANNOTATORS] = _held_lines(candidates, split, held)

    files = {name: tuple(lines[name]) for name in SPLITS if lines[name]}
    drops.sort(key=lambda drop: drop.pair)
    counts = tally(
        files,
        drops,
        material,
        recipe,
        units=units,
        votes_per_pair=[int(n) for n in decisions.n_votes],
        refused=refused,
        held=held,
    )
    warnings = (*notes, *warnings_about(files, pairs, recipe))
    return Assembly(files, tuple(drops), pairs, counts, warnings)


def _filtered(pair: Pair, recipe: SnapshotRecipe) -> str | None:
    """Why the filters leave this comparison out, or None. Held-out groups pass the group filter."""
    wanted = recipe.filters
    groups = {*wanted.groups, *recipe.heldout_groups} if wanted.groups else ()
    checks = (
        (DROPPED, pair.dropped),
        (SAME_TEXT, pair.a == pair.b),
        (OTHER_GROUP, bool(groups) and pair.group not in groups),
        (OTHER_GROUP, pair.group in wanted.without_groups),
        (OTHER_TOPIC, bool(wanted.topics) and pair.topic not in wanted.topics),
        (OTHER_TOPIC, pair.topic in wanted.without_topics),
        (OTHER_BATCH, bool(wanted.batches) and pair.batch not in wanted.batches),
        (OTHER_STRATUM, bool(wanted.strata) and pair.stratum not in wanted.strata),
    )
    return next((reason for reason, applies in checks if applies), None)


def _sort_votes(
    material: Material, recipe: SnapshotRecipe, left_out: set[int]
) -> tuple[dict[int, list[Ballot]], dict[int, list[Ballot]], Counter[str]]:
    """(votes that decide, held-out annotators' votes) by pair, and the rest counted by reason."""
    start, end = moments(recipe.filters)
    excluded = set(recipe.filters.without_annotators)
    seen: dict[int, list[Ballot]] = defaultdict(list)
    held: dict[int, list[Ballot]] = defaultdict(list)
    refused: Counter[str] = Counter()
    folds: dict[str, bool] = {}
    for vote in material.ballots:
        if vote.pair in left_out:
            refused["on comparisons left out"] += 1
        elif vote.person in excluded:
            refused["by annotators left out"] += 1
        elif vote.person in material.barred:
            refused["by annotators of another snapshot's training rows"] += 1
        elif (start and vote.at < start) or (end and vote.at >= end):
            refused["outside the time range"] += 1
        else:
            key = vote.person_key
            if key not in folds:
                folds[key] = fold_of(key, recipe.heldout_annotators, recipe.seed)
            (held if folds[key] else seen)[vote.pair].append(vote)
    return seen, held, refused


def _splits(
    candidates: Sequence[Pair], recipe: SnapshotRecipe
) -> tuple[dict[int, str], Units, tuple[str, ...]]:
    """The split of each pair; a pair without one shares an argument with a held-out group."""
    outside = [pair for pair in candidates if pair.group in recipe.heldout_groups]
    texts = {text for pair in outside for text in (pair.a, pair.b)}
    inside = [
        pair
        for pair in candidates
        if pair.group not in recipe.heldout_groups and not texts & {pair.a, pair.b}
    ]
    units = units_of(inside, recipe.split_by)
    placed = place(units, recipe.shares, recipe.seed)
    split = {pair.id: HELDOUT_GROUPS for pair in outside} | dict(placed.split)
    present = {pair.group for pair in outside}
    absent = tuple(
        f"Held-out group '{group}' has no comparison here."
        for group in recipe.heldout_groups
        if group not in present
    )
    return split, units, (*placed.warnings, *absent)


def _decide(
    candidates: Sequence[Pair], seen: Mapping[int, Sequence[Ballot]], rule: Rule
) -> Decisions:
    counts = np.zeros((len(candidates), len(CHOICES)), dtype=np.int64)
    for row, pair in enumerate(candidates):
        for vote in seen.get(pair.id, ()):
            counts[row, _COLUMN[Choice(vote.choice)]] += 1
    # No more votes come into a frozen dataset: what is not accepted now is not in it.
    return decide_many(counts, rule, votes_possible=counts.sum(axis=1))


def _undecided(decisions: Decisions, row: int, rule: Rule) -> str | None:
    """Why the row is no preference, or None."""
    n, top, winner = (
        int(x[row]) for x in (decisions.n_votes, decisions.n_agreeing, decisions.winner)
    )
    if winner >= 0:
        return {Choice.TIE: DECIDED_TIE, Choice.BOTH_BAD: DECIDED_BAD}.get(CHOICES[winner])
    if not n:
        return NO_VOTES
    if n < rule.least_votes:
        return FEW_VOTES
    if top >= rule.least_agreeing and top / n >= rule.least_share:
        return VOTE_TIE
    return LITTLE_AGREEMENT


def _decided_line(
    pair: Pair, split: str, decisions: Decisions, row: int, votes: Sequence[Ballot]
) -> Line:
    return Line(
        pair=pair.id,
        split=split,
        winner=str(CHOICES[int(decisions.winner[row])]),
        share=float(decisions.share[row]),
        confidence=float(decisions.share[row]),
        votes=tuple(vote.id for vote in votes),
    )


def _held_lines(
    candidates: Iterable[Pair], split: Mapping[int, str], held: Mapping[int, Sequence[Ballot]]
) -> list[Line]:
    """One row per held-out vote for a side. Not on training or dev pairs: their texts are known."""
    return [
        Line(pair.id, HELDOUT_ANNOTATORS, vote.choice, 1.0, (vote.id,), vote.person)
        for pair in candidates
        if split.get(pair.id) in (HELDOUT_GROUPS, PUBLIC_TEST)
        for vote in held.get(pair.id, ())
        if vote.choice in (Choice.A, Choice.B)
    ]
