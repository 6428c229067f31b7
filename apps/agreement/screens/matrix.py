"""Geometry and words of the matrix of people, and of two people's disagreements."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.common.numbers import share as percent
from measures.agreement import LEAST_COMMON
from measures.estimate import Interval
from measures.intervals import wilson

CELL_W, CELL_H = 26, 20
LEFT, TOP, RIGHT = 150, 46, 110  # names of rows; the names on the diagonal lean to the right
LEAST_WIDTH = 800  # few people are not drawn larger than many
LONGEST_NAME = 22
LEVELS = (0.5, 0.6, 0.7, 0.8)
LEVEL_WORDS = ("under 50 %", "50–60 %", "60–70 %", "70–80 %", "80 % and more")


@dataclass(frozen=True, slots=True)
class MatrixCell:
    x: int
    y: int
    text_x: float
    text_y: int
    look: str  # a class: level-0 to level-4, or few
    number: str
    title: str
    first: int
    second: int


@dataclass(frozen=True, slots=True)
class Name:
    x: float
    y: float
    label: str
    title: str


@dataclass(frozen=True, slots=True)
class Matrix:
    cells: list[MatrixCell]
    rows: list[Name]
    columns: list[Name]
    width: int
    height: int
    cell_width: int
    cell_height: int
    summary: str


def matrix(figures: Mapping[str, Any], names: Mapping[int, str]) -> Matrix:
    """Cells below the diagonal; a pair of people with nothing in common has none."""
    people = [person for person in figures["people"] if person in names]
    place = {person: index for index, person in enumerate(people)}
    order = figures["people"]
    cells = []
    for row, column, n, agreeing in figures["cells"]:
        first, second = order[row], order[column]
        if first in place and second in place:
            cells.append(_cell(place[first], place[second], n, agreeing, first, second, names))
    count = len(people)
    return Matrix(
        cells=cells,
        rows=[
            Name(LEFT - 8, TOP + (i + 0.7) * CELL_H, _short(names[p]), names[p])
            for i, p in enumerate(people)
            if i
        ],
        columns=[
            Name(
                LEFT + (i + 0.5) * CELL_W,
                TOP + (i + 1) * CELL_H - 5,
                _short(names[p]),
                names[p],
            )
            for i, p in enumerate(people[:-1])
        ],
        width=max(LEFT + (count - 1) * CELL_W + RIGHT, LEAST_WIDTH),
        height=TOP + count * CELL_H + 8,
        cell_width=CELL_W - 2,
        cell_height=CELL_H - 2,
        summary=_summary(cells, count),
    )


def _cell(
    row: int, column: int, n: int, agreeing: int, first: int, second: int, names: Mapping[int, str]
) -> MatrixCell:
    share = agreeing / n
    bounds = spread(wilson(agreeing, n))
    few = n < LEAST_COMMON
    look = "few" if few else f"level-{sum(share >= mark for mark in LEVELS)}"
    title = f"{names[first]} and {names[second]}: {percent(share)} ({bounds}), n = {n:,}"
    x, y = LEFT + column * CELL_W + 1, TOP + row * CELL_H + 1
    return MatrixCell(
        x=x,
        y=y,
        text_x=x + CELL_W / 2 - 1,
        text_y=y + 13,
        look=look,
        number="" if few else f"{100 * share:.0f}",
        title=title + (", too few to say" if few else ""),
        first=first,
        second=second,
    )


def spread(share: Interval) -> str:
    """Bounds of a share in whole percent."""
    if share.low is None or share.high is None:
        return ""
    return f"{100 * share.low:.0f}–{100 * share.high:.0f} %"


def _summary(cells: list[MatrixCell], count: int) -> str:
    known = sum(cell.look != "few" for cell in cells)
    words = (
        f"{count} people. {known} pairs of them have {LEAST_COMMON} or more comparisons in common, "
        f"{len(cells) - known} have fewer"
    )
    return f"{words}, {count * (count - 1) // 2 - len(cells)} none."


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1].rstrip() + "…"


CSV_COLUMNS = (
    "first",
    "second",
    "comparisons",
    "agreeing",
    "percent",
    "percent_low",
    "percent_high",
)


def csv_rows(figures: Mapping[str, Any], names: Mapping[int, str]) -> list[dict[str, Any]]:
    rows = []
    for row, column, n, agreeing in figures["cells"]:
        first, second = figures["people"][column], figures["people"][row]
        if first not in names or second not in names:
            continue
        share = wilson(agreeing, n)
        shown = (names[first], names[second], n, agreeing, share.value, share.low, share.high)
        rows.append(dict(zip(CSV_COLUMNS, shown, strict=True)))
    return rows
