"""Metric points of a run over all its attempts, thinned for a screen."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite
from typing import Any

import numpy as np
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, Q

from apps.common.errors import DomainError
from apps.training.metric_blocks import Column, Head, Point, Value, decode, joined
from apps.training.models import MetricBlock, Run, RunEvent
from apps.training.selectors.runs import attempt_ends
from workers.contract.events import is_by_time

__all__ = [
    "Point",
    "Value",
    "metric_columns",
    "metric_latest",
    "metric_news",
    "metric_series",
    "metrics_newest",
    "thin",
    "thin_column",
]

_NEWEST, _NEWER = 4, 40  # heads to look at first, and at most, for the newest figures


def metric_series(
    *,
    run: Run,
    names: Iterable[str] | None = None,
    prefix: str | None = None,
    max_points: int = 2000,
    from_step: int | None = None,
    to_step: int | None = None,
) -> dict[str, list[Point]]:
    """{name: [(step, value), …]} by step, at most `max_points` each; of all metrics, or of those
    in `names` and those that begin with `prefix`; of all steps, or of those from `from_step` to
    `to_step`, both included.

    Points of an attempt count up to the step that the next one resumed from, so a run that was
    cut shows no gap and no point twice. A step measured twice in one attempt shows its last value.
    The steps of `machine/…` are Unix seconds: of those every attempt counts in full.
    """
    columns = metric_columns(
        run=run, names=names, prefix=prefix, from_step=from_step, to_step=to_step
    )
    return {name: thin_column(one, max_points).points() for name, one in columns.items()}


def metric_columns(
    *,
    run: Run,
    names: Iterable[str] | None = None,
    prefix: str | None = None,
    from_step: int | None = None,
    to_step: int | None = None,
) -> dict[str, Column]:
    """`metric_series` in full, as arrays: steps ascending, each once. By name."""
    return _read(run, names, prefix, from_step, to_step, None)[0]


@dataclass(frozen=True, slots=True)
class News:
    """What was recorded since a cursor: `series` as of `metric_series`. Some of its points may be
    known already; of two at one step the later counts. `discard_after`: the run went back to this
    step, and what was recorded beyond it before counts no more."""

    series: dict[str, list[Point]]
    cursor: str
    discard_after: int | None


def metric_news(
    *,
    run: Run,
    cursor: str = "",
    names: Iterable[str] | None = None,
    max_points: int = 2000,
    from_step: int | None = None,
    to_step: int | None = None,
) -> News:
    """All metrics, or `names`, since `cursor`, which an earlier answer gave; empty for all there
    is. Raises `DomainError` for a cursor that is none."""
    after = _cursor(cursor)
    columns, newest = _read(run, names, None, from_step, to_step, after)
    back = attempt_ends(run).get(after[0], inf) if after else inf
    return News(
        {name: thin_column(one, max_points).points() for name, one in columns.items()},
        "-".join(map(str, newest)) if newest else "",
        None if back == inf else int(back),
    )


def metric_cursor(run: Run) -> str:
    """The cursor of the newest point, for `metric_news`, without reading any; empty without one."""
    blocks = MetricBlock.objects.filter(run=run).order_by("-attempt", "-first_seq")
    newest = blocks.values_list("attempt", "last_seq").first()
    return "-".join(map(str, newest)) if newest else ""


def _cursor(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    parts = text.split("-")
    if len(parts) != 2 or not all(part.isdecimal() and len(part) < 18 for part in parts):
        raise DomainError(
            "Send the cursor of an earlier answer as it was.", code="bad_cursor", field="cursor"
        )
    return int(parts[0]), int(parts[1])


def _read(
    run: Run,
    names: Iterable[str] | None,
    prefix: str | None,
    from_step: int | None,
    to_step: int | None,
    after: tuple[int, int] | None,
) -> tuple[dict[str, Column], tuple[int, int] | None]:
    """(columns, (attempt, event) of the newest point read), of what came after the like."""
    wanted = None if names is None else set(names)
    ends = attempt_ends(run)
    low = -inf if from_step is None else from_step
    high = inf if to_step is None else to_step
    blocks = MetricBlock.objects.filter(run=run).order_by("attempt", "first_seq")
    if from_step is not None:
        blocks = blocks.filter(last_step__gte=from_step)
    if to_step is not None:
        blocks = blocks.filter(first_step__lte=to_step)
    if after is not None:
        here = Q(attempt=after[0], last_seq__gt=after[1])
        blocks = blocks.filter(here | Q(attempt__gt=after[0]))
    found: dict[str, list[Column]] = {}
    newest = after
    fields = ("attempt", "last_seq", "first_step", "last_step", "head", "body")
    for attempt, seq, first, last, head, body in blocks.values_list(*fields):
        newest = max(newest or (0, 0), (attempt, seq))
        end = min(high, ends.get(attempt, inf))
        asked = _asked(head, wanted, prefix)
        if first > end:  # a machine's past counts however far the next attempt went back
            asked = [name for name in asked if is_by_time(name)]
        if not asked:
            continue
        within = _Within(low, end) if first < low or last > end else None
        by_time = _Within(low, high) if first < low or last > high else None
        for name, one in decode(head, body, names=asked).items():
            limits = by_time if is_by_time(name) else within
            kept = limits(one) if limits else one
            if len(kept):
                found.setdefault(name, []).append(kept)
    tidy = _Tidy()
    return {name: tidy(joined(parts)) for name, parts in sorted(found.items())}, newest


def _asked(head: bytes, wanted: set[str] | None, prefix: str | None) -> list[str]:
    names = Head.read(head).names
    if wanted is None:
        return names
    return [name for name in names if name in wanted or (prefix and name.startswith(prefix))]


class _Within:
    """The points of a block at the steps that count. Columns that share their steps share the
    comparison."""

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high
        self._masks: dict[int, np.ndarray] = {}

    def __call__(self, one: Column) -> Column:
        key = id(one.steps)
        if key not in self._masks:
            self._masks[key] = (one.steps >= self._low) & (one.steps <= self._high)
        return one.kept(self._masks[key])


class _Tidy:
    """Points by step, of several at one step the last. Most columns are so already."""

    def __call__(self, one: Column) -> Column:
        if bool((np.diff(one.steps) > 0).all()):
            return one
        order = np.argsort(one.steps, kind="stable")
        steps = one.steps[order]
        is_last = np.append(steps[1:] != steps[:-1], True)
        return one.kept(order[is_last])


def metric_latest(*, run: Run, names: Collection[str]) -> dict[str, tuple[int, float]]:
    """name -> (step, value) of the newest number of each, from the heads of the newest blocks
    alone: a page that polls must not read a whole run."""
    heads = (
        MetricBlock.objects.filter(run=run)
        .order_by("-attempt", "-first_seq")
        .values_list("head", flat=True)
    )
    found: dict[str, tuple[int, float]] = {}
    for some in (heads[:_NEWEST], heads[_NEWEST:_NEWER]):
        for head in some:
            latest = Head.read(head).latest()
            found = {name: latest[name] for name in names if name in latest} | found
        if len(found) == len(set(names)):
            break
    return found


@dataclass(frozen=True, slots=True)
class Newest:
    """What a run measured last. `figures`: name -> (step, value), where NaN and the infinities are
    values like any other. `at`: when its newest point of a step arrived, in Unix seconds; None
    where no point has, or none since that is kept."""

    figures: dict[str, tuple[int, float]]
    at: float | None


def metrics_newest(*, runs: Collection[str], names: Collection[str]) -> dict[str, Newest]:
    """id -> the newest figures of each of these runs, in one query however many they are, from the
    heads of their newest blocks alone. A live run has few small blocks beside the large one that
    older ones were merged into, so these heads reach back to its beginning, or 65,000 points."""
    blocks = MetricBlock.objects.filter(run=OuterRef("pk")).order_by("-attempt", "-first_seq")
    rows = (
        Run.objects.filter(pk__in=runs)
        .order_by()
        .values_list("pk", ArraySubquery(blocks.values("head")[:_NEWER]))
    )
    return {pk: _newest(heads, set(names)) for pk, heads in rows}


def _newest(heads: Iterable[bytes], names: set[str]) -> Newest:
    """heads: newest first; no more are read than it takes."""
    found: dict[str, tuple[int, float]] = {}
    arrived: float | None = None
    for raw in heads:
        head = Head.read(raw)
        found = head.newest(names) | found
        arrived = arrived or head.at
        if arrived and len(found) == len(names):
            break
    return Newest(found, arrived)


# --- thinning ----------------------------------------------------------------------------------


def thin(points: list[Point], max_points: int) -> list[Point]:
    """At most `max_points` of them, with the first, the last, and of each stretch between its
    least and greatest value, so a spike of one step is still seen. What is no number is treated
    as the greatest of its stretch: it is what a person must not miss."""
    if len(points) <= max_points:
        return points
    values = [value if isinstance(value, int | float) else inf for _, value in points]
    return [points[i] for i in _kept(_heights(np.array(values)), max_points).tolist()]


def thin_column(one: Column, max_points: int) -> Column:
    """`thin` of arrays."""
    if len(one) <= max_points:
        return one
    return one.kept(_kept(_heights(one.values), max_points))


def _heights(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, inf)


def _kept(heights: np.ndarray, max_points: int) -> np.ndarray:
    """Positions of the points to keep, ascending. heights: (n,), n > max_points.

    The inner points are cut into stretches of n // k or n // k + 1 points; a row of `grid` is one
    stretch, the shorter ones filled up with their last point once more.
    """
    n = len(heights)
    if max_points < 4:
        return np.arange(0, n, max(1, n - 1))[:max_points]
    inner, stretches = n - 2, (max_points - 2) // 2
    cuts = 1 + np.arange(stretches + 1) * inner // stretches
    starts, stops = cuts[:-1, None], cuts[1:, None]
    grid = np.minimum(starts + np.arange(-(-inner // stretches)), stops - 1)
    rows = heights[grid]
    least = cuts[:-1] + rows.argmin(axis=1)
    greatest = cuts[:-1] + rows.argmax(axis=1)
    return np.unique(np.concatenate([[0], least, greatest, [n - 1]]))


# Which curves a run has.


def curve_names(run: Run) -> list[str]:
    """The metrics of which the run has points, by name; from the heads of its blocks alone."""
    heads = MetricBlock.objects.filter(run=run).order_by().values_list("head", flat=True)
    return sorted({name for head in heads for name in Head.read(head).names})


# How a figure was spread over the answers of a step, over all attempts of a run.


@dataclass(frozen=True, slots=True)
class Spread:
    """`counts[i]` values lay from `edges[i]` to `edges[i + 1]` at `step`."""

    step: int
    edges: tuple[float, ...]
    counts: tuple[int, ...]

    @property
    def n(self) -> int:
        return sum(self.counts)


def histogram_names(run: Run) -> list[str]:
    rows = RunEvent.objects.filter(run=run, type="Histogram").order_by()
    return sorted({str(name) for name in rows.values_list("body__name", flat=True) if name})


def histograms(run: Run, name: str) -> list[Spread]:
    """By step. Points of an attempt count up to the step that the next one resumed from; a step
    sent twice shows what was sent last. What is no histogram is left out."""
    ends = attempt_ends(run)
    rows = RunEvent.objects.filter(run=run, type="Histogram", body__name=name)
    found: dict[int, Spread] = {}
    for attempt, body in rows.order_by("attempt", "seq").values_list("attempt", "body"):
        spread = _spread(body)
        if spread is not None and spread.step <= ends.get(attempt, inf):
            found[spread.step] = spread
    return [found[step] for step in sorted(found)]


def _spread(body: dict[str, Any]) -> Spread | None:
    step, edges, counts = body.get("step"), body.get("edges"), body.get("counts")
    if not isinstance(step, int) or not isinstance(edges, list) or not isinstance(counts, list):
        return None
    if not counts or len(edges) != len(counts) + 1:
        return None
    if not all(isinstance(edge, int | float) and isfinite(edge) for edge in edges):
        return None
    if not all(isinstance(n, int) and n >= 0 for n in counts):
        return None
    if any(high <= low for low, high in pairwise(edges)):
        return None
    return Spread(step, tuple(map(float, edges)), tuple(counts))
