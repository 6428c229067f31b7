"""The votes behind a frozen dataset: their shares, and the votes themselves, one a row.

A vote's row is never overwritten (a change adds a revision), so the ids that were frozen name the
same votes for good.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from apps.labeling.models import Choice, Vote
from apps.snapshots.assembling.rows import Row, voted_for
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.storage import NameOf, names_in

_PART = 2_000


@dataclass(frozen=True, slots=True)
class VotesBehind:
    """What decided a row: votes, a model of the voters, or a person's ruling over them."""

    winner: str
    decided_by: str
    choices: list[str]


def behind_rows(snapshot: Snapshot, split: str) -> dict[str, VotesBehind]:
    """Comparison → what stands behind its row of one file."""
    rows = list(_rows(snapshot, split))
    by = dict(
        SnapshotRow.objects.filter(snapshot=snapshot, split=split).values_list(
            "comparison_id", "decided_by"
        )
    )
    ids = [vote for _, _, votes in rows for vote in votes]
    choices: dict[int, str] = {}
    for start in range(0, len(ids), _PART):
        part = Vote.objects.filter(pk__in=ids[start : start + _PART])
        choices.update(part.values_list("pk", "choice"))
    return {
        str(pair): VotesBehind(
            winner, by[pair], [choices[vote] for vote in votes if vote in choices]
        )
        for pair, winner, votes in rows
    }


def preference_share(winner: str, choices: Iterable[str]) -> float | None:
    """(votes for the winner + ½ · ties and both bad) ÷ votes; None without votes."""
    votes = list(choices)
    if not votes:
        return None
    halves = sum(choice not in (Choice.A, Choice.B) for choice in votes)
    return (votes.count(winner) + halves / 2) / len(votes)


def vote_rows(snapshot: Snapshot, split: str) -> Iterator[Row]:
    """One row a vote, in the order of the file. Annotators have the names of the files."""
    name_of = names_in(snapshot.counts)
    rows = list(_rows(snapshot, split))
    for start in range(0, len(rows), _PART):
        part = rows[start : start + _PART]
        found = _votes([vote for _, _, votes in part for vote in votes])
        for pair, winner, votes in part:
            for vote in votes:
                if vote in found:
                    yield _vote_row(found[vote], pair, winner, name_of)


def _rows(snapshot: Snapshot, split: str) -> Any:
    return (
        SnapshotRow.objects.filter(snapshot=snapshot, split=split)
        .order_by("ordinal", "pk")
        .values_list("comparison_id", "winner", "vote_ids")
    )


def _votes(ids: list[int]) -> dict[int, dict[str, Any]]:
    names = (
        "pk",
        "annotator_id",
        "choice",
        "left_is",
        "strength",
        "reasons",
        "flags",
        "guideline__version",
        "active_ms",
        "revision",
        "cast_at",
    )
    return {vote["pk"]: vote for vote in Vote.objects.filter(pk__in=ids).values(*names)}


def _vote_row(vote: dict[str, Any], pair: int, winner: str, name_of: NameOf) -> Row:
    choice, left = vote["choice"], vote["left_is"]
    side = ""
    if choice in (Choice.A, Choice.B):
        side = ("left" if choice == left else "right") if left else ""
    return {
        "comparison": str(pair),
        "vote": str(vote["pk"]),
        "annotator": name_of(vote["annotator_id"]),
        "choice": choice,
        "voted_for": _voted_for(choice, winner),
        "side": side,
        "strength": vote["strength"],
        "reasons": vote["reasons"],
        "flags": vote["flags"],
        "guideline_version": vote["guideline__version"],
        "active_ms": vote["active_ms"],
        "revision": vote["revision"],
        "cast_at": vote["cast_at"].isoformat(),
    }


def _voted_for(choice: str, winner: str) -> str:
    """In the words of the frozen rows, which know chosen and rejected but not A and B."""
    if choice not in (Choice.A, Choice.B):
        return choice
    if winner in (Choice.TIE, Choice.BOTH_BAD):
        return ""  # the row has no side that a vote could be for
    # Held-out annotators who disagree have no winner in common: each row has its own vote's.
    return voted_for(choice, winner or choice)
