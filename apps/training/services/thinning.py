"""What of old runs is kept: of each metric its extremes, and none of what no page shows any more.

A run that has been thinned looks the same at the width of a screen: of each stretch of steps its
first, last, least and greatest value stay, and the first that was no number. What is between them
goes, and so do the points of superseded attempts, log lines and signs of progress.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from django.db import transaction
from django.db.models import F, Q, QuerySet

from apps.training.metric_blocks import Column
from apps.training.models import MetricBlock, Run, RunEvent
from apps.training.selectors.metrics import metric_columns
from apps.training.services.attempts import run_locked
from apps.training.services.points import pieces_add

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
    `kept`, never one that goes on. Each run is a transaction of its own, and each few thousand
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
