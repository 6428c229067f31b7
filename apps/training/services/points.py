"""Where metric points are kept: a block for each batch, small neighbours merged into larger ones.

Everything here that takes a `run_id` runs inside the caller's transaction, which holds the run's
row: so no two transactions write or merge the blocks of a run at once. Readers need no lock; each
reads all blocks in one statement.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import NamedTuple

import numpy as np
from django.conf import settings
from django.db import transaction
from django.db.models import F, Max, Q, QuerySet
from django.utils import timezone

from apps.common.errors import Conflict, Missing
from apps.snapshots.models import Snapshot
from apps.training.metric_blocks import (
    Column,
    Head,
    Point,
    block_fields,
    decode,
    gathered,
    series_columns,
)
from apps.training.models import Artifact, Checkpoint, MetricBlock, Run, RunAttempt, RunEvent
from apps.training.selectors.metrics import metric_columns
from apps.training.services.attempts import run_locked
from apps.training.services.kinds import Input
from workers.contract.code_version import UNKNOWN
from workers.contract.events import is_by_time

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
    attempt's numbering continues, so pages see that there is something new.
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
        stored = pieces_add(
            run_id=run.pk, attempt=attempt, seq=seq, columns=columns, at=timezone.now()
        )
        tried.update(last_seq=seq + len(stored))
    return stored


def pieces_add(
    *,
    run_id: str,
    attempt: int,
    seq: int,
    columns: Mapping[str, Column],
    at: datetime | None = None,
) -> list[MetricBlock]:
    """As few rows as hold these points, numbered from `seq` + 1. `at` as of `block_add`."""
    columns = {name: one for name, one in columns.items() if len(one)}
    pieces = -(-sum(map(len, columns.values())) // FULL_POINTS)
    rows = [
        block_add(run_id=run_id, attempt=attempt, first_seq=n, columns=piece, at=at)
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
    at: datetime | None = None,
) -> MetricBlock | None:
    """One row with all of these points; none when there is no point. `at`: when they arrived, kept
    where one of them is of a step: the machine is measured while the training hangs, too."""
    is_of_steps = any(not is_by_time(name) for name, one in columns.items() if len(one))
    fields = block_fields(columns, at=at.timestamp() if at and is_of_steps else None)
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
    arrived = max((at for block in old if (at := Head.read(block.head).at)), default=None)
    MetricBlock.objects.filter(pk__in=keys).delete()
    block_add(
        run_id=old[0].run_id,
        attempt=old[0].attempt,
        first_seq=old[0].first_seq,
        last_seq=old[-1].last_seq,
        columns=columns,
        at=None if arrived is None else datetime.fromtimestamp(arrived, UTC),
    )
    return len(old) - 1


# What of old runs is kept: of each metric its extremes, and none of what no page shows any more.
#
# A run that has been thinned looks the same at the width of a screen: of each stretch of steps its
# first, last, least and greatest value stay, and the first that was no number. What is between them
# goes, and so do the points of superseded attempts, log lines and signs of progress.

log = logging.getLogger(__name__)
SPENT_EVENTS = ("Log", "Progress")  # nobody looks at them once a run is old
EVENTS_AT_ONCE = 5000
_OF_EACH_STRETCH = 5


@dataclass(slots=True)
class Thinned:
    """What a pass over old runs did."""

    runs: int = 0
    points_before: int = 0
    points_after: int = 0
    events: int = 0


def runs_thin(
    *, ended_before: datetime, now: datetime, kept: Collection[str], most_points: int, most: int
) -> Thinned:
    """Thin at most `most` runs that ended before then, the longest ended first; never those in
    `kept`, never one that continues. Each run is a transaction of its own, and each few thousand
    events; a pass that is cut short is continued by the next one. Repeating it changes nothing."""
    done = Thinned()
    for pk in list(_due(ended_before).exclude(pk__in=kept).values_list("pk", flat=True)[:most]):
        done.events += _events_drop(pk, ended_before)
        _run_thin(pk, ended_before, now, most_points, done)
    if done.runs:
        log.info("thinned %s old runs: %s", done.runs, done)
    return done


def _due(ended_before: datetime) -> QuerySet[Run]:
    """Ended long ago, and not thinned since: a run that was resumed has new points."""
    return Run.objects.filter(
        Q(thinned_at=None) | Q(thinned_at__lt=F("ended_at")),
        state__in=Run.ENDED_STATES,
        ended_at__lt=ended_before,
    ).order_by("ended_at")


def _events_drop(run_id: str, ended_before: datetime) -> int:
    """Only what was said before then, and only while the run has not been resumed."""
    dropped = 0
    while True:
        with transaction.atomic():
            run = run_locked(run_id)
            if run is None or run.is_live:
                return dropped
            spent = RunEvent.objects.filter(run=run, type__in=SPENT_EVENTS, at__lt=ended_before)
            some = list(spent.values_list("pk", flat=True)[:EVENTS_AT_ONCE])
            RunEvent.objects.filter(pk__in=some).delete()
        dropped += len(some)
        if len(some) < EVENTS_AT_ONCE:
            return dropped


def _run_thin(
    run_id: str, ended_before: datetime, now: datetime, most_points: int, done: Thinned
) -> None:
    with transaction.atomic():
        if run_locked(run_id) is None:
            return
        run = _due(ended_before).filter(pk=run_id).first()
        if run is None:  # resumed, or thinned by another worker
            return
        blocks = MetricBlock.objects.filter(run=run)
        # All that count lie on one line over the attempts, so they can all be of the newest one:
        # should the run be resumed from an earlier step, the points beyond it stop counting.
        newest = blocks.order_by("-attempt").values_list("attempt", flat=True).first()
        if newest is not None:
            kept = {
                name: thinned(one, most_points) for name, one in metric_columns(run=run).items()
            }
            done.points_before += sum(blocks.values_list("points", flat=True))
            done.points_after += sum(map(len, kept.values()))
            blocks.delete()
            pieces_add(run_id=run.pk, attempt=newest, seq=0, columns=kept)
        Run.objects.filter(pk=run.pk).update(thinned_at=now)
        done.runs += 1


def thinned(one: Column, most: int) -> Column:
    """At most `most` points: of each stretch the first, the last, the least, the greatest and the
    first NaN or infinity. A value that was undefined counts as none of them."""
    n = len(one)
    if n <= most:
        return one
    cuts = np.arange(max(1, most // _OF_EACH_STRETCH) + 1) * n // max(1, most // _OF_EACH_STRETCH)
    starts, stops = cuts[:-1], cuts[1:]
    grid = np.minimum(starts[:, None] + np.arange(int((stops - starts).max())), stops[:, None] - 1)
    values = one.values[grid]
    finite = np.isfinite(values)
    broken = ~finite
    if one.undefined is not None:
        broken &= ~one.undefined[grid]
    rows = np.arange(len(grid))
    picked = [
        starts,
        stops - 1,
        grid[rows, np.where(finite, values, np.inf).argmin(axis=1)],
        grid[rows, np.where(finite, values, -np.inf).argmax(axis=1)],
        grid[rows, broken.argmax(axis=1)],  # the first of the stretch where none is broken
    ]
    return one.kept(np.unique(np.concatenate(picked)))


# What must be known of a run before it starts, so that it can be repeated afterwards.


def context_check(*, run: Run, inputs: Mapping[str, Input]) -> None:
    """Raises `Conflict` (context_incomplete) naming everything that is missing: a run whose code
    or inputs nobody can name again proves nothing.

    Configuration and seed were checked before; library versions are the worker's, which sends them
    with its first event. The input of a run that still trains gets its hash when that ends.
    """
    missing = []
    if run.code_version in ("", UNKNOWN):
        missing.append(
            "the code version (start from a git checkout, or install the package with its version)"
        )
    if not settings.ARTIFACTS_URL:
        missing.append("where checkpoints and logs are kept (ARTIFACTS_URL)")
    missing += [
        f"the content hash of the input '{role}' ({given.pk})"
        for role, given in inputs.items()
        if isinstance(given, Snapshot | Checkpoint | Artifact) and not given.sha256
    ]
    if missing:
        raise Conflict(
            f"The run could not be repeated, so it is not launched. Missing: {'; '.join(missing)}.",
            code="context_incomplete",
        )
