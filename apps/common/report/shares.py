"""Stored figures as intervals, and named shares drawn with theirs."""

from collections.abc import Iterable, Mapping
from typing import Any

from apps.common.report.blocks import Part, part_of
from measures.blocks import Intervals
from measures.estimate import Interval


def interval_of(found: Mapping[str, Any], *, undefined: str = "") -> Interval:
    """A stored figure {value, low, high, …}; `undefined` is printed where there is no value."""
    return Interval(
        value=found["value"],
        low=found.get("low"),
        high=found.get("high"),
        n=found.get("n_items") or found.get("n") or 0,
        undefined=undefined or found.get("undefined") or None,
        no_interval=found.get("no_interval") or None,
    )


def shares(
    rows: Iterable[tuple[str, Interval, str]],
    *,
    line: float | None = None,
    line_label: str = "",
    note: str = "",
) -> Part:
    """(label, share, tone) as dots with whiskers; the dashed `line` is what they are compared with.
    Tones: accent, plain, bad."""
    rows = list(rows)
    return part_of(
        Intervals(
            title="",
            rows=tuple((label, of) for label, of, _ in rows),
            reference=line,
            reference_label=line_label,
            tones=tuple(tone for *_, tone in rows),
            note=note,
        )
    )
