"""Numbers as the pages of this app print them; axes are those of every page."""

import math
from typing import Any

from apps.common.templatetags.frame import figure, fixed
from measures.estimate import Interval

SHARE, COUNT, TEXT, NUMBER = "share", "count", "text", "number"
NO_VALUE = "—"


def words(value: Any, unit: str = NUMBER) -> str:
    """73.1 %, 1,204, 0.713, or the text itself."""
    if value is None or value == "":
        return NO_VALUE
    if unit == TEXT or isinstance(value, bool | str) or not isinstance(value, int | float):
        return str(value)
    if not math.isfinite(value):
        return str(figure(value))
    if unit == SHARE:
        return f"{100 * value:.1f} %".replace("-", "−")
    if unit == COUNT:
        return f"{value:,.0f}"
    return str(figure(float(value)))


def places_for(low: float, high: float) -> int:
    """Decimals with which a range of this size is told: three digits of it."""
    spread = abs(high - low)
    if not math.isfinite(spread) or spread <= 0:
        return 3
    return min(6, max(0, 2 - math.floor(math.log10(spread))))


def estimate(of: Interval, unit: str = SHARE, *, places: int | None = None) -> tuple[str, str]:
    """(value, bounds) of an interval, both to the same decimals."""
    if of.value is None:
        return "", ""
    if unit == SHARE or of.low is None or of.high is None:
        value = fixed(of.value, places) if unit != SHARE and places is not None else None
        return value or words(of.value, unit), bounds(of, unit)
    to = places_for(of.low, of.high) if places is None else places
    return fixed(of.value, to), f"{fixed(of.low, to)} … {fixed(of.high, to)}"


def bounds(of: Interval, unit: str = SHARE) -> str:
    """69.5–76.6 %, 0.61 … 0.70, or why there is no interval; empty where there is no value."""
    if of.value is None:
        return ""
    if of.low is None or of.high is None:
        return of.no_interval or "no interval"
    if unit == SHARE and of.low >= 0:
        return f"{100 * of.low:.1f}–{100 * of.high:.1f} %"
    return f"{words(of.low, unit)} … {words(of.high, unit)}"


def headline(of: Interval | None, unit: str = SHARE) -> str:
    """73.1 % ± 3.6, n = 612: one figure of a list."""
    if of is None or of.value is None:
        return ""
    said = words(of.value, unit)
    if of.low is not None and of.high is not None:
        half = (of.high - of.low) / 2
        said += f" ± {100 * half:.1f}" if unit == SHARE else f" ± {words(half, unit)}"
    return f"{said}, n = {of.n:,}"
