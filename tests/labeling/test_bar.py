"""The bar that is kept from pair to pair says exactly what one made anew would."""

import pytest
from django.template.loader import render_to_string

from apps.labeling.screens import label
from apps.labeling.services import Offers
from apps.labeling.services.results import Criterion

ASKED = [
    Offers(),
    Offers(tie=False, both_bad=False, strength=True, flags=False),
    Offers(
        rationale=True,
        require_rationale=True,
        improve=True,
        reasons=("Safer", "<b>Clearer</b>"),
        criteria=(Criterion("facts", "Facts & figures"),),
    ),
]


def anew(slug: str, offers: Offers, undo: int | None) -> str:
    context = label.ballot(offers, {}) | {
        "active_project": {"slug": slug},
        "skip_reasons": label.SKIP_REASONS,
        "undo": undo,
    }
    return render_to_string("labeling/_bar.html", context)


@pytest.mark.parametrize("offers", ASKED)
@pytest.mark.parametrize("undo", [None, 7, 12_345])
def test_what_is_kept_equals_what_is_made_anew(offers: Offers, undo: int | None) -> None:
    for _ in range(2):  # the second time it comes from what was kept
        kept = label.bar_html(slug="arguments", offers=offers, undo=undo)
        assert kept == anew("arguments", offers, undo)
    assert (f"?answer={undo}" in kept) == (undo is not None)


def test_projects_do_not_get_each_others_bars() -> None:
    for slug in ("arguments", "elsewhere", "arguments"):
        html = label.bar_html(slug=slug, offers=Offers(), undo=3)
        assert f"/p/{slug}/label/skip/" in html
        assert html.count("/p/") == html.count(f"/p/{slug}/")
        assert label.addresses(slug)["vote"] == f"/p/{slug}/label/vote/"
