"""Numbers that are to be shown: tables, intervals, bars, histograms, curves and texts.

A block says what is drawn and not how: a page draws it without knowing which measure it is from
(`apps/common/report`). Blocks survive JSON: `plain_json(asdict(block))` and `block_from_json` are
inverses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from measures.estimate import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text and numbers; `formats` has one of text, count, share, number per column."""

    title: str
    columns: tuple[str, ...]
    formats: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""
    kind: str = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Named values with bounds on one axis, and a line to compare with. Where there are any,
    `expected` has a value to compare with and `tones` an accent ("", accent, bad) per row."""

    title: str
    rows: tuple[tuple[str, Interval], ...]
    unit: str = "share"  # share (0–1, shown as per cent) or number
    reference: float | None = None
    reference_label: str = ""
    expected: tuple[float | None, ...] = ()
    expected_label: str = ""
    tones: tuple[str, ...] = ()
    note: str = ""
    kind: str = "intervals"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A horizontal bar per row, of one or several parts, as long as their sum: (label, amounts).
    `parts` names the parts; `said` is what stands behind a bar, its sum where there is none;
    `reference` is a line across all bars."""

    title: str
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    parts: tuple[str, ...] = ()
    unit: str = "count"  # count, share or number
    said: tuple[str, ...] = ()
    reference: float | None = None
    reference_label: str = ""
    note: str = ""
    kind: str = "bars"


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Shares of several groups over common bins: `edges` (bins + 1), {group: share per bin}."""

    title: str
    edges: tuple[float, ...]
    groups: tuple[tuple[str, tuple[float, ...]], ...]
    x_label: str = ""
    log_x: bool = False
    marks: tuple[tuple[float, str], ...] = ()  # lines across: (x, words)
    note: str = ""
    kind: str = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a curve; `low` and `high` are its interval, empty where there is none. None in
    `y` is a gap. `marked` are points at which something was found; `behind` is a thin line behind
    the others, without a legend or a table of its own."""

    label: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    points: bool = False  # measured points rather than a line
    marked: tuple[bool, ...] = ()
    behind: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """y over x: reliability diagrams, best-of-n, learning curves, measurements over time (x in
    seconds of the Unix epoch). `marks`: (x, words)."""

    title: str
    series: tuple[Series, ...]
    x_label: str
    y_label: str
    diagonal: bool = False  # y = x is what should be
    log_x: bool = False
    x_unit: str = "number"  # number or time
    x_range: tuple[float, ...] = ()  # (first, last), so that several curves share an axis
    y_range: tuple[float, ...] = ()  # (least, greatest) that is drawn; intervals may leave it
    x_names: tuple[tuple[float, str], ...] = ()  # what stands on the axis, where x only counts
    y_unit: str = "number"  # number or share
    reference: float | None = None  # a line across
    reference_label: str = ""
    marks: tuple[tuple[float, str], ...] = ()
    note: str = ""
    kind: str = "curve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A text to read: its prompt's last message, the answer, its score and a word about it."""

    prompt: str
    answer: str
    score: float | None
    label: str = ""
    other: str = ""  # a second answer to read beside it
    other_score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    title: str
    examples: tuple[Example, ...]
    note: str = ""
    kind: str = "texts"


Block = Table | Intervals | Bars | Histogram | Curve | Texts
_BLOCKS: dict[str, type] = {
    "table": Table,
    "intervals": Intervals,
    "bars": Bars,
    "histogram": Histogram,
    "curve": Curve,
    "texts": Texts,
}


def block_from_json(data: Mapping[str, Any]) -> Block:
    """Raises KeyError, TypeError or ValueError when `data` is no block."""
    cls = _BLOCKS[data["kind"]]
    values = {name: _tuples(value) for name, value in data.items()}
    if cls is Intervals:
        values["rows"] = tuple((str(label), Interval(**of)) for label, of in data["rows"])
    elif cls is Curve:
        values["series"] = tuple(
            Series(**{name: _tuples(value) for name, value in one.items()})
            for one in data["series"]
        )
    elif cls is Texts:
        values["examples"] = tuple(Example(**one) for one in data["examples"])
    return cls(**values)


def plain_json(value: Any) -> Any:
    """JSON types of nested tuples, mappings and numpy's scalars; NaN becomes None."""
    if isinstance(value, Mapping):
        return {str(name): plain_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if isinstance(value, StrEnum):
        return str(value)
    if hasattr(value, "item"):  # numpy's scalars
        value = value.item()
    return None if isinstance(value, float) and value != value else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value
