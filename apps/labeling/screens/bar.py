"""What is the same on the label screen from pair to pair, made once: the bar and the addresses.

A vote is answered with the next pair, hundreds of times a minute, and by far the most of its HTML
is the bar of choices, flags and skip reasons below the texts. It depends on what the project asks
and on nothing of the pair, so one made for the last pair is as good; only the number that undo
leads to is filled in. Making it anew was more than half of the template's work (docs/speed.md).
"""

import secrets
from functools import lru_cache

from django.conf import settings
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe

from apps.labeling.screens import screen
from apps.labeling.services import Offers

_PAGES = ("answers", "guidelines", "hold", "label", "vote", "who")
# Stands for the number in what is kept. Nobody can write it into a text of a project.
_UNDO = f"undo-{secrets.token_hex(8)}"


def bar_html(*, slug: str, offers: Offers, undo: int | None) -> SafeString:
    """The bar below a fresh pair, nothing chosen or entered yet."""
    make = _bar.__wrapped__ if settings.DEBUG else _bar  # templates may change under DEBUG
    html = make(slug, offers, undo is not None)
    return mark_safe(html.replace(_UNDO, str(int(undo or 0))))  # noqa: S308 - a number


@lru_cache(maxsize=512)
def _bar(slug: str, offers: Offers, has_undo: bool) -> str:
    asked = screen.ballot(offers, {})
    return render_to_string(
        "labeling/_bar.html",
        asked
        | {
            "active_project": {"slug": slug},
            "skip_reasons": screen.SKIP_REASONS,
            "undo": _UNDO if has_undo else None,
        },
    )


@lru_cache(maxsize=512)
def addresses(slug: str) -> dict[str, str]:
    """The addresses of a project's label screen, by the names of their patterns."""
    return {name: reverse(f"labeling:{name}", args=[slug]) for name in _PAGES}
