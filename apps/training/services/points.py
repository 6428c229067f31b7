"""Where metric points are kept: a block for each batch, small neighbours merged into larger ones.

Everything here that takes a `run_id` runs inside the caller's transaction, which holds the run's
row: so no two transactions write or merge the blocks of a run at once. Readers need no lock; each
reads all blocks in one statement.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from django.db import transaction
from django.db.models import Max

from apps.common.errors import Missing
from apps.training.metric_blocks import (
    Column,
    Point,
    block_fields,
    decode,
    gathered,
    series_columns,
)
from apps.training.models import MetricBlock, Run, RunAttempt
from apps.training.services.attempts import run_locked

FULL_POINTS = 65_536  # a block of so many is not touched again
BLOCKS_TO_MERGE = 32  # small neighbours that become one; so a live run has fewer small ones


class _Place(NamedTuple):
    """Where a block stands among those of its attempt, without its content."""

    pk: int
    points: int

    @property
    def is_small(self) -> bool:
        return self.points < FULL_POINTS


def metrics_store(
    *, run: Run, attempt: int, series: Mapping[str, Sequence[Point]]
) -> list[MetricBlock]:
    """Store {name: [(step, value), …]} as if the trainer of this attempt had just reported it.

    For what no trainer sends: imported runs, and runs that a test makes up. None is a value that
    was undefined at that step; NaN and infinities may be floats or the contract's words. The
    attempt's numbering goes on, so pages see that there is something new.
    """
    columns = series_columns(series)
    with transaction.atomic():
        if run_locked(run.pk) is None:
            raise Missing("There is no such run any more.", field="run")
        tried = RunAttempt.objects.filter(run=run, number=attempt)
        seq = max(
            tried.values_list("last_seq", flat=True).first() or 0,
            MetricBlock.objects.filter(run=run, attempt=attempt).aggregate(m=Max("last_seq"))["m"]
            or 0,
        )
        stored = pieces_add(run_id=run.pk, attempt=attempt, seq=seq, columns=columns)
        tried.update(last_seq=seq + len(stored))
    return stored


def pieces_add(
    *, run_id: str, attempt: int, seq: int, columns: Mapping[str, Column]
) -> list[MetricBlock]:
    """As few rows as hold these points, numbered from `seq` + 1."""
    columns = {name: one for name, one in columns.items() if len(one)}
    pieces = -(-sum(map(len, columns.values())) // FULL_POINTS)
    rows = [
        block_add(run_id=run_id, attempt=attempt, first_seq=n, columns=piece)
        for n, piece in enumerate(_cut(columns, pieces), seq + 1)
    ]
    return [row for row in rows if row is not None]


def _cut(columns: Mapping[str, Column], pieces: int) -> Iterator[dict[str, Column]]:
    """The columns in so many stretches of about the same length."""
    for i in range(pieces):
        yield {
            name: one.kept(slice(i * len(one) // pieces, (i + 1) * len(one) // pieces))
            for name, one in columns.items()
        }


def block_add(
    *,
    run_id: str,
    attempt: int,
    first_seq: int,
    columns: Mapping[str, Column],
    last_seq: int | None = None,
) -> MetricBlock | None:
    """One row with all of these points; none when there is no point."""
    fields = block_fields(columns)
    if not fields:
        return None
    return MetricBlock.objects.create(
        run_id=run_id,
        attempt=attempt,
        first_seq=first_seq,
        last_seq=first_seq if last_seq is None else last_seq,
        **fields,
    )


def blocks_merge(*, run_id: str, attempt: int, least: int = BLOCKS_TO_MERGE) -> int:
    """Make larger blocks of small neighbours, if there are `least` small ones. The order of the
    points stays, since of two values at one step the later one counts. Returns rows saved."""
    blocks = MetricBlock.objects.filter(run_id=run_id, attempt=attempt)
    if blocks.filter(points__lt=FULL_POINTS).count() < max(2, least):
        return 0
    places = [_Place(*row) for row in blocks.order_by("first_seq").values_list("pk", "points")]
    return sum(_merge(group) for group in _neighbours(places))


def _neighbours(places: Sequence[_Place]) -> Iterator[list[int]]:
    """Keys of small blocks in a row, in groups that are full or nearly so when merged."""
    for small, row in groupby(places, key=lambda place: place.is_small):
        group: list[int] = []
        points = 0
        for place in row if small else ():
            group.append(place.pk)
            points += place.points
            if points >= FULL_POINTS:
                yield group
                group, points = [], 0
        if group:
            yield group


def _merge(keys: list[int]) -> int:
    if len(keys) < 2:
        return 0
    old = list(MetricBlock.objects.filter(pk__in=keys).order_by("first_seq"))
    columns = gathered(decode(block.head, block.body) for block in old)
    MetricBlock.objects.filter(pk__in=keys).delete()
    block_add(
        run_id=old[0].run_id,
        attempt=old[0].attempt,
        first_seq=old[0].first_seq,
        last_seq=old[-1].last_seq,
        columns=columns,
    )
    return len(old) - 1
