"""The three charts of an annotator's page as SVG geometry, and their numbers as rows."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from measures.annotators import SPEED_EDGES

# The histogram of speed.
BAR_WIDTH, BAR_GAP, SPEED_HEIGHT, SPEED_TOP = 22, 2, 120, 8
# Agreement over time.
TIME_LEFT, TIME_WIDTH, TIME_HEIGHT, TIME_TOP = 40, 260, 120, 8
# Dots and whiskers: label, scale, value.
ROW, WHISKER_LEFT, WHISKER_WIDTH, WHISKER_RIGHT = 40, 92, 196, 20


@dataclass(frozen=True, slots=True)
class Bin:
    x: float
    y: float
    height: float
    fast: bool
    title: str


@dataclass(frozen=True, slots=True)
class SpeedChart:
    bins: list[Bin]
    ticks: list[tuple[float, str]]
    limit_x: float | None
    width: int
    height: int
    base: int
    label_y: int
    summary: str


def speed_chart(figures: dict[str, Any]) -> SpeedChart | None:
    """Answers by active time, each bin √2 times the one before; None without times."""
    counts = figures["speeds"]
    if not sum(counts):
        return None
    first = next(place for place, n in enumerate(counts) if n)
    last = max(place for place, n in enumerate(counts) if n)
    limit = figures["fast_ms"] / 1000
    if limit:
        first = min(first, max(0, _place(limit) - 1))
        last = max(last, _place(limit) + 1)
    largest = max(counts)
    step = BAR_WIDTH + BAR_GAP
    base = SPEED_TOP + SPEED_HEIGHT
    bins = []
    for spot, place in enumerate(range(first, min(last + 1, len(counts)))):
        height = round(SPEED_HEIGHT * counts[place] / largest, 1)
        bins.append(
            Bin(
                x=spot * step + BAR_GAP,
                y=round(base - height, 1),
                height=height,
                fast=place < len(SPEED_EDGES) and SPEED_EDGES[place] <= limit,
                title=f"{_between(place)}: {counts[place]:,}",
            )
        )
    edges = [place for place in range(first, last + 1) if place < len(SPEED_EDGES)]
    ticks = [
        (round((place - first + 1) * step + BAR_GAP / 2, 1), f"{SPEED_EDGES[place]:g} s")
        for place in edges
        if place % 4 == 0
    ]
    return SpeedChart(
        bins=bins,
        ticks=ticks,
        limit_x=round(_spot(limit, first) * step + BAR_GAP / 2, 1) if limit else None,
        width=max(len(bins) * step + 24, 260),
        height=base + 22,
        base=base,
        label_y=base + 18,
        summary=_speed_summary(figures),
    )


def _place(limit: float) -> int:
    """The bin that holds `limit` seconds: bin k ends at SPEED_EDGES[k]."""
    return sum(edge <= limit for edge in SPEED_EDGES)


def _spot(limit: float, first: int) -> float:
    """Where `limit` lies, in bins from the left; the scale is logarithmic within them."""
    place = _place(limit)
    if not place:
        return 0.0
    return place - first + 2 * math.log2(limit / SPEED_EDGES[place - 1])


def _between(place: int) -> str:
    if place == 0:
        return f"under {SPEED_EDGES[0]:g} s"
    if place == len(SPEED_EDGES):
        return f"{SPEED_EDGES[-1]:g} s and more"
    return f"{SPEED_EDGES[place - 1]:.3g} to {SPEED_EDGES[place]:.3g} s"


def _speed_summary(figures: dict[str, Any]) -> str:
    said = (
        f"{figures['n_timed']:,} timed answers, half of them within "
        f"{figures['median_ms'] / 1000:.1f} s"
    )
    if not figures["fast_ms"]:
        return f"{said}."
    share = 100 * figures["fast"]["value"]
    return (
        f"{said}; {share:.1f} % in under {figures['fast_ms'] / 1000:g} s, which is where the "
        "dashed line stands."
    )


@dataclass(frozen=True, slots=True)
class TimeChart:
    line: str
    band: str
    dots: list[tuple[float, float, str]]
    grid: list[tuple[float, float, str]]
    others_y: float | None
    others: str
    width: int
    height: int
    left: int
    right: int
    base: int
    label_y: int
    summary: str


def time_chart(figures: dict[str, Any]) -> TimeChart | None:
    """Agreement with others in parts of equal size, first to last; None with fewer than two."""
    parts = figures["timeline"]
    if len(parts) < 2:
        return None
    base = TIME_TOP + TIME_HEIGHT

    def x(place: int) -> float:
        return round(TIME_LEFT + TIME_WIDTH * (place + 0.5) / len(parts), 1)

    def y(share: float) -> float:
        return round(base - TIME_HEIGHT * min(max(share, 0.0), 1.0), 1)

    lows = [part["value"] if part["low"] is None else part["low"] for part in parts]
    highs = [part["value"] if part["high"] is None else part["high"] for part in parts]
    band = [f"{x(k)},{y(v)}" for k, v in enumerate(highs)]
    band += [f"{x(k)},{y(lows[k])}" for k in range(len(parts) - 1, -1, -1)]
    others = figures["agreement"]["compared"]
    first, last = parts[0]["value"], parts[-1]["value"]
    return TimeChart(
        line=" ".join(f"{x(k)},{y(part['value'])}" for k, part in enumerate(parts)),
        band=" ".join(band),
        dots=[
            (x(k), y(part["value"]), f"part {k + 1}: {100 * part['value']:.1f} %, n = {part['n']}")
            for k, part in enumerate(parts)
        ],
        grid=[
            (y(share), y(share) + 4, f"{100 * share:.0f} %") for share in (0, 0.25, 0.5, 0.75, 1)
        ],
        others_y=None if others is None else y(others),
        others="" if others is None else f"the others, {100 * others:.0f} %",
        width=TIME_LEFT + TIME_WIDTH + 8,
        height=base + 22,
        left=TIME_LEFT,
        right=TIME_LEFT + TIME_WIDTH,
        base=base,
        label_y=base + 18,
        summary=(
            f"Share of the other votes that chose the same, from {100 * first:.1f} % in the first "
            f"of {len(parts)} equal parts of their votes to {100 * last:.1f} % in the last, with "
            "95 % intervals."
        ),
    )


@dataclass(frozen=True, slots=True)
class Whisker:
    y: int
    text_y: int
    label: str
    value: str
    x: float
    low: float | None
    high: float | None
    mark_x: float | None  # of what is expected: a bar two pixels wide
    mark_y: int
    label_x: int


@dataclass(frozen=True, slots=True)
class WhiskerChart:
    rows: list[Whisker]
    ticks: list[tuple[float, str]]
    width: int
    height: int
    base: int
    label_y: int
    summary: str


def habit_chart(figures: dict[str, Any]) -> WhiskerChart | None:
    """Left rate, neither and longer beside what is expected: one half, and the others' figures."""
    wanted = [
        ("Left side", figures["left"], 0.5),
        ("Neither", figures["ties"], figures["ties"]["compared"]),
        ("Longer answer", figures["longer"], figures["longer"]["expected"]),
    ]
    shown = [
        (label, figure, other) for label, figure, other in wanted if figure["value"] is not None
    ]
    if not shown:
        return None
    rows, said = [], []
    for place, (label, figure, other) in enumerate(shown):
        middle = place * ROW + 18
        value = f"{100 * figure['value']:.1f} %"
        rows.append(
            Whisker(
                y=middle,
                text_y=middle + 4,
                label=label,
                value=value,
                x=_at(figure["value"]),
                low=None if figure["low"] is None else _at(figure["low"]),
                high=None if figure["high"] is None else _at(figure["high"]),
                mark_x=None if other is None else _at(other) - 1,
                mark_y=middle - 10,
                label_x=WHISKER_LEFT - 10,
            )
        )
        beside = "" if other is None else f" ({100 * other:.1f} % expected)"
        said.append(f"{label}: {value}{beside}")
    base = len(rows) * ROW
    return WhiskerChart(
        rows=rows,
        ticks=[(_at(share), f"{100 * share:.0f} %") for share in (0, 0.25, 0.5, 0.75, 1)],
        width=WHISKER_LEFT + WHISKER_WIDTH + WHISKER_RIGHT,
        height=base + 20,
        base=base,
        label_y=base + 16,
        summary="; ".join(said) + ".",
    )


def _at(share: float) -> float:
    return round(WHISKER_LEFT + WHISKER_WIDTH * min(max(share, 0.0), 1.0), 1)


def chart_rows(figures: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The charts' numbers, for the CSV of one person."""
    for place, part in enumerate(figures["timeline"], start=1):
        yield {"figure": f"agreement, part {place}"} | {
            name: part[name] for name in ("value", "low", "high", "n")
        }
    for place, n in enumerate(figures["speeds"]):
        if n:
            yield {"figure": f"answers, {_between(place)}", "n": n}
