"""All rows of an import, checked: the good ones, and what is wrong or odd about each."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from apps.labeling.services.import_warnings import Look, Scans
from apps.labeling.services.loading import BadField, ComparisonRow, row_from
from apps.labeling.services.results import RowProblem

_TELL_EVERY = 500  # rows between two calls of `progress`


def rows_read(
    rows: Iterable[Any],
    *,
    max_overlap: int,
    identical_answers: str = "refuse",
    scans: Scans | None = None,
    numbers: Sequence[int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[list[ComparisonRow], list[RowProblem], list[RowProblem], int]:
    """(good rows, problems, warnings, number of rows read).

    numbers: what each row is called in problems, where that is not its place; progress is told how
    many rows have been read, every few hundred.
    """
    good: list[ComparisonRow] = []
    problems: list[RowProblem] = []
    warnings: list[RowProblem] = []
    look = Look(scans or Scans(), identical_answers)
    ids: dict[str, int] = {}
    n = 0
    for n, given in enumerate(rows, start=1):
        number = numbers[n - 1] if numbers else n
        if progress and n % _TELL_EVERY == 0:
            progress(n)
        try:
            row = row_from(number, given, max_overlap)
            if row.external_id:
                first = ids.setdefault(row.external_id, n)
                if first != n:
                    first = numbers[first - 1] if numbers else first
                    raise BadField("id", f"{row.external_id!r} is the id of row {first} too")
            warnings += look.at(row)
        except BadField as error:
            problems.append(RowProblem(number, error.name, error.message))
            continue
        if reason := look.review_reason(row):
            warnings.append(RowProblem(number, reason[0], reason[1], "phrase"))
            row = replace(row, review_reason=reason[1])
        good.append(row)
    return good, problems, warnings, n
