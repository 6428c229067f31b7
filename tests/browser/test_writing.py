"""Writing a text by keyboard, with its draft kept on the server, and reviewing it."""

import pytest
from playwright.sync_api import Page, expect

from apps.accounts.models import Project, Role
from apps.labeling.models import WrittenDraft, WrittenText, WrittenVersion
from tests.browser.test_labeling import no_serious_violation
from tests.labeling.writing import batch_make
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
FIRST = "Light is **scattered** by the air."


@pytest.fixture
def project() -> Project:
    project = Project.objects.create(slug="arguments", name="Arguments")
    person_make("Ana", project, Role.ANNOTATOR)
    person_make("Rita", project, Role.REVIEWER)
    batch_make(project, instruction="Be *brief*.", least_characters=5)
    return project


def editor(page: Page, server: str) -> None:
    page.goto(f"{server}/p/arguments/write/")
    expect(page.locator("#body")).to_be_focused()


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_a_text_is_written_by_keyboard_and_accepted_by_another(
    live_server, open_page, sign_in, project: Project, phone: bool
) -> None:
    page = open_page(phone=phone)
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/my-work/")
    expect(page.get_by_text("3 texts to write")).to_be_visible()
    editor(page, live_server.url)
    page.keyboard.type("No")
    page.keyboard.press("Control+Enter")
    expect(page.locator("[data-need]")).to_contain_text("At least 5")
    page.keyboard.press("Control+A")
    page.keyboard.type(FIRST)
    expect(page.locator("#draft-state")).to_contain_text("Draft saved")
    page.keyboard.press("Control+Shift+P")
    expect(page.locator("[data-preview-text] strong")).to_have_text("scattered")
    no_serious_violation(page, f"write-{'phone' if phone else 'desktop'}")
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("How do bees find flowers?")).to_be_visible()
    version = WrittenVersion.objects.get()
    assert version.body == FIRST
    assert version.active_ms is not None

    other = open_page(phone=phone)
    sign_in(other, "rita")
    other.goto(f"{live_server.url}/p/arguments/write/review/")
    other.get_by_role("link", name="Why is the sky blue?").click()
    no_serious_violation(other, f"review-{'phone' if phone else 'desktop'}")
    other.get_by_role("button", name="Accept", exact=True).click()
    expect(other.get_by_text("Nothing waits for your review")).to_be_visible()
    assert WrittenText.objects.get(pk=version.text_id).state == "accepted"


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_three_demonstrations_in_a_row_by_keyboard(
    live_server, open_page, sign_in, project: Project, phone: bool
) -> None:
    page = open_page(phone=phone)
    sign_in(page, "ana")
    editor(page, live_server.url)
    for number in range(3):
        expect(page.locator("#body")).to_be_focused()
        expect(page.locator("#body")).to_have_value("")
        page.keyboard.type(f"Answer number {number}.")
        page.keyboard.press("Control+Enter")
    expect(page.get_by_text("nothing", exact=False).first).to_be_visible()
    written = WrittenVersion.objects.order_by("pk").values_list("body", flat=True)
    assert list(written) == [f"Answer number {number}." for number in range(3)]


def test_the_last_words_are_kept_on_leaving_and_another_tab_overwrites_nothing(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page()
    sign_in(page, "ana")
    editor(page, live_server.url)
    page.keyboard.type(FIRST)
    page.goto(f"{live_server.url}/p/arguments/write/mine/")  # before the pause that saves
    editor(page, live_server.url)
    expect(page.locator("#body")).to_have_value(FIRST)

    tab = page.context.new_page()
    editor(tab, live_server.url)
    tab.locator("#body").fill("Another beginning.")
    expect(tab.locator("#draft-state")).to_contain_text("Draft saved")
    page.locator("#body").fill("An older tab goes on.")
    expect(page.get_by_text("A newer draft of this text")).to_be_visible()
    assert WrittenDraft.objects.get().body == "Another beginning."
    page.get_by_role("button", name="Keep this one instead").click()
    expect(page.locator("#draft-state")).to_contain_text("Draft saved")
    assert WrittenDraft.objects.get().body == "An older tab goes on."
