"""The leak gate: proves of the written files that nothing measured on was trained on.

It trusts nothing that assembled them. Texts are read back from the files and compared in normal
form; annotators are looked up anew by the ids of the votes; who is held out is computed anew from
the recipe. A snapshot with one leak is not frozen.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from apps.common.errors import Conflict
from apps.snapshots.files import read_rows
from apps.snapshots.material import Line
from apps.snapshots.recipe import (
    HELDOUT_ANNOTATORS,
    HELDOUT_GROUPS,
    PUBLIC_TEST,
    SnapshotRecipe,
)
from apps.snapshots.rows import Row, argument_key
from measures.splits import fold_of

# The held-out annotators' votes are on the very pairs of these two files, which train nothing.
_MAY_SHARE = (
    {HELDOUT_ANNOTATORS, HELDOUT_GROUPS},
    {HELDOUT_ANNOTATORS, PUBLIC_TEST},
)


@dataclass(frozen=True, slots=True)
class VoteFacts:
    """What the database says of a vote."""

    pair: int
    person: int
    person_key: str


@dataclass(frozen=True, slots=True)
class Proof:
    """What was looked at, and every leak found, in words."""

    votes: int
    annotators: int
    texts: int
    splits: int
    leaks: tuple[str, ...]


class LeakFound(Conflict):
    """The files would let a model be measured on what it was trained on."""

    code = "leak"


def prove(
    folder: Path,
    lines: Mapping[str, Sequence[Line]],
    votes: Mapping[int, VoteFacts],
    recipe: SnapshotRecipe,
    *,
    split_by: str,
    barred: frozenset[int] = frozenset(),
) -> Proof:
    """Every check over the files of `folder` and the votes behind their lines.

    votes: facts by vote id, read from the database; barred: people who voted in the training rows
    of a snapshot that this one must be disjoint from.
    """
    files = {name: list(read_rows(folder / f"{name}.jsonl")) for name in lines}
    texts = {name: _texts(rows) for name, rows in files.items()}
    groups = {name: {row["group"]: row["group"] for row in rows} for name, rows in files.items()}
    leaks = [
        *_vote_leaks(lines, votes, recipe, barred),
        *_shared(texts, "argument"),
        *_group_leaks(groups, recipe, split_by),
        *_row_leaks(files, lines),
    ]
    known = [votes[v] for rows in lines.values() for x in rows for v in x.votes if v in votes]
    return Proof(
        votes=len(known),
        annotators=len({vote.person for vote in known}),
        texts=len(set().union(*texts.values())) if texts else 0,
        splits=len(files),
        leaks=tuple(leaks),
    )


def require_clean(proof: Proof) -> None:
    if proof.leaks:
        more = f" (and {len(proof.leaks) - 1} more)" if len(proof.leaks) > 1 else ""
        raise LeakFound(f"Not frozen: {proof.leaks[0]}{more}.", details=list(proof.leaks[:20]))


def _vote_leaks(
    lines: Mapping[str, Sequence[Line]],
    votes: Mapping[int, VoteFacts],
    recipe: SnapshotRecipe,
    barred: frozenset[int],
) -> Iterable[str]:
    left_out = barred | set(recipe.filters.without_annotators)
    for name, rows in lines.items():
        for line in rows:
            for vote in line.votes:
                facts = votes.get(vote)
                if facts is None or facts.pair != line.pair:
                    yield f"vote {vote} in {name} is no vote on comparison {line.pair}"
                    continue
                held = fold_of(facts.person_key, recipe.heldout_annotators, recipe.seed)
                if held != (name == HELDOUT_ANNOTATORS):
                    kind = "a held-out" if held else "a training"
                    yield f"vote {vote} of {kind} annotator stands in {name}"
                if facts.person in left_out:
                    yield f"vote {vote} of an annotator who is left out stands in {name}"


def _shared(keys: Mapping[str, Mapping[str, str]], what: str) -> Iterable[str]:
    for one, other in combinations(keys, 2):
        both = keys[one].keys() & keys[other].keys()
        if both and {one, other} not in _MAY_SHARE:
            example = keys[one][min(both)][:60]
            yield f"{len(both)} {what}s stand in both {one} and {other}, such as '{example}'"


def _group_leaks(
    groups: Mapping[str, Mapping[str, str]], recipe: SnapshotRecipe, split_by: str
) -> Iterable[str]:
    held = set(recipe.heldout_groups)
    for name, present in groups.items():
        if name not in (HELDOUT_GROUPS, HELDOUT_ANNOTATORS) and present.keys() & held:
            yield f"held-out group '{min(present.keys() & held)}' stands in {name}"
    if split_by == "group":
        yield from _shared(groups, "group")


def _row_leaks(
    files: Mapping[str, Sequence[Row]], lines: Mapping[str, Sequence[Line]]
) -> Iterable[str]:
    """The votes were checked by the lines; so the files must be these lines and no others."""
    for name, rows in files.items():
        if [row["comparison"] for row in rows] != [str(line.pair) for line in lines[name]]:
            yield f"the rows of {name} are not those whose votes were checked"


def _texts(rows: Iterable[Row]) -> dict[str, str]:
    """Argument key → its text, of both sides of every row."""
    return {
        argument_key(row["prompt"], row[side]): row[side][-1]["content"]
        for row in rows
        for side in ("chosen", "rejected")
    }
