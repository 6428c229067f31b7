"""The figures a snapshot states about itself, and the warnings that follow from them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from apps.snapshots.advice.facts import FEW_PAIRS, VERY_FEW_PAIRS
from apps.snapshots.assembling.deciding import VOTE_TIE, DecidedBy
from apps.snapshots.assembling.material import CurrentVote, Drop, Material, Pair, SplitLine, Units
from apps.snapshots.assembling.rows import desirable
from apps.snapshots.recipe import (
    HELDOUT_ANNOTATORS,
    KTO,
    PUBLISHED,
    SINGLE,
    SMOKE,
    SOFT,
    TRAIN,
    SnapshotRecipe,
)
from measures.bootstrap import LEAST_UNITS
from measures.voting import Choice, expected_keep_rate, posterior_keep_rate
from measures.voting.chance import MOST_VOTES

Lines = Mapping[str, Sequence[SplitLine]]


def tally(
    files: Lines,
    drops: Sequence[Drop],
    material: Material,
    recipe: SnapshotRecipe,
    *,
    units: Units,
    votes_per_pair: Sequence[int],
    refused: Mapping[str, int],
    held: Mapping[int, Sequence[CurrentVote]],
    reliability: Mapping[int, float],
) -> dict[str, Any]:
    """Counts as stored in `Snapshot.counts`; all whole numbers but the chance rate."""
    pairs = {pair.id: pair for pair in material.pairs}
    held_votes = [vote for votes in held.values() for vote in votes]
    kept_held = files.get(HELDOUT_ANNOTATORS, ())
    decided = [line for name, rows in files.items() if name != HELDOUT_ANNOTATORS for line in rows]
    people = {vote.id: vote.person for vote in material.votes}
    per_line = 2 if recipe.ties == KTO else 1
    return {
        "comparisons": len(material.pairs),
        "kept": len(decided),
        "rows": {name: len(rows) * per_line for name, rows in files.items()},
        "groups": {name: len({pairs[x.pair].group for x in rows}) for name, rows in files.items()},
        "arguments": {name: len(arguments(rows, pairs)) for name, rows in files.items()},
        "dropped": dict(sorted(Counter(drop.reason for drop in drops).items())),
        "split_by": units.by,
        "units": len(set(units.of.values())),
        "components": len(set(units.component.values())),
        "votes": {
            "seen": sum(votes_per_pair),
            "deciding": sum(len(line.votes) for line in decided),
            "held_out": len(held_votes),
            "held_out_rows": len(kept_held),
            "held_out_without_side": sum(
                vote.choice not in (Choice.A, Choice.B) for vote in held_votes
            ),
            "refused": dict(sorted(refused.items())),
        },
        "annotators": {
            "training": len({people[v] for line in files.get(TRAIN, ()) for v in line.votes}),
            "held_out": len({vote.person for vote in held_votes}),
        },
        "texts_recur": texts_recur(decided, pairs),
        **({"labels": labels(files.get(TRAIN, ()), pairs)} if recipe.ties == KTO else {}),
        **({"slices": found} if (found := slices(decided, pairs)) else {}),
        "repeated_pairs": repeated_pairs(files.get(TRAIN, ()), pairs),
        "decided_by": dict(sorted(Counter(line.by for line in decided).items())),
        "winners": dict(sorted(Counter(line.winner for line in decided).items())),
        "chance_keep_rate": None
        if recipe.decide_by in (PUBLISHED, SINGLE)
        else expected_by_model(recipe, votes_per_pair, reliability)
        if recipe.by_model
        else expected_keep_rate(recipe.rule, votes_per_pair),
    }


def labels(lines: Iterable[SplitLine], pairs: Mapping[int, Pair]) -> dict[str, int]:
    """Of single answers: how many rows are desirable, how many are not, and how many answers are
    desirable in one row and undesirable in another."""
    by_answer: dict[tuple[str, str], Counter[bool]] = {}
    for line in lines:
        pair = pairs[line.pair]
        for side, answer in (("a", pair.a), ("b", pair.b)):
            counted = by_answer.setdefault((pair.prompt, answer), Counter())
            counted[desirable(line.winner, side)] += 1
    return {
        "desirable": sum(of[True] for of in by_answer.values()),
        "undesirable": sum(of[False] for of in by_answer.values()),
        "contradicting": sum(len(of) > 1 for of in by_answer.values()),
    }


def expected_by_model(
    recipe: SnapshotRecipe, votes_per_pair: Iterable[int], reliability: Mapping[int, float]
) -> float | None:
    """As `expected_keep_rate`, for a posterior: of random voters whom the model takes for people as
    reliable as these are on average. None where these are no better than coins themselves."""
    n_people = len(reliability)
    accuracy = sum(reliability.values()) / n_people if n_people else 0.0
    by_number = Counter(min(n, MOST_VOTES) for n in votes_per_pair)
    total = sum(by_number.values())
    if not total or not 0.5 < accuracy < 1:
        return None
    least = recipe.least_posterior
    return (
        sum(
            k * posterior_keep_rate(accuracy, least, n)
            for n, k in by_number.items()
            if n >= recipe.least_votes
        )
        / total
    )


def slices(lines: Iterable[SplitLine], pairs: Mapping[int, Pair]) -> dict[str, int]:
    """Rows by the slice of their pair, of pairs that were chosen."""
    return dict(sorted(Counter(p.slice for x in lines if (p := pairs[x.pair]).slice).items()))


def arguments(lines: Iterable[SplitLine], pairs: Mapping[int, Pair]) -> set[str]:
    return {text for line in lines for text in (pairs[line.pair].a, pairs[line.pair].b)}


def texts_recur(lines: Iterable[SplitLine], pairs: Mapping[int, Pair]) -> bool:
    """Does any response stand in more than one row? Then rows hang together by their responses."""
    seen = Counter(text for x in lines for text in (pairs[x.pair].a, pairs[x.pair].b))
    return max(seen.values(), default=0) > 1


def repeated_pairs(lines: Iterable[SplitLine], pairs: Mapping[int, Pair]) -> int:
    """Rows whose two texts are also another row's: the same question, asked and counted again."""
    seen = Counter(tuple(sorted((pairs[x.pair].a, pairs[x.pair].b))) for x in lines)
    return sum(n - 1 for n in seen.values())


