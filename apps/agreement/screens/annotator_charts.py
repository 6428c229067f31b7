"""The three charts of an annotator's page, and their numbers as rows."""

import math
from collections.abc import Iterator
from typing import Any

from apps.common.numbers import share as percent
from apps.common.report.blocks import Part, part_of
from apps.common.report.shares import interval_of
from measures.annotators import SPEED_EDGES
from measures.blocks import Curve, Histogram, Intervals, Series


def speed_chart(figures: dict[str, Any]) -> Part | None:
    """Answers by active time, bins a factor √2 apart; None without times."""
    counts, total = figures["speeds"], sum(figures["speeds"])
    if not total:
        return None
    edges = [SPEED_EDGES[0] / math.sqrt(2), *SPEED_EDGES, SPEED_EDGES[-1] * math.sqrt(2)]
    first = next(place for place, n in enumerate(counts) if n)
    last = max(place for place, n in enumerate(counts) if n)
    limit = figures["fast_ms"] / 1000
    said = (
        f"{figures['n_timed']:,} timed answers, half of them within "
        f"{figures['median_ms'] / 1000:.1f} s"
    )
    if limit:
        place = sum(edge <= limit for edge in SPEED_EDGES)
        first, last = min(first, max(0, place - 1)), min(max(last, place + 1), len(counts) - 1)
        share = percent(figures["fast"]["value"])
        said += f"; {share} in under {limit:g} s, which is where the dashed line stands"
    return part_of(
        Histogram(
            title="",
            edges=tuple(edges[first : last + 2]),
            groups=(("Answers", tuple(n / total for n in counts[first : last + 1])),),
            x_label="seconds",
            log_x=True,
            marks=((limit, f"{limit:g} s"),) if limit else (),
            note=f"{said}.",
        )
    )


def time_chart(figures: dict[str, Any]) -> Part | None:
    """Agreement with others in parts of equal size, first to last; None with fewer than two."""
    parts = figures["timeline"]
    if len(parts) < 2:
        return None
    places = tuple(float(k) for k in range(1, len(parts) + 1))
    series = Series(
        label="Agreement",
        x=places,
        y=tuple(part["value"] for part in parts),
        low=tuple(part["low"] for part in parts),
        high=tuple(part["high"] for part in parts),
    )
    return part_of(
        Curve(
            title="",
            series=(series,),
            x_label="",
            y_label="",
            x_names=tuple((k, f"part {k:g}") for k in places),
            y_unit="share",
            reference=figures["agreement"]["compared"],
            reference_label="the others among themselves",
            note="Share of the other votes that chose the same, in equal parts of their votes, "
            "first to last, with 95 % intervals.",
        )
    )


def habit_chart(figures: dict[str, Any]) -> Part | None:
    """Left rate, neither and longer beside what is expected: one half, and the others' figures."""
    rows = [
        ("Left side", figures["left"], 0.5),
        ("Neither", figures["ties"], figures["ties"]["compared"]),
        ("Longer answer", figures["longer"], figures["longer"]["expected"]),
    ]
    shown = [row for row in rows if row[1]["value"] is not None]
    if not shown:
        return None
    return part_of(
        Intervals(
            title="",
            rows=tuple((label, interval_of(found)) for label, found, _ in shown),
            expected=tuple(expected for *_, expected in shown),
            expected_label="what is expected, half on the left; ties as others on the same pairs; "
            "the longer answer as those others and the person’s agreement with them suggest",
        )
    )


def chart_rows(figures: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The charts' numbers, for the CSV of one person."""
    for place, part in enumerate(figures["timeline"], start=1):
        yield {"figure": f"agreement, part {place}"} | {
            name: part[name] for name in ("value", "low", "high", "n")
        }
    for place, n in enumerate(figures["speeds"]):
        if n:
            yield {"figure": f"answers, {_between(place)}", "n": n}


def _between(place: int) -> str:
    if place == 0:
        return f"under {SPEED_EDGES[0]:g} s"
    if place == len(SPEED_EDGES):
        return f"{SPEED_EDGES[-1]:g} s and more"
    return f"{SPEED_EDGES[place - 1]:.3g} to {SPEED_EDGES[place]:.3g} s"
