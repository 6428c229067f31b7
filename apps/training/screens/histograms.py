"""Histograms over time as a strip of columns, and two of them laid over each other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.common.numbers import figure
from apps.common.report.axes import Axis, Tick
from apps.training.models import Run
from apps.training.selectors.metrics import Spread
from workers.contract.metrics import metric_or_own

WIDTH, HEIGHT, LEFT, RIGHT, TOP, FLOOR = 520, 220, 52, 498, 10, 184
MOST_COLUMNS = 90
LEVELS = 8  # shades; more cannot be told apart
TITLES = {"reward": "Reward", "response_length": "Length"}
UNITS = {"reward": "raw score", "response_length": "tokens"}
# In runs that learn an implicit reward, what is called "margin" is the margin of those.
IMPLICIT = {"margin": "rewards/margins"}
COLUMNS = ["name", "step", "from", "to", "count"]


@dataclass(frozen=True, slots=True)
class HeatCell:
    x: float
    y: float
    width: float
    height: float
    level: int  # 1 to LEVELS


@dataclass(frozen=True, slots=True)
class Strip:
    """A histogram by step; `summary` says the same in words."""

    name: str
    title: str
    unit: str
    cells: list[HeatCell]
    medians: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    summary: str
    steps: list[int]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = RIGHT
    floor: int = FLOOR


@dataclass(frozen=True, slots=True)
class Step:
    """One histogram of two: its outline, and its middle in words."""

    step: int
    points: str
    words: str


@dataclass(frozen=True, slots=True)
class HistogramPair:
    first: Step
    second: Step
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    summary: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = RIGHT
    floor: int = FLOOR
    rows: list[tuple[str, str, str]] = field(default_factory=list)


def read_as(name: str, kind: str) -> str:
    """The metric that a histogram of a run of this kind is of."""
    return IMPLICIT.get(name, name) if kind in (Run.Kind.DPO, Run.Kind.KTO) else name


def title_of(name: str) -> str:
    return TITLES.get(name, metric_or_own(name).title)


def unit_of(name: str) -> str:
    return UNITS.get(name, metric_or_own(name).unit)


def strip(name: str, spreads: Sequence[Spread], *, metric: str = "") -> Strip | None:
    """None without a step. `metric` where the histogram is of another one than its name. Each
    column is a stretch of steps: the darker, the larger the share of its values that lay there."""
    columns = _columns([one for one in spreads if one.n])
    if not columns:
        return None
    edges = [edge for _, one in columns for edge in (one.edges[0], one.edges[-1])]
    y_axis = Axis(edges, FLOOR, TOP)
    width = (RIGHT - LEFT) / len(columns)
    most = max(n / one.n for _, one in columns for n in one.counts)
    cells = []
    for place, (_, one) in enumerate(columns):
        for i, n in enumerate(one.counts):
            if n:
                top, bottom = y_axis.at(one.edges[i + 1]), y_axis.at(one.edges[i])
                level = max(1, min(LEVELS, round(LEVELS * (n / one.n) / most)))
                x = round(LEFT + place * width, 1)
                cells.append(HeatCell(x, top, round(width + 0.3, 1), round(bottom - top, 1), level))
    marks = range(0, len(columns), max(1, -(-len(columns) // 8)))
    middles = [
        f"{round(LEFT + (place + 0.5) * width, 1)},{y_axis.at(median(one))}"
        for place, (_, one) in enumerate(columns)
    ]
    return Strip(
        name=name,
        title=title_of(metric or name),
        unit=unit_of(metric or name),
        cells=cells,
        medians=" ".join(middles) if len(middles) > 1 else "",
        x_ticks=[
            Tick(round(LEFT + (place + 0.5) * width, 1), f"{columns[place][0]:,}")
            for place in marks
        ],
        y_ticks=y_axis.ticks,
        summary=_summary(metric or name, spreads),
        steps=[one.step for one in spreads],
    )


def pair(name: str, first: Spread, second: Spread) -> HistogramPair:
    """Two steps over each other, as shares, so that batches of other sizes can be compared."""
    x_axis = Axis([*_ends(first), *_ends(second)], LEFT, RIGHT)
    # Bins may differ in width (after a restart): heights are shares of a bin, which the page says.
    y_axis = Axis([0.0, *_shares(first), *_shares(second)], FLOOR, TOP)
    outlines = [_outline(one, x_axis, y_axis) for one in (first, second)]
    words = [_words(name, one) for one in (first, second)]
    return HistogramPair(
        first=Step(first.step, outlines[0], words[0]),
        second=Step(second.step, outlines[1], words[1]),
        x_ticks=x_axis.ticks,
        y_ticks=y_axis.ticks,
        summary=f"{title_of(name)} at two steps. {words[0]} {words[1]}",
        rows=_rows(first, second),
    )


def median(one: Spread) -> float:
    """The middle value, taken as evenly spread within its bin."""
    return quantile(one, 0.5)


def quantile(one: Spread, share: float) -> float:
    wanted, seen = share * one.n, 0.0
    for i, n in enumerate(one.counts):
        if n and seen + n >= wanted:
            low, high = one.edges[i], one.edges[i + 1]
            return low + (high - low) * max(0.0, (wanted - seen) / n)
        seen += n
    return one.edges[-1]


def csv_rows(name: str, spreads: Sequence[Spread]) -> Iterator[Mapping[str, Any]]:
    for one in spreads:
        for i, n in enumerate(one.counts):
            low, high = one.edges[i], one.edges[i + 1]
            yield {"name": name, "step": one.step, "from": low, "to": high, "count": n}


def _columns(spreads: Sequence[Spread]) -> list[tuple[int, Spread]]:
    """At most MOST_COLUMNS, each with the step it begins at; of a stretch with the same bins the
    counts are added, otherwise its last stands for it."""
    stride = max(1, -(-len(spreads) // MOST_COLUMNS))
    columns = []
    for i in range(0, len(spreads), stride):
        stretch = spreads[i : i + stride]
        alike = [one for one in stretch if one.edges == stretch[-1].edges]
        counts = tuple(sum(column) for column in zip(*(one.counts for one in alike), strict=True))
        columns.append((stretch[0].step, Spread(stretch[0].step, stretch[-1].edges, counts)))
    return columns


def _summary(name: str, spreads: Sequence[Spread]) -> str:
    known = [one for one in spreads if one.n]
    ends = [known[0], known[-1]] if len(known) > 1 else known[:1]
    return f"{title_of(name)} by step. " + " ".join(_words(name, one) for one in ends)


def _words(name: str, one: Spread) -> str:
    if not one.n:
        return f"Step {one.step:,}: no values."
    low, middle, high = (figure(quantile(one, share)) for share in (0.1, 0.5, 0.9))
    unit = f" {unit_of(name)}" if unit_of(name) else ""
    return f"Step {one.step:,}: median {middle}{unit}, 10–90 % from {low} to {high}, n = {one.n:,}."


def _ends(one: Spread) -> tuple[float, float]:
    return one.edges[0], one.edges[-1]


def _shares(one: Spread) -> list[float]:
    return [n / (one.n or 1) for n in one.counts]


def _outline(one: Spread, x_axis: Axis, y_axis: Axis) -> str:
    points = [(x_axis.at(one.edges[0]), float(FLOOR))]
    for i, share in enumerate(_shares(one)):
        points += [(x_axis.at(one.edges[i]), y_axis.at(share))]
        points += [(x_axis.at(one.edges[i + 1]), y_axis.at(share))]
    points.append((x_axis.at(one.edges[-1]), float(FLOOR)))
    return " ".join(f"{x},{y}" for x, y in points)


def _rows(first: Spread, second: Spread) -> list[tuple[str, str, str]]:
    """Where the bins are the same: each with both shares in per cent."""
    if first.edges != second.edges:
        return []
    shares = zip(_shares(first), _shares(second), strict=True)
    return [
        (
            f"{figure(first.edges[i])} to {figure(first.edges[i + 1])}",
            f"{100 * a:.1f} %",
            f"{100 * b:.1f} %",
        )
        for i, (a, b) in enumerate(shares)
        if a or b
    ]
