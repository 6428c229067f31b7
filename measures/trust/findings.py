"""What a look at a reward model found: one finding a line, red or green, with its evidence.

Every finding answers one question of "may I optimise against this model?". It is green when the
evidence shows that the answer is yes, red when it shows no or is too thin to show yes where a yes
must be shown, and unmeasured when there was nothing to measure it with, which is never a yes.

Evidence is made of a few kinds of block that a page can draw without knowing the line, and that
survive JSON: `finding_to_json` and `finding_from_json` are inverses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from measures.estimate import Interval
from measures.intervals import wilson


class Verdict(StrEnum):
    GREEN = "green"
    RED = "red"
    UNMEASURED = "unmeasured"


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
    """Named values with bounds on one axis: {label: Interval}, and a line to compare with."""

    title: str
    rows: tuple[tuple[str, Interval], ...]
    unit: str = "share"  # share (0–1, shown as per cent) or number
    reference: float | None = None
    reference_label: str = ""
    note: str = ""
    kind: str = "intervals"


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Shares of several groups over common bins: `edges` (bins + 1), {group: share per bin}."""

    title: str
    edges: tuple[float, ...]
    groups: tuple[tuple[str, tuple[float, ...]], ...]
    x_label: str = ""
    note: str = ""
    kind: str = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a curve; `low` and `high` are its interval, empty where there is none. None in
    `y` is a gap."""

    label: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    points: bool = False  # measured points rather than a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """y over x: reliability diagrams, best-of-n, learning curves. `marks`: (x, words)."""

    title: str
    series: tuple[Series, ...]
    x_label: str
    y_label: str
    diagonal: bool = False  # y = x is what should be
    log_x: bool = False
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


Block = Table | Intervals | Histogram | Curve | Texts
_BLOCKS: dict[str, type] = {
    "table": Table,
    "intervals": Intervals,
    "histogram": Histogram,
    "curve": Curve,
    "texts": Texts,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line. `says` is a sentence with the numbers in it; `figure` the one that decided, where
    there is one; `unit` says how to print it: share or number."""

    line: str  # a key of `measures.trust.lines.LINES`
    verdict: Verdict
    says: str
    figure: Interval | None = None
    unit: str = "share"
    evidence: tuple[Block, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)  # plain numbers for API and tests


def unmeasured(line: str, why: str, *, evidence: Sequence[Block] = ()) -> Finding:
    """`why` says what was missing and what to do about it."""
    return Finding(line=line, verdict=Verdict.UNMEASURED, says=why, evidence=tuple(evidence))


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """Plain JSON types."""
    return _plain(asdict(finding))


def finding_from_json(data: Mapping[str, Any]) -> Finding:
    """Raises KeyError, TypeError or ValueError when `data` is no finding."""
    figure = data.get("figure")
    return Finding(
        line=str(data["line"]),
        verdict=Verdict(data["verdict"]),
        says=str(data["says"]),
        figure=None if figure is None else Interval(**figure),
        unit=str(data.get("unit", "share")),
        evidence=tuple(block_from_json(block) for block in data.get("evidence", ())),
        facts=dict(data.get("facts", {})),
    )


def block_from_json(data: Mapping[str, Any]) -> Block:
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


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, StrEnum):
        return str(value)
    if hasattr(value, "item"):  # numpy's scalars
        value = value.item()
    if isinstance(value, float) and value != value:  # JSON has no NaN
        return None
    return value


# Numbers as the sentences of this package print them.


def percent(share: float) -> str:
    """0.731 as "73.1 %", with a real minus sign."""
    return f"{100 * share:.1f} %".replace("-", "−")


def signed(number: float, digits: int = 2) -> str:
    return f"{number:+.{digits}f}".replace("-", "−")


def plain(number: float, digits: int = 2) -> str:
    return f"{number:.{digits}f}".replace("-", "−")


def share(found: Interval) -> str:
    """ "73.1 % (69.5–76.6 %)", or without bounds where there are none."""
    if found.value is None:
        return "undefined"
    if found.low is None or found.high is None:
        return percent(found.value)
    return f"{percent(found.value)} ({100 * found.low:.1f}–{percent(found.high)})".replace(
        "(-", "(−"
    )


def number(found: Interval, digits: int = 2) -> str:
    """ "0.71 (0.58 to 0.79)": bounds may be negative, so they are joined by a word."""
    if found.value is None:
        return "undefined"
    if found.low is None or found.high is None:
        return plain(found.value, digits)
    low, high = plain(found.low, digits), plain(found.high, digits)
    return f"{plain(found.value, digits)} ({low} to {high})"


def listed(names: list[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


# A share over rows that hang together, with an interval that survives 0 and 1.


def clustered_share(credit: ArrayLike, clusters: Sequence[object]) -> Interval:
    """Mean of (n,) credits in [0, 1] (ties ½) and Wilson's 95 % interval at the effective size.

    Rows of a cluster are alike, so n rows hold less than n trials: n* = p(1 − p)/V, V the variance
    of the mean over clusters (ratio estimator, with k/(k − 1)), kept between 1 and n. Where
    p is 0 or 1 there is no variance to estimate and every cluster counts as one trial.

    Source: Korn & Graubard, Survey Methodology 24 (1998), with Wilson's interval in place of
    Clopper and Pearson's (Franco et al., J. Survey Statistics and Methodology 7, 2019). The
    bootstrap gives no interval where all rows are alike, which is where probes should end.
    Assumes independent clusters; `n` counts rows and `n_clusters` clusters.
    """
    values = np.asarray(credit, dtype=float)
    if not len(values):
        return Interval(value=None, low=None, high=None, n=0, undefined="no rows")
    _, group = np.unique(np.asarray([str(name) for name in clusters]), return_inverse=True)
    if group.shape != values.shape:
        raise ValueError(f"one cluster per row: {len(group)} for {len(values)}")
    n, k = len(values), int(group.max()) + 1
    p = float(values.mean())
    effective = _effective_size(values, group, p, k) if 0 < p < 1 else k
    found = wilson(p * effective, effective)
    return Interval(value=p, low=found.low, high=found.high, n=n, n_clusters=k)


def _effective_size(values: np.ndarray, group: np.ndarray, p: float, k: int) -> float:
    n = len(values)
    if k < 2:
        return 1.0
    totals = np.bincount(group, weights=values - p)
    variance = float((totals**2).sum()) / n**2 * k / (k - 1)
    return float(min(n, max(1.0, p * (1 - p) / variance))) if variance > 0 else float(n)
