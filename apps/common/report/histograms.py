"""Histograms, one group under the other over a common axis: nothing hangs on colours."""

from dataclasses import dataclass
from itertools import pairwise

from apps.common.report.axes import Axis, Tick, short, words
from measures.blocks import Histogram

WIDTH, LEFT, RIGHT = 480, 14, 466
ROW, BAR_HEIGHT, TOP = 66, 40, 20


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class GroupRow:
    name: str
    y: int
    floor: int
    bars: list[Bar]
    series: int  # 1 to 6, a colour of the tokens


@dataclass(frozen=True, slots=True)
class HistogramView:
    """summary: each group in words. rows: (bin, share of each group) for the table."""

    groups: list[GroupRow]
    width: int
    height: int
    axis_y: int
    left: int
    right: int
    ticks: list[Tick]
    x_label: str
    summary: str
    names: list[str]
    marks: list[tuple[float, str]]  # x and words of lines across
    rows: list[tuple[str, list[str]]]


def histogram_view(block: Histogram) -> HistogramView:
    """Raises ValueError when a group has not one share per bin."""
    edges = [float(edge) for edge in block.edges]
    axis = Axis(edges, LEFT, RIGHT, log=block.log_x)
    most = max((share for _, shares in block.groups for share in shares), default=0.0) or 1.0
    groups, said = [], []
    for place, (name, shares) in enumerate(block.groups):
        top = place * ROW
        floor = top + TOP + BAR_HEIGHT
        bars = []
        for (low, high), share in zip(pairwise(edges), shares, strict=True):
            x, end = axis.at(low) or 0.0, axis.at(high) or 0.0
            tall = round(BAR_HEIGHT * share / most, 1)
            title = f"{name}, {short(low)} to {short(high)}: {words(share, 'share')}"
            bars.append(
                Bar(x, round(floor - tall, 1), round(max(end - x - 0.5, 0.5), 1), tall, title)
            )
        groups.append(GroupRow(name, top + 13, floor, bars, place % 6 + 1))
        said.append(_in_words(name, edges, shares))
    axis_y = max(1, len(groups)) * ROW - 4
    bins = list(pairwise(edges))
    return HistogramView(
        groups=groups,
        width=WIDTH,
        height=axis_y + (38 if block.x_label else 22),
        axis_y=axis_y,
        left=LEFT,
        right=RIGHT,
        ticks=axis.ticks,
        x_label=block.x_label,
        summary=" ".join(said),
        names=[name for name, _ in block.groups],
        marks=[(axis.at(x) or 0.0, said) for x, said in block.marks],
        rows=[
            (
                f"{short(low)} to {short(high)}",
                [words(shares[k], "share") for _, shares in block.groups],
            )
            for k, (low, high) in enumerate(bins)
        ],
    )


def _in_words(name: str, edges: list[float], shares: tuple[float, ...]) -> str:
    total = sum(shares)
    if total <= 0:
        return f"{name}: nothing."
    quarter, middle, three = (_quantile(edges, shares, total * q) for q in (0.25, 0.5, 0.75))
    return f"{name}: middle {words(middle)}, half of it from {words(quarter)} to {words(three)}."


def _quantile(edges: list[float], shares: tuple[float, ...], until: float) -> float:
    """Where that much lies below, straight within a bin."""
    below = 0.0
    for (low, high), share in zip(pairwise(edges), shares, strict=True):
        if share > 0 and below + share >= until:
            return low + (high - low) * (until - below) / share
        below += share
    return edges[-1]