def few_pairs(n: int) -> str:
    """What is said of so few training pairs; "" of enough."""
    if n < VERY_FEW_PAIRS:
        return (
            f"Only {n:,} training pairs: under {VERY_FEW_PAIRS:,} a reward model overfits easily."
        )
    return "" if n >= FEW_PAIRS else f"{n:,} training pairs: at least {FEW_PAIRS:,} are advised."


def warnings_about(
    files: Lines, pairs: Mapping[int, Pair], recipe: SnapshotRecipe
) -> tuple[str, ...]:
    """What a reader must know before trusting a model trained or measured on these files."""
    said = []
    if few := few_pairs(len(files.get(TRAIN, ()))):
        said.append(few)
    if recipe.ties == KTO and (both := labels(files.get(TRAIN, ()), pairs)["contradicting"]):
        said.append(
            f"{both:,} answers are desirable in one training row and undesirable in another: they "
            "won one pair and lost another."
        )
    if repeated := repeated_pairs(files.get(TRAIN, ()), pairs):
        said.append(f"{repeated:,} training rows repeat the two texts of another row.")
    for name, rows in files.items():
        clusters = len(arguments(rows, pairs))
        if name not in (TRAIN, SMOKE) and clusters < LEAST_UNITS:
            said.append(
                f"{name}: too few distinct answers ({clusters}) for an interval; "
                f"{LEAST_UNITS} are needed."
            )
    if recipe.heldout_annotators and not files.get(HELDOUT_ANNOTATORS):
        said.append(
            "No held-out annotator voted for a side of a pair outside training: "
            "unseen annotators cannot be evaluated."
        )
    if not recipe.heldout_annotators:
        said.append(
            "Nobody is held out: a model is measured on the people it learned from, and nothing "
            "that rests on this dataset can claim to predict people it has not seen."
        )
    return tuple(said)


# Where a decision goes: a row for a side, a soft label, two single labels, or nowhere.
#
# drop   only winners are kept; ties and "both are bad" are counted and left out
# soft   every kept row says P(chosen is preferred), ties and both-bad votes half each; in
#        training a tie is a row at 0.5, elsewhere it is left out, for there is no side to find
# kto    every decided comparison is two labelled answers: of a winner and a loser one is
#        desirable, of a tie both are, of "both are bad" neither is

DECIDED_TIE, DECIDED_BAD = "decided: tie", "decided: both bad"
_TIE, _BAD = "tie", "both_bad"


def line_of(
    pair: Pair, split: str, verdict: DecidedBy, votes: tuple[int, ...], policy: str
) -> SplitLine | Drop:
    """The line of a file, or why there is none."""
    winner = verdict.winner
    if policy == SOFT and split == TRAIN and verdict.undecided == VOTE_TIE and _even(verdict):
        winner = _TIE  # as many for the one as for the other: a label too, and never a coin's
    if not winner:
        return Drop(pair.id, verdict.undecided, votes)
    keeps_tie = policy == KTO or (policy == SOFT and split == TRAIN)
    if winner == _TIE and not keeps_tie:
        return Drop(pair.id, DECIDED_TIE, votes, verdict.reason)
    if winner == _BAD and policy != KTO:
        return Drop(pair.id, DECIDED_BAD, votes, verdict.reason)
    return SplitLine(
        pair.id,
        split,
        winner,
        verdict.share,
        votes,
        confidence=_soft(verdict, winner) if policy == SOFT else verdict.certainty,
        posterior=verdict.posterior,
        by=verdict.by,
        reason=verdict.reason,
    )


def _even(verdict: DecidedBy) -> bool:
    return abs(verdict.p_a - 0.5) < 1e-6


def _soft(verdict: DecidedBy, winner: str) -> float:
    if winner == _TIE:
        return 0.5
    return round(verdict.p_a if winner == "a" else 1 - verdict.p_a, 6)
