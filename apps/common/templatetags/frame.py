"""Small pieces of pages: icons, times, numbers with their spread."""

from datetime import datetime
from functools import lru_cache
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils import dateformat, timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext_lazy

from apps.common import numbers

register = template.Library()
for _written in ("duration", "count", "figure", "fixed", "filesize", "percent", "points", "share"):
    register.filter(getattr(numbers, _written))

_MESSAGE_ICONS = {
    "success": "circle-check",
    "warning": "triangle-alert",
    "error": "circle-alert",
}
# (seconds below which the unit is used, seconds of one unit, the past, the future)
_AGES = (
    (
        60,
        1,
        ngettext_lazy("%(n)s s ago", "%(n)s s ago", "n"),
        ngettext_lazy("in %(n)s s", "in %(n)s s", "n"),
    ),
    (
        3600,
        60,
        ngettext_lazy("%(n)s min ago", "%(n)s min ago", "n"),
        ngettext_lazy("in %(n)s min", "in %(n)s min", "n"),
    ),
    (
        86_400,
        3600,
        ngettext_lazy("%(n)s h ago", "%(n)s h ago", "n"),
        ngettext_lazy("in %(n)s h", "in %(n)s h", "n"),
    ),
    (
        30 * 86_400,
        86_400,
        ngettext_lazy("%(n)s d ago", "%(n)s d ago", "n"),
        ngettext_lazy("in %(n)s d", "in %(n)s d", "n"),
    ),
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
    at = timezone.localtime(at)
    seconds = (timezone.now() - at).total_seconds()
    if abs(seconds) < 10:
        words = gettext("just now")
    elif abs(seconds) >= _AGES[-1][0]:
        words = dateformat.format(at, gettext("j M Y"))  # translators: a date, as in PHP
    else:
        unit = next(unit for unit in _AGES if abs(seconds) < unit[0])
        words = unit[2 if seconds > 0 else 3] % {"n": int(abs(seconds) // unit[1])}
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        at.isoformat(),
        f"{at:%Y-%m-%d %H:%M:%S %Z}",
        words,
    )


@register.filter
def age(at: datetime | None) -> int | str:
    """Whole seconds since then."""
    return "" if at is None else max(0, int((timezone.now() - at).total_seconds()))


@register.filter
def codes(text: str) -> SafeString:
    """Escaped, with what stands between backticks as code; HTML as it is."""
    text = str(text)  # of a lazy one as well, whose HTML is HTML
    if isinstance(text, SafeString):
        return text
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return format_html("{}", text)
    return format_html_join(
        "",
        "{}",
        (
            (format_html("<code>{}</code>", part) if i % 2 else part,)
            for i, part in enumerate(parts)
        ),
    )


@register.inclusion_tag("frame/_field.html")
def field(bound: Any, help_text: str = "") -> dict[str, Any]:
    """A form field with its label, help and errors."""
    return {"field": bound, "help": help_text or bound.help_text}


@register.inclusion_tag("frame/_pagination.html", takes_context=True)
def pagination(
    context: Any, page: Any, noun: str = "rows", name: str = "page", at: str = ""
) -> dict[str, Any]:
    """Previous and next of a Paginator page, keeping the query string; `name` is its parameter,
    `at` the address where the list is a page of its own."""

    def address(number: int) -> str:
        query = context["request"].GET.copy()
        query[name] = number
        return f"{at}?{query.urlencode()}"

    return {
        "page": page,
        "noun": noun,
        "previous": address(page.previous_page_number()) if page.has_previous() else "",
        "next": address(page.next_page_number()) if page.has_next() else "",
    }


@register.inclusion_tag("frame/_copy.html")
def copyable(text: str, shown: str = "") -> dict[str, str]:
    """An identifier that copies itself at a click."""
    return {"text": str(text), "shown": shown or str(text)}
