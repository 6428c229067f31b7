"""The curves as SVG files for the documentation, and their numbers as CSV."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean

from apps.common.report.axes import Axis
from benchmarks.overoptimization_world.courses import Point, Result
from benchmarks.overoptimization_world.reading import read_course

PANEL, HEIGHT, LEFT, TOP, BOTTOM = 400, 330, 56, 58, 50
# A file that is shown as an image takes no colour from the page around it: mid tones that stand
# out on white and on black, after Okabe and Ito.
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #767c88 }
.title { font-weight: 600; font-size: 14px }
.axis { stroke: #8a8f99; stroke-width: 1 } .grid { stroke: #8a8f99; stroke-opacity: .25 }
.gold { stroke: #d98200; fill: #d98200 } .proxy { stroke: #0f86c9; fill: #0f86c9 }
.judge { stroke: #159a77; fill: #159a77 } .stop { stroke: #8a8f99; fill: #8a8f99 }
polyline { fill: none !important; stroke-width: 2.5 } .one { stroke-width: 1; stroke-opacity: .4 }
.alone { stroke-width: 1.6; stroke-opacity: .85 }
.judge.mean { stroke-dasharray: 7 4 } .gold.mean { stroke-width: 3.5 }
.best { stroke: none } line.stop { stroke-width: 1; stroke-dasharray: 2 3 }
"""
SERIES = ("proxy", "judge", "gold")
NAMES = {"proxy": "proxy (optimised)", "judge": "judge (held out)", "gold": "gold (hidden)"}


@dataclass(frozen=True, slots=True)
class Line:
    series: str
    points: list[tuple[float, float]]
    mean: bool = False


def standardised(result: Result, point: Point, series: str) -> float:
    """A score's distance from the start, in units of the gain of that score between the start and
    the checkpoint where gold was best: all three are 0 at the start and 1 there."""
    points = result.courses["unguarded"].points
    best = max(points, key=lambda p: p.gold)
    zero, one = getattr(points[0], series), getattr(best, series)
    return (getattr(point, series) - zero) / (one - zero)


def figure(results: Sequence[Result]) -> str:
    """Two panels: scores by step, and by the root of the KL divergence as in Gao et al."""
    steps = [p.step for p in results[0].courses["unguarded"].points]
    by_step = _lines(results, lambda p: float(p.step))
    by_step += [
        Line(
            series,
            [
                (
                    float(step),
                    fmean(
                        standardised(r, r.courses["unguarded"].points[i], series) for r in results
                    ),
                )
                for i, step in enumerate(steps)
            ],
            mean=True,
        )
        for series in SERIES
    ]
    by_kl = _lines(results, lambda p: math.sqrt(max(0.0, p.kl)))
    width = 2 * PANEL + 40
    body = [
        _panel(0, "Score by step", "PPO step", by_step, results),
        _panel(PANEL + 20, "Score by distance from the start", "√KL, √nats", by_kl, []),
        _legend(),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" role="img" '
        f'aria-labelledby="t d"><title id="t">Overoptimisation of a proxy reward</title>'
        f'<desc id="d">{escape(description(results))}</desc>'
        f"<style>{STYLE}</style>{''.join(body)}</svg>\n"
    )


def description(results: Sequence[Result]) -> str:
    """The figure in words, for who cannot see it."""
    read = [read_course(result) for result in results]
    return (
        f"{len(read)} unguarded runs. Gold is best at steps "
        f"{', '.join(str(r.best.step) for r in read)} and loses "
        f"{', '.join(f'{100 * r.fall:.0f} %' for r in read)} of its gain by the end, while the "
        f"proxy rises on. Guarded runs stopped at steps "
        f"{', '.join(str(r.stop.step) for r in read)}."
    )


def _lines(results: Sequence[Result], across: Callable[[Point], float]) -> list[Line]:
    return [
        Line(
            series,
            [
                (across(point), standardised(result, point, series))
                for point in result.courses["unguarded"].points
            ],
        )
        for result in results
        for series in SERIES
    ]


def _panel(
    offset: float, title: str, label: str, lines: Sequence[Line], stops: Sequence[Result]
) -> str:
    points = [point for line in lines for point in line.points]
    x = Axis([a for a, _ in points], offset + LEFT, offset + PANEL)
    y = Axis([b for _, b in points], HEIGHT - BOTTOM, TOP)
    parts = [f'<text class="title" x="{offset + LEFT}" y="{TOP - 14}">{title}</text>']
    for tick in y.ticks:
        parts.append(
            f'<line class="grid" x1="{x.start}" x2="{x.end}" y1="{tick.at}" y2="{tick.at}"/>'
            f'<text x="{x.start - 8}" y="{tick.at + 4}" text-anchor="end">{tick.label}</text>'
        )
    for tick in x.ticks:
        parts.append(
            f'<text x="{tick.at}" y="{y.start + 18}" text-anchor="middle">{tick.label}</text>'
        )
    parts.append(
        f'<line class="axis" x1="{x.start}" x2="{x.end}" y1="{y.start}" y2="{y.start}"/>'
        f'<text x="{(x.start + x.end) / 2}" y="{y.start + 38}" text-anchor="middle">{label}</text>'
    )
    averaged = any(line.mean for line in lines)
    for line in lines:
        places = " ".join(f"{x.at(a)},{y.at(b)}" for a, b in line.points)
        weight = "mean" if line.mean else "one" if averaged else "alone"
        parts.append(f'<polyline class="{line.series} {weight}" points="{places}"/>')
    for result in stops:
        read = read_course(result)
        place, chosen = x.at(read.stop.step), x.at(read.chosen.step)
        gold = next(
            standardised(result, p, "gold")
            for p in result.courses["guarded"].points
            if p.step == read.chosen.step
        )
        parts.append(
            f'<line class="stop" x1="{place}" x2="{place}" y1="{y.start}" y2="{y.end}"/>'
            f'<circle class="gold best" cx="{chosen}" cy="{y.at(gold)}" r="5"/>'
        )
    return "".join(parts)


def _legend() -> str:
    parts, place = [], float(LEFT)
    for series in SERIES:
        parts.append(
            f'<polyline class="{series} mean" points="{place},18 {place + 26},18"/>'
            f'<text x="{place + 32}" y="22">{NAMES[series]}</text>'
        )
        place += 168
    parts.append(
        f'<line class="stop" x1="{place + 4}" x2="{place + 4}" y1="8" y2="28"/>'
        f'<text x="{place + 12}" y="22">guarded stop</text>'
        f'<circle class="gold best" cx="{place + 122}" cy="18" r="5"/>'
        f'<text x="{place + 132}" y="22">checkpoint it chose</text>'
    )
    return "".join(parts)


def table(results: Sequence[Result]) -> str:
    """Every checkpoint of every run, as CSV."""
    out = io.StringIO()
    fields = ["step", "kl", "proxy", "judge", "gold", "facts", "repeats", "length", "flattery"]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["seed", "run", *fields, "chosen"])
    for result in results:
        for arm, course in result.courses.items():
            for point in course.points:
                row = [getattr(point, name) for name in fields]
                writer.writerow([result.seed, arm, *row, int(point.step == course.best)])
    return out.getvalue()
