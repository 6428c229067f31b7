"""Numbers and spans of time as pages and reports write them."""

import math
import sys
from typing import Any, TypeGuard

from django.utils.formats import get_format
from django.utils.translation import get_language, gettext


def _written(text: str) -> str:
    """A number with English signs in those of the page's language."""
    if get_language() in ("en", None):
        return text
    signs = {",": get_format("THOUSAND_SEPARATOR"), ".": get_format("DECIMAL_SEPARATOR")}
    return text.translate(str.maketrans(signs))


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a number that a float can hold: no bool, not NaN and not infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max


def duration(seconds: float | None) -> str:
    """Seconds as people say them: 48 s, 12 min, 3 h 20 min, 2 d 4 h."""
    if seconds is None:
        return "—"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 10 and rest:
        return f"{minutes} min {rest} s"
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def count(value: int | None) -> str:
    """A whole number with thousands separated: 10,967."""
    return "—" if value is None else _written(f"{value:,}")


def percent(share: float | None) -> str:
    """A share as people say it: 60 %, 2.5 %."""
    return "—" if share is None else _written(f"{round(100 * share, 9):.6g} %")


def share(value: float | None, places: int = 1) -> str:
    """A measured share, for columns that align: 73.1 %, 60.0 %, −4.2 %."""
    return "—" if value is None else f"{fixed(100 * value, places)} %"


def share_up(value: float | None) -> str:
    """An upper bound of a share, rounded up so that what stands there is never less than the bound:
    4.87 % is "5 %", 0.34 % is "0.4 %"."""
    if value is None:
        return "—"
    per_cent = round(100 * value, 9)
    if per_cent >= 1:
        return f"{math.ceil(per_cent)} %"
    return _written(f"{math.ceil(10 * per_cent) / 10:.1f} %")


def points(gap: float) -> str:
    """A difference of two shares in percentage points, with its sign: +2.3, −0.4."""
    return _written(f"{100 * gap:+.1f}").replace("-", "−")


def figure(value: Any, digits: int = 3) -> str:
    """A measured number with `digits` significant ones: 0.713, 1,204, 3.1e-05, not a number."""
    if value is None or value == "":
        return "—"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if not math.isfinite(value):
        return gettext("not a number") if math.isnan(value) else "∞" if value > 0 else "−∞"
    text = _written(_digits(value, digits))
    return text.replace("-", "−", 1) if value < 0 else text


def fixed(value: float | None, places: int = 3) -> str:
    """A number with so many decimals, for columns and intervals that align: −0.062, 0.004."""
    if value is None:
        return "—"
    if not math.isfinite(value):
        return figure(value)
    text = _written(f"{value:,.{places}f}")
    return text.replace("-", "−", 1) if float(f"{value:.{places}f}") < 0 else text.lstrip("-")


def _digits(value: float, digits: int) -> str:
    if isinstance(value, int) or (abs(value) >= 10**digits and abs(value) < 1e9):
        return f"{value:,.0f}"
    if value != 0 and abs(value) < 10**-digits:
        return f"{value:.{max(digits - 2, 0)}e}"
    if 0 < abs(value) < 0.1:
        return f"{value:.{digits}g}"
    return f"{value:.{max(0, digits - _whole_digits(value))}f}"


def _whole_digits(value: float) -> int:
    """Digits before the decimal point that count; a leading zero does not."""
    whole = int(abs(value))
    return len(str(whole)) if whole else 0


def filesize(size: int | None) -> str:
    """Bytes in decimal units, as disks are sold: 812 B, 14.2 kB, 3.1 MB."""
    if size is None:
        return "—"
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return _written(f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}")
        amount /= 1000
    return ""
