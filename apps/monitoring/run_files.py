"""What the child process of `apps.common.sandbox` does with a run's metrics file, and what comes
back of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from apps.common.errors import DomainError
from workers.diagnosis.reading import Read, ReadingError, read

_POINTS = 20_000  # of one line


def curves(*, path: str, name: str, scratch: str) -> Iterator[dict[str, Any]]:
    """First what the file says of the run, then its curves in pieces. Raises DomainError, whose
    details are the rows that are wrong."""
    try:
        found = read(name, Path(path).read_bytes())
    except ReadingError as error:
        raise DomainError(
            str(error),
            code="unreadable_file",
            field="file",
            row=error.errors[0].row or None,
            details=[{"row": one.row, "message": one.message} for one in error.errors],
        ) from error
    yield {"format": found.format, "config": found.config, "notes": list(found.notes)}
    for metric, points in found.series.items():
        for start in range(0, len(points), _POINTS):
            yield {"metric": metric, "points": points[start : start + _POINTS]}


def read_from(values: Iterator[dict[str, Any]]) -> Read:
    """The curves put together again."""
    head = next(values)
    found = Read(head["format"], {}, head["config"], tuple(head["notes"]))
    for value in values:
        curve = found.series.setdefault(value["metric"], [])
        curve.extend((step, figure) for step, figure in value["points"])
    return found
