"""The label screen in German, and in a language that is written from right to left."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from apps.accounts.models import Project
from apps.labeling.models import Comparison, Vote
from tests.browser.readable import readable
from tests.browser.test_answer_form import WHOLE, asks
from tests.browser.test_labeling import open_both, press_and_wait, project
from tests.translations import MIRRORED, mirrored, outside

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
__all__ = ["project"]


def come_in(live_server, page: Page, path: str = "/p/arguments/label/") -> None:
    """Without a word of any language."""
    page.goto(f"{live_server.url}/sign-in/?next={path}")
    page.locator("[name=login]").fill("ana")
    page.locator("[name=password]").fill("correct-horse-battery")
    page.locator("[name=password]").press("Enter")
    page.wait_for_url(f"**{path}")


def box(page: Page, selector: str) -> float:
    """The middle of it, from the left."""
    found = page.locator(selector).first.bounding_box()
    assert found, selector
    return found["x"] + found["width"] / 2


@pytest.mark.parametrize("phone", [False, True])
def test_from_right_to_left_the_answers_keep_their_sides(
    live_server, open_page, project: Project, tmp_path: Path, phone: bool
) -> None:
    asks(project, **WHOLE)
    with mirrored(tmp_path):
        page = open_page(phone=phone, locale=MIRRORED)
        come_in(live_server, page)
        assert page.evaluate("getComputedStyle(document.body).direction") == "rtl"
        open_both(page)
        readable(page, f"mirrored-{'phone' if phone else 'desktop'}")
        first, second = ("#tab-left", "#tab-right") if phone else ("#pane-left", "#pane-right")
        assert box(page, first) < box(page, second)
        assert box(page, ".choice.a") < box(page, ".choice.b")
        assert box(page, "[value=left] + span") < box(page, "[value=right] + span")
        if not phone:
            assert box(page, ".rail") > box(page, ".page")  # all else is mirrored
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".choice[value=left-1]")).to_have_attribute("aria-pressed", "true")
        page.keyboard.press("Escape")
        page.keyboard.press("ArrowRight")
        expect(page.locator(".choice[value=right-1]")).to_have_attribute("aria-pressed", "true")
        need = page.locator("[data-need]")  # said by a script
        assert need.inner_text()
        assert outside(need.inner_text()) == ""
        assert not Vote.objects.exists()


@pytest.mark.parametrize("phone", [False, True])
def test_three_pairs_are_labeled_in_german(live_server, open_page, project, phone: bool) -> None:
    page = open_page(phone=phone, locale="de-DE")
    come_in(live_server, page)
    for number in (1, 2, 3):
        expect(page.locator("#pair-title")).to_have_text(f"Paar {number} heute")
        open_both(page)
        readable(page, f"german-{'phone' if phone else 'desktop'}-{number}")
        if phone:
            page.get_by_role("button", name="A ist besser").tap()
        else:
            press_and_wait(page, "ArrowLeft", f"Paar {number + 1}")
        expect(page.locator("#pair-title")).to_contain_text(f"Paar {number + 1}")
    assert [vote.choice == vote.left_is for vote in Vote.objects.all()] == [True] * 3
    page.keyboard.press("d")
    if not phone:
        expect(page.locator("[data-diff-said]")).to_contain_text("arkiert")
    for path in ("answers/", "guidelines/", "rate/", "../../my-work/", "../../account/"):
        page.goto(f"{live_server.url}/p/arguments/{path}")
        readable(page, f"german-{'phone' if phone else 'desktop'}-{path.strip('./')}")


@pytest.mark.parametrize("phone", [False, True])
def test_warning_question_and_due_date_are_readable_in_german(
    live_server, open_page, project, phone: bool
) -> None:
    asks(project, due_on=timezone.now().date() + timedelta(days=1))
    Comparison.objects.update(warning="graphic violence")
    page = open_page(phone=phone, locale="de-DE")
    come_in(live_server, page)
    look = "phone" if phone else "desktop"
    expect(page.locator("[data-cover]")).to_be_visible()
    expect(page.locator(".pair-head .where")).to_contain_text("fällig")
    readable(page, f"german-covered-{look}")
    page.locator("[data-cover] summary").click()
    page.locator("[data-extra=ask] summary").click()
    expect(page.locator("#ask-text")).to_be_visible()
    readable(page, f"german-ask-{look}")
    page.locator("#ask-text").fill("Zählt ein Unentschieden?")
    page.get_by_role("button", name="Senden").click()
    expect(page.locator("[data-asked=yes]")).to_be_visible()
    readable(page, f"german-asked-{look}")
