"""The page that compares two datasets: counts, recipes side by side, rows with their votes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from apps.snapshots.display import recipe_facts
from apps.snapshots.models import Snapshot
from apps.snapshots.selectors.comparing import CHANGES, Became, Change, DiffSummary, Fate, VoteState

NOT_THERE = "not there"
MOST_REASONS = 6
CSV_COLUMNS = (
    "comparison",
    "external_id",
    "what",
    "split_before",
    "split_after",
    "winner_before",
    "winner_after",
    "confidence_before",
    "confidence_after",
    "left_out_before",
    "left_out_after",
    "votes_came",
    "votes_gone",
)
_SHORT = {"a": "A", "b": "B", "tie": "Tie", "both_bad": "Both bad"}


@dataclass(frozen=True, slots=True)
class CountTile:
    """`change` is the filter that lists these rows, empty where nothing is to list."""

    name: str
    n: int
    basis: str
    change: str = ""


@dataclass(frozen=True, slots=True)
class VoteChip:
    """`n` votes for the same thing with the same fate."""

    n: int
    words: str
    tone: str
    note: str


@dataclass(frozen=True, slots=True)
class FateShown:
    """`tone` of the winner's badge: a, b or none."""

    where: str
    winner: str
    tone: str
    confidence: str
    left_out: bool


@dataclass(frozen=True, slots=True)
class ChangeRow:
    comparison: int
    name: str
    prompt: str
    held: bool
    what: list[str]
    before: FateShown
    after: FateShown
    came: list[VoteChip]
    gone: list[VoteChip]


@dataclass(frozen=True, slots=True)
class RecipeLine:
    name: str
    old: str
    new: str
    differs: bool


def tiles(summary: DiffSummary) -> list[CountTile]:
    counts = summary.counts
    return [
        CountTile("In both", summary.kept, f"{summary.same:,} of them unchanged"),
        CountTile("Added", counts["added"], _reasons(summary.added_from), "added"),
        CountTile("Removed", counts["removed"], _reasons(summary.removed_to), "removed"),
        CountTile("Winner flipped", counts["flipped"], "of those in both", "flipped"),
        CountTile("Other split", counts["moved"], _moves(summary), "moved"),
        CountTile("Other confidence", counts["confidence"], "of those in both", "confidence"),
    ]


def _reasons(found: list[tuple[str, int]]) -> str:
    shown = [f"{reason} {n:,}" for reason, n in found[:MOST_REASONS]]
    rest = sum(n for _, n in found[MOST_REASONS:])
    return ", ".join([*shown, *([f"other reasons {rest:,}"] if rest else [])])


def _moves(summary: DiffSummary) -> str:
    return ", ".join(f"{old} to {new} {n:,}" for old, new, n in summary.moves[:MOST_REASONS])


def recipe_lines(old: Snapshot, new: Snapshot) -> list[RecipeLine]:
    """Both recipes side by side, what differs first."""
    before, after = (dict(recipe_facts(one.recipe)) for one in (old, new))
    names = list(dict.fromkeys([*before, *after]))
    lines = [
        RecipeLine(
            name,
            before.get(name, "—"),
            after.get(name, "—"),
            before.get(name) != after.get(name),
        )
        for name in names
    ]
    return sorted(lines, key=lambda line: not line.differs)


def change_rows(changes: Iterable[Change], votes: Mapping[int, VoteState]) -> list[ChangeRow]:
    return [
        ChangeRow(
            comparison=one.comparison,
            name=one.name,
            prompt=one.prompt,
            held=one.held,
            what=[CHANGES[key] for key in one.what],
            before=_fate(one.before),
            after=_fate(one.after),
            came=_chips((votes[vote].choice, "") for vote in one.came if vote in votes),
            gone=_chips(
                (votes[vote].choice, gone_because(votes[vote]))
                for vote in one.gone
                if vote in votes
            ),
        )
        for one in changes
    ]


def _fate(fate: Fate | None) -> FateShown:
    if fate is None:
        return FateShown(NOT_THERE, "", "", "", left_out=True)
    if not fate.split:
        return FateShown(f"left out: {fate.reason}", "", "", "", left_out=True)
    return FateShown(
        where=fate.split,
        winner=_SHORT.get(fate.winner, "they differ"),
        tone=fate.winner if fate.winner in ("a", "b") else "",
        confidence="" if fate.confidence is None else f"{fate.confidence:.2f}",
        left_out=False,
    )


def _chips(votes: Iterable[tuple[str, str]]) -> list[VoteChip]:
    """(choice, why it went) of single votes, counted, in the order in which they first stand."""
    return [
        VoteChip(n, _SHORT[choice], choice if choice in ("a", "b") else "", note)
        for (choice, note), n in Counter(votes).items()
    ]


def gone_because(vote: VoteState) -> str:
    """Why a vote does not decide the newer row."""
    if vote.became is Became.CHANGED:
        now = _SHORT[vote.choice_now] if vote.other_answer else "the same answer"
        return f"changed to {now}"
    if vote.became is Became.COUNTS:
        return "left out by the recipe"
    return "of an earlier round" if vote.became is Became.EARLIER_ROUND else str(vote.became)


def csv_rows(changes: Iterable[Change]) -> Iterator[dict[str, Any]]:
    for one in changes:
        sides = (one.before, one.after)
        yield {
            "comparison": one.comparison,
            "external_id": one.name,
            "what": ", ".join(one.what),
            "votes_came": " ".join(map(str, one.came)),
            "votes_gone": " ".join(map(str, one.gone)),
        } | {
            f"{name}_{when}": value
            for when, fate in zip(("before", "after"), sides, strict=True)
            for name, value in (
                ("split", fate.split if fate else ""),
                ("winner", fate.winner if fate else ""),
                ("confidence", fate.confidence if fate else None),
                ("left_out", fate.reason if fate else NOT_THERE),
            )
        }
