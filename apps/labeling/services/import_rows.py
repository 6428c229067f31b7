"""A file's rows, converted and sorted by what becomes of them; and the words of a report."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from apps.common.errors import DomainError
from apps.common.storable import storable
from apps.labeling.services.oddities import WARNINGS
from apps.labeling.services.results import ImportReport, RowProblem, VotesReport
from measures.splits import assign_splits

MOST_ROWS = 300_000  # comparisons of one import: they are held in memory and go in together
MOST_PROBLEMS = 100_000
MOST_VOTES = 3_000_000
SHARES = {"train": 0.8, "dev": 0.1, "test": 0.1}
_SALT = "0"  # of the draw shown here; a dataset's recipe has its own
_TELL_EVERY = 500


@dataclass(slots=True)
class FileRows:
    """Rows for `comparisons_import` and `votes_import`, each with its place in the file."""

    comparisons: list[dict[str, Any]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    votes: list[dict[str, Any]] = field(default_factory=list)
    vote_numbers: list[int] = field(default_factory=list)
    problems: list[RowProblem] = field(default_factory=list)
    n_records: int = 0


def file_rows(
    values: Iterator[dict[str, Any]],
    *,
    progress: Callable[[int], None] | None = None,
    recognised: Callable[[dict[str, Any]], None] | None = None,
) -> FileRows:
    """Take all that the reader of a file yields (`formats.parsing.rows`)."""
    head = next(values)
    if recognised:
        recognised(head)
    found = FileRows()
    shared: dict[str, str] = {}
    for value in values:
        number = value["row"]
        if number != found.n_records:
            found.n_records = number
            shared.clear()
            if progress and number % _TELL_EVERY == 0:
                progress(number)
        if "fault" in value:
            field_name, message = value["fault"]
            found.problems.append(RowProblem(number, field_name, storable(message)))
            _few_enough(found)
            continue
        found.comparisons.append(_sharing(value["comparison"], shared))
        found.numbers.append(number)
        found.votes += value["votes"]
        found.vote_numbers += [number] * len(value["votes"])
        _few_enough(found)
    return found


def _sharing(row: dict[str, Any], shared: dict[str, str]) -> dict[str, Any]:
    """The pairs of one record repeat its texts; each is held once."""
    return {
        name: shared.setdefault(value, value) if isinstance(value, str) else value
        for name, value in row.items()
    }


def _few_enough(found: FileRows) -> None:
    if len(found.comparisons) > MOST_ROWS:
        raise DomainError(
            f"The file holds more than {MOST_ROWS:,} comparisons. Split it, or take fewer "
            "pairs of each prompt's answers.",
            code="too_many_rows",
            field="file",
        )
    if len(found.problems) > MOST_PROBLEMS:
        raise DomainError(
            f"More than {MOST_PROBLEMS:,} rows of the file cannot be read; the last is row "
            f"{found.n_records:,}: {found.problems[-1].message[:200]}.",
            code="too_many_problems",
            field="file",
        )
    if len(found.votes) > MOST_VOTES:
        raise DomainError(
            f"The file holds more than {MOST_VOTES:,} past votes. Split it.",
            code="too_many_votes",
            field="file",
        )


def report_of(found: FileRows, report: ImportReport, *, max_overlap: int) -> dict[str, Any]:
    """What a check or an import found, in numbers, as a page and a program read it."""
    problems = found.problems + report.problems
    return {
        "n_records": found.n_records,
        "n_comparisons": len(found.comparisons),
        "n_created": report.n_created,
        "n_unchanged": report.n_unchanged,
        "n_refused": len({p.row for p in problems}),
        "n_review": report.n_review,
        "n_prompts": report.n_prompts,
        "n_responses": report.n_responses,
        "n_slots": report.n_slots,
        "warnings": warning_counts(report.warnings),
        "splits": splits_of(report.groups),
        "n_recurring": report.n_recurring,
        "votes": votes_expected(found, max_overlap) if found.votes else {},
        "seconds": round(report.seconds, 2),
    }


def warning_counts(warnings: list[RowProblem]) -> dict[str, int]:
    """Rows with each kind of warning, in the order of WARNINGS."""
    counts = Counter(kind for _, kind in {(w.row, w.kind) for w in warnings})
    return {kind: counts[kind] for kind in WARNINGS if counts[kind]}


def splits_of(groups: Counter[str]) -> dict[str, Any]:
    """How the new rows would fall into splits: whole groups, by the hash of their key."""
    if not groups:
        return {}
    keys = list(groups)
    assigned = assign_splits(keys, SHARES, _SALT)
    rows: Counter[str] = Counter()
    for key, split in zip(keys, assigned.splits, strict=True):
        rows[split] += groups[key]
    return {
        "n_groups": len(keys),
        "largest": max(groups.values()),
        "parts": [
            {"split": s, "share": SHARES[s], "groups": assigned.n_groups[s], "rows": rows[s]}
            for s in SHARES
        ],
        "warnings": list(assigned.warnings),
    }


def votes_expected(found: FileRows, max_overlap: int) -> dict[str, Any]:
    """Past votes of the file: how many, by how many people, and for how many there is no room."""
    by_pair = Counter(str(vote.get("comparison")) for vote in found.votes)
    return {
        "n_votes": len(found.votes),
        "n_people": len({str(vote.get("annotator")) for vote in found.votes}),
        "n_without_room": sum(max(0, n - max_overlap) for n in by_pair.values()),
        "most": max(by_pair.values()),
        "max_overlap": max_overlap,
    }


def votes_result(report: VotesReport) -> dict[str, Any]:
    return {
        "n_votes": report.n_rows,
        "n_created": report.n_created,
        "n_unchanged": report.n_unchanged,
        "n_refused": report.n_refused,
        "n_people": report.n_people,
    }
