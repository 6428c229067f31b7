"""Small pieces of pages: icons, times, numbers with their spread."""

import math
from datetime import datetime
from functools import lru_cache
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

_MESSAGE_ICONS = {
    "success": "circle-check",
    "warning": "triangle-alert",
    "error": "circle-alert",
}
# (seconds below which the unit is used, seconds of one unit, its letters)
_AGES = (
    (60, 1, "s"),
    (3600, 60, "min"),
    (86_400, 3600, "h"),
    (30 * 86_400, 86_400, "d"),
)


@register.simple_tag
@lru_cache(maxsize=512)  # a page has dozens, all the same as on the last one
def icon(name: str, extra: str = "") -> SafeString:
    """A symbol of static/icons.svg. Decoration only: the words beside it carry the meaning."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true"><use href="{}#{}"/></svg>',
        extra,
        static("icons.svg"),
        name,
    )


@register.filter
def message_icon(level: str) -> str:
    return _MESSAGE_ICONS.get(level, "info")


@register.filter
def ago(at: datetime | None) -> SafeString | str:
    """ "4 min ago", with the exact time on hover; dates once it is a month or more."""
    if at is None:
        return "—"
    seconds = (timezone.now() - at).total_seconds()
    if abs(seconds) < 10:
        words = "just now"
    elif abs(seconds) >= _AGES[-1][0]:
        words = f"{at:%-d %b %Y}"
    else:
        unit = next(unit for unit in _AGES if abs(seconds) < unit[0])
        amount = f"{int(abs(seconds) // unit[1])} {unit[2]}"
        words = f"{amount} ago" if seconds > 0 else f"in {amount}"
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        at.isoformat(),
        f"{at:%Y-%m-%d %H:%M:%S %Z}",
        words,
    )


@register.filter
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


@register.filter
def count(value: int | None) -> str:
    """A whole number with thousands separated: 10,967."""
    return "—" if value is None else f"{value:,}"


@register.filter
def figure(value: Any, digits: int = 3) -> str:
    """A measured number with `digits` significant ones: 0.713, 1,204, 3.1e-05, not a number."""
    if value is None or value == "":
        return "—"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "∞" if value > 0 else "−∞"
    return _digits(value, digits).replace("-", "−", 1) if value < 0 else _digits(value, digits)


@register.filter
def fixed(value: float | None, places: int = 3) -> str:
    """A number with so many decimals, for columns and intervals that align: −0.062, 0.004."""
    if value is None:
        return "—"
    if not math.isfinite(value):
        return figure(value)
    text = f"{value:,.{places}f}"
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


@register.filter
def filesize(size: int | None) -> str:
    """Bytes in decimal units, as disks are sold: 812 B, 14.2 kB, 3.1 MB."""
    if size is None:
        return "—"
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return ""


@register.inclusion_tag("frame/_field.html")
def field(bound: Any, help_text: str = "") -> dict[str, Any]:
    """A form field with its label, help and errors."""
    return {"field": bound, "help": help_text or bound.help_text}


@register.inclusion_tag("frame/_pagination.html", takes_context=True)
def pagination(context: Any, page: Any, noun: str = "rows") -> dict[str, Any]:
    """Previous and next of a Paginator page, keeping the query string; `page` is its parameter."""
    return {"page": page, "noun": noun, "request": context["request"]}


@register.inclusion_tag("frame/_copy.html")
def copyable(text: str, shown: str = "") -> dict[str, str]:
    """An identifier that copies itself at a click."""
    return {"text": str(text), "shown": shown or str(text)}
