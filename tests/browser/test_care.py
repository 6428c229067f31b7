"""A pair with a warning is covered; a half-read pair comes back as it was left."""

import pytest
from playwright.sync_api import expect

from apps.accounts.models import Project, Role
from apps.labeling import services
from apps.labeling.models import LabelingSettings, Vote
from tests.browser.readable import readable
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
LONG = "\n\n".join(f"Paragraph {n} of an answer that takes a while to read." for n in range(80))


@pytest.fixture
def project() -> Project:
    project = Project.objects.create(slug="arguments", name="Arguments")
    person_make("Ana", project, Role.ANNOTATOR)
    LabelingSettings.objects.create(project=project, show_rationale=True, require_rationale=True)
    services.comparisons_import(
        project=project,
        rows=[
            {
                "prompt": "How did it end?",
                "response_a": f"A: {LONG}",
                "response_b": f"B: {LONG}",
                "warning": "graphic violence",
                "topic": "war",
            }
        ],
    )
    return project


@pytest.mark.parametrize("phone", [False, True])
def test_a_warning_covers_the_pair_until_it_is_opened(
    project: Project, open_page, sign_in, live_server, phone: bool
) -> None:
    page = open_page(phone=phone)
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/p/arguments/label/")
    cover = page.locator("[data-cover]")
    expect(cover).to_be_visible()
    expect(page.locator(".panes")).to_be_hidden()
    readable(page, f"covered-{'phone' if phone else 'desktop'}")
    page.keyboard.press("1")
    expect(page.locator("[data-need]")).to_be_visible()
    assert not Vote.objects.exists()
    if phone:
        cover.locator("summary").click()
    else:
        page.keyboard.press("o")
    expect(page.locator(".panes")).to_be_visible()
    readable(page, f"uncovered-{'phone' if phone else 'desktop'}")
    page.get_by_role("link", name="Choose what you do not want to get").is_hidden()
    page.goto(f"{live_server.url}/p/arguments/opt-outs/")
    readable(page, f"opt-outs-{'phone' if phone else 'desktop'}")


def test_a_warning_covers_the_pair_without_script_too(
    project: Project, open_page, sign_in, live_server
) -> None:
    page = open_page(java_script_enabled=False)
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/p/arguments/label/")
    expect(page.locator(".panes")).to_be_hidden()
    page.locator("[data-cover] summary").click()
    expect(page.locator(".panes")).to_be_visible()


def test_a_half_read_pair_comes_back_as_it_was_left(
    project: Project, open_page, sign_in, live_server
) -> None:
    page = open_page()
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/p/arguments/label/")
    page.keyboard.press("o")
    for key in ("r", "2", "Escape", "2"):  # a reason, back, B is better
        page.keyboard.press(key)
    page.locator("[data-toggle=linked]").click()
    page.locator(".pane.a").evaluate("pane => { pane.scrollTop = 700 }")
    page.locator(".pane.b").evaluate("pane => { pane.scrollTop = 250 }")
    while "700,250" not in (page.evaluate("localStorage.getItem('concord.places')") or ""):
        page.wait_for_timeout(50)
    page.goto(f"{live_server.url}/p/arguments/answers/")
    page.goto(f"{live_server.url}/p/arguments/label/")
    expect(page.locator(".panes")).to_be_visible()
    expect(page.locator("input[name=reasons][value=Complete]")).to_be_checked()
    expect(page.locator(".choice[value=right]")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".pane.a")).to_have_js_property("scrollTop", 700)
    expect(page.locator(".pane.b")).to_have_js_property("scrollTop", 250)
