"""What the world says of models in service, as the page draws it beside their reward."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.common.numbers import figure
from apps.monitoring.screens.time_charts import TimeChart, TimePoint, time_chart
from apps.monitoring.selectors.outcomes import Series
from measures.outcomes import Change, change

_Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class OutcomeView:
    name: str
    chart: TimeChart
    words: str
    tone: str


@dataclass(frozen=True, slots=True)
class OutcomeGroup:
    """The measurements of one model, and the reward of its probes among them."""

    title: str
    watch: str
    views: list[OutcomeView]


def outcome_group(
    *, title: str, watch: str, series: Sequence[Series], reward: Series | None
) -> OutcomeGroup:
    """All charts in the same time, so that what moved together stands above each other."""
    every = [*([reward] if reward is not None else []), *series]
    times = [at for one in every for at, _ in one.points]
    start, end = (min(times), max(times)) if times else (None, None)
    views = [
        _view(one, number=2 if one is reward else 1, start=start, end=end)
        for one in every
        if one.points
    ]
    return OutcomeGroup(title=title, watch=watch, views=views)


def _view(one: Series, *, number: int, start: datetime | None, end: datetime | None) -> OutcomeView:
    points = []
    for at, found in one.points:
        half = None if found.variance is None else _Z95 * math.sqrt(found.variance)
        low, high = (None, None) if half is None else (found.value - half, found.value + half)
        points.append(TimePoint(at, found.value, low, high))
    unit = f", {one.unit}" if one.unit else ""
    title = f"{one.name}{unit}" if number == 1 else "Reward score of the probes"
    chart = time_chart(title, points, number=number, start=start, end=end)
    assert chart is not None  # noqa: S101 - there are points
    words, tone = change_words(
        change(one.measured, higher_is_better=one.higher_is_better), one.unit
    )
    return OutcomeView(one.name, chart, words, tone)


def change_words(found: Change, unit: str = "") -> tuple[str, str]:
    """What became of it since the beginning, with its interval; (words, tone)."""
    if found.undefined:
        return f"{found.undefined[0].upper()}{found.undefined[1:]}.", ""
    space = f" {unit}" if unit else ""
    said = (
        f"{_plain(found.before)} → {_plain(found.after)}{space}, change {_signed(found.value)} "
        f"({_plain(found.low)} … {_plain(found.high)})"
    )
    if found.direction == 0:
        return f"Within noise: {said}.", ""
    return (f"Better: {said}.", "good") if found.direction > 0 else (f"Worse: {said}.", "bad")


def _plain(value: float | None) -> str:
    return "—" if value is None else str(figure(value))


def _signed(value: float | None) -> str:
    text = _plain(value)
    return f"+{text}" if value is not None and value > 0 else text
