"""Following votes: where a comparison's votes went, and what has become of those in a dataset."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.common.registry import Use
from apps.labeling.models import Choice
from apps.labeling.texts import excerpt
from apps.snapshots.models import SnapshotRow
from apps.snapshots.selectors.comparing import Became, VoteState
from apps.snapshots.selectors.lineage import n_models

_SHORT = {"a": "A", "b": "B", "tie": "Tie", "both_bad": "Both bad"}


@dataclass(frozen=True, slots=True)
class VoteLine:
    """A vote of a comparison. `datasets`: (name, id) of those it decided a row of."""

    id: int
    who: str
    words: str
    tone: str
    cast_at: datetime
    state: str
    counts: bool
    datasets: list[tuple[str, str]]
    chosen: bool


@dataclass(frozen=True, slots=True)
class DatasetLine:
    """A dataset that looked at the comparison; `n_votes` of them, `n_changed` changed since."""

    use: Use
    row: SnapshotRow
    n_votes: int
    n_changed: int
    n_models: int


@dataclass(frozen=True, slots=True)
class RowLine:
    comparison: int
    name: str
    prompt: str
    split: str
    reason: str
    why: str
    winner: str
    tone: str
    sure: str
    n_votes: int
    n_changed: int


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """A vote behind a frozen row that does not count any more."""

    comparison: int
    split: str
    words: str
    state: str
    at: datetime | None


def state_words(vote: VoteState) -> str:
    if vote.became is Became.CHANGED:
        if vote.other_answer:
            return f"changed to {Choice(vote.choice_now).label}"
        return "changed, with the same answer"
    return {
        Became.COUNTS: "counts",
        Became.TAKEN_BACK: "taken back",
        Became.EARLIER_ROUND: "of an earlier round",
        Became.DISCARDED: "discarded",
    }[vote.became]


def vote_lines(
    votes: Sequence[VoteState], rows: Iterable[SnapshotRow], *, chosen: int | None
) -> list[VoteLine]:
    """In the order they were cast; annotators are numbered within the comparison."""
    datasets: dict[int, dict[str, str]] = {}
    for row in rows:
        for vote in row.vote_ids if row.split else ():
            datasets.setdefault(vote, {})[row.snapshot_id] = row.snapshot.name
    numbers: dict[int, int] = {}
    lines = []
    for vote in sorted(votes, key=lambda vote: vote.id):
        number = numbers.setdefault(vote.annotator, len(numbers) + 1)
        lines.append(
            VoteLine(
                id=vote.id,
                who=f"Annotator {number}",
                words=Choice(vote.choice).label,
                tone=vote.choice if vote.choice in ("a", "b") else "",
                cast_at=vote.cast_at,
                state=state_words(vote),
                counts=vote.became is Became.COUNTS,
                datasets=[(name, pk) for pk, name in datasets.get(vote.id, {}).items()],
                chosen=vote.id == chosen,
            )
        )
    return lines


def dataset_lines(
    rows: Sequence[SnapshotRow], uses: Sequence[Use], votes: Mapping[int, VoteState]
) -> list[DatasetLine]:
    return [
        DatasetLine(
            use=use,
            row=row,
            n_votes=len(row.vote_ids),
            n_changed=sum(
                votes[vote].became is not Became.COUNTS for vote in row.vote_ids if vote in votes
            ),
            n_models=n_models(use.later),
        )
        for row, use in zip(rows, uses, strict=True)
    ]


def row_lines(rows: Iterable[SnapshotRow], changed: Mapping[int, int]) -> list[RowLine]:
    return [_row(row, changed.get(row.comparison_id, 0) if row.split else 0) for row in rows]


def _row(row: SnapshotRow, n_changed: int) -> RowLine:
    sure = row.share if row.confidence is None else row.confidence
    return RowLine(
        comparison=row.comparison_id,
        name=row.comparison.external_id or f"#{row.comparison_id}",
        prompt=excerpt(row.comparison.prompt.brief),
        split=row.split,
        reason=row.dropped_because,
        why=row.reason,
        winner=_SHORT.get(row.winner, ""),
        tone=row.winner if row.winner in ("a", "b") else "",
        sure="" if sure is None else f"{sure:.2f}",
        n_votes=len(row.vote_ids),
        n_changed=n_changed,
    )


def change_lines(
    found: Iterable[tuple[int, int, str]], votes: Mapping[int, VoteState]
) -> list[ChangeLine]:
    """`found`: (vote, comparison, split), in order."""
    return [
        ChangeLine(
            comparison=comparison,
            split=split,
            words=Choice(votes[vote].choice).label,
            state=state_words(votes[vote]),
            at=votes[vote].changed_at,
        )
        for vote, comparison, split in found
        if vote in votes
    ]
