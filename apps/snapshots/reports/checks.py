"""A check: what was found, how bad it is, the evidence and what to do. Plain JSON types."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from measures.estimate import Interval
from workers.contract.reasons import reason_words

Check = dict[str, Any]
Evidence = dict[str, Any]

MOST_EXAMPLES = 10

# From good to bad; "unknown" cannot be told from these data.
OK, WARN, STOP, UNKNOWN = "ok", "look", "stop", "unknown"
LEVELS = (STOP, WARN, UNKNOWN, OK)
_BAD = {OK: 0, UNKNOWN: 1, WARN: 2, STOP: 3}


def check(
    key: str,
    title: str,
    level: str,
    verdict: str,
    *,
    advice: str = "",
    basis: str = "",
    evidence: Iterable[Evidence | None] = (),
) -> Check:
    """verdict: one sentence with the figure; basis: how it was found and how far to trust it."""
    return {
        "key": key,
        "title": title,
        "level": level,
        "verdict": verdict,
        "advice": advice if level != OK else "",
        "basis": basis,
        "evidence": [part for part in evidence if part],
    }


def worst(levels: Iterable[str]) -> str:
    return max(levels, key=lambda level: _BAD[level], default=OK)


# --- kinds of evidence ---------------------------------------------------------------------------


def shares(
    caption: str, rows: Iterable[tuple[str, Interval]], *, middle: float | None = 0.5
) -> Evidence | None:
    """Shares with intervals, drawn as dots with whiskers around a line at `middle`."""
    drawn = [interval_json(label, found) for label, found in rows]
    if not drawn:
        return None
    return {"kind": "shares", "caption": caption, "rows": drawn, "middle": middle}


def bars(
    caption: str, rows: Sequence[tuple[str, float]], *, unit: str, marked: Iterable[int] = ()
) -> Evidence:
    """Counts; `marked` are drawn in the accent colour."""
    special = set(marked)
    return {
        "kind": "bars",
        "caption": caption,
        "unit": unit,
        "rows": [
            {"label": label, "n": int(n), "marked": place in special}
            for place, (label, n) in enumerate(rows)
        ],
    }


def curve(caption: str, unit: str, points: Iterable[tuple[float, Interval]]) -> Evidence:
    rows = [interval_json(f"{x:,.0f}", found) | {"x": _number(x)} for x, found in points]
    return {"kind": "curve", "caption": caption, "unit": unit, "rows": rows}


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Evidence | None:
    """Cells are texts, whole numbers or fractions shown as percent; columns say which."""
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        return None
    return {"kind": "table", "caption": caption, "columns": list(columns), "rows": cells}


def examples(
    caption: str,
    rows: Iterable[dict[str, Any]],
    *,
    sides: tuple[str, str] = ("Chosen", "Rejected"),
) -> Evidence | None:
    """Two texts to look at: {"left": …, "right": …, "note": …}, and "comparison": its id."""
    found = list(islice(rows, MOST_EXAMPLES))
    if not found:
        return None
    return {"kind": "examples", "caption": caption, "sides": list(sides), "rows": found}


def interval_json(label: str, found: Interval) -> dict[str, Any]:
    return {
        "label": label,
        "value": _number(found.value),
        "low": _number(found.low),
        "high": _number(found.high),
        "n": found.n,
        "why": reason_words(found.undefined or found.no_interval),
    }


def _number(value: Any) -> Any:
    """As JSON knows it, and short: six digits after the point are more than any of it is worth."""
    if value is None:
        return None
    number = float(value)
    return int(number) if number.is_integer() and abs(number) > 1 else round(number, 6)


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else _number(value)


# --- words ---------------------------------------------------------------------------------------


def with_interval(found: Interval) -> str:
    """ "61.3 % (58.1–64.2 %, n = 1,204)" """
    if found.value is None:
        return f"undefined: {reason_words(found.undefined)}"
    bounds = "no interval"
    if found.low is not None and found.high is not None:
        bounds = f"{100 * found.low:.1f}–{100 * found.high:.1f} %"
    return f"{100 * found.value:.1f} % ({bounds}, n = {found.n:,})"


def points(found: Interval) -> str:
    """ "+1.2 points (−0.3 to 2.7)" """
    if found.value is None:
        return f"undefined: {reason_words(found.undefined)}"
    said = f"{signed(100 * found.value)} points"
    if found.low is None or found.high is None:
        return said
    return f"{said} ({signed(100 * found.low)} to {signed(100 * found.high)})"


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def excerpt(text: str, length: int = 160) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1].rstrip() + "…"
