"""Rows of figures with a step, gathered into curves; what is wrong with them is said row by row."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_METRICS, MOST_POINTS, MOST_ERRORS = 1000, 3_000_000, 20
LONGEST_NAME = 200
MOST_STEPS = 2**53
# Columns that say where a row belongs, the surest first. Their values are the step.
STEP_NAMES = (
    "step",
    "global_step",
    "train/global_step",
    "trainer/global_step",
    "training/global_step",
    "_step",
    "global_steps",
    "time/total_timesteps",
    "total_timesteps",
    "iteration",
    "steps",
)
# What trackers write beside the figures: clocks and counters of their own.
OF_TRACKERS = frozenset(
    {"_timestamp", "_runtime", "_wandb", "wall_time", "timestamp", "time", "Wall time"}
)
_WORDS = {
    "nan": "nan",
    "inf": "inf",
    "+inf": "inf",
    "-inf": "-inf",
    "infinity": "inf",
    "-infinity": "-inf",
}

Value = float | str  # "nan", "inf", "-inf" as words, so that they are seen rather than lost
Point = tuple[int, Value]


@dataclass(frozen=True, slots=True)
class RowError:
    """`row` counts from 1, as an editor shows it; 0 is the whole file."""

    row: int
    message: str

    def __str__(self) -> str:
        return f"Row {self.row:,}: {self.message}" if self.row else self.message


class ReadingError(Exception):
    """The file cannot be read; `errors` are the first of what is wrong with it."""

    def __init__(self, errors: Iterable[RowError], *, more: int = 0) -> None:
        self.errors, self.more = list(errors), more
        text = " ".join(str(one) for one in self.errors)
        super().__init__(text + (f" And {more:,} more." if more else ""))


def refused(message: str, row: int = 0) -> ReadingError:
    return ReadingError([RowError(row, message)])


@dataclass(frozen=True, slots=True)
class Read:
    """`series` under the names of the file, by step; `config` what the file says of the run;
    `notes` what a reader should know of it."""

    format: str
    series: dict[str, list[Point]]
    config: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def points(self) -> int:
        return sum(map(len, self.series.values()))


class Curves:
    """Takes points one by one. A step that comes twice keeps its last value, as after a restart."""

    def __init__(self) -> None:
        self._curves: dict[str, dict[int, Value]] = {}
        self._errors: list[RowError] = []
        self._more = self._points = 0
        self._texts: dict[str, tuple[int, str]] = {}

    def error(self, row: int, message: str) -> None:
        if len(self._errors) < MOST_ERRORS:
            self._errors.append(RowError(row, message))
        else:
            self._more += 1

    def add(self, row: int, step: int, name: str, value: Any) -> None:
        """A value that is no number is an error only where its column has numbers elsewhere: a
        column of texts is no curve."""
        number = number_of(value)
        if number is None:
            if value is not None and value != "":
                self._texts.setdefault(name, (row, repr(value)[:40]))
            return
        curve = self._curves.get(name)
        if curve is None:
            self._check_name(row, name)
            curve = self._curves[name] = {}
        curve[step] = number
        self._points += 1
        if self._points > MOST_POINTS:
            raise refused(
                f"The file has more than {MOST_POINTS:,} points; thin it before importing."
            )

    def done(self) -> tuple[dict[str, list[Point]], tuple[str, ...]]:
        """(curves, notes). Raises `ReadingError` with everything that was wrong."""
        for name, (row, shown) in sorted(self._texts.items(), key=lambda item: item[1]):
            if name in self._curves:
                self.error(row, f"{name!r} is {shown}, which is no number.")
        if self._errors:
            raise ReadingError(sorted(self._errors, key=lambda one: one.row), more=self._more)
        if not self._curves:
            raise refused("The file has no figure with a step.")
        left = sorted(set(self._texts) - set(self._curves))
        notes = (f"Left out, having no numbers: {', '.join(left[:20])}.",) if left else ()
        return {name: sorted(curve.items()) for name, curve in sorted(self._curves.items())}, notes

    def _check_name(self, row: int, name: str) -> None:
        if not name or len(name) > LONGEST_NAME:
            raise refused(
                f"A metric's name must have 1 to {LONGEST_NAME} characters; one has {len(name)}.",
                row,
            )
        if len(self._curves) >= MOST_METRICS:
            raise refused(f"The file has more than {MOST_METRICS:,} metrics.", row)


def number_of(value: Any) -> Value | None:
    """A finite number, one of the words nan, inf, -inf, or None for what is no number."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        text = value.strip()
        word = _WORDS.get(text.lower())
        if word is not None:
            return word
        try:
            value = float(text)
        except ValueError:
            return None
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return "inf" if value > 0 else "-inf"
    if math.isfinite(number):
        return number
    return "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"


def step_of(value: Any) -> int | None:
    """A whole number from 0 on; None for anything else."""
    number = number_of(value)
    if not isinstance(number, float) or number != int(number) or not 0 <= number < MOST_STEPS:
        return None
    return int(number)


def step_column(names: Iterable[str]) -> str | None:
    """The column that holds the step; upper and lower case alike."""
    known = {name.strip().lower(): name for name in names}
    return next((known[name] for name in STEP_NAMES if name in known), None)


def rows_read(rows: Iterable[tuple[int, Mapping[str, Any]]], curves: Curves) -> None:
    """Rows of {name: value} that each say their step under one of `STEP_NAMES`."""
    for row, figures in rows:
        column = step_column(figures)
        if column is None:
            curves.error(row, f"no step: none of {', '.join(STEP_NAMES[:4])} … is in it.")
            continue
        step = step_of(figures[column])
        if step is None:
            curves.error(row, f"the step {figures[column]!r} is no whole number from 0 on.")
            continue
        for name, value in figures.items():
            if name != column and name not in OF_TRACKERS:
                curves.add(row, step, name, value)
