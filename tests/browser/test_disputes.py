"""Ruling on disputes by keys, and asking for audits, in a browser."""

import pytest
from playwright.sync_api import expect

from apps.accounts.models import Project, Role, User
from apps.agreement.models import Ruling
from apps.labeling.models import Slot
from tests.agreement.disputed import disputed_make, newer_guideline
from tests.browser.readable import readable
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def rita() -> User:
    project = Project.objects.create(slug="arguments", name="Arguments")
    return person_make("Rita", project, Role.REVIEWER)


def test_disputes_are_walked_through_and_ruled_on_by_keys(
    rita: User, live_server, open_page, sign_in
) -> None:
    pairs, _ = disputed_make(Project.objects.get(), n=3)
    page = open_page()
    sign_in(page, rita.username)
    page.goto(f"{live_server.url}/p/arguments/disputes/")
    readable(page, "list")
    page.get_by_role("link", name="pair-1", exact=True).click()
    readable(page, "dispute")
    page.keyboard.press("j")
    page.wait_for_url(f"**/disputes/{pairs[1].pk}/")
    page.keyboard.press("k")
    page.wait_for_url(f"**/disputes/{pairs[0].pk}/")
    page.keyboard.press("2")
    expect(page.locator("input[name=choice][value=b]")).to_be_checked()
    page.keyboard.press("d")
    expect(page.locator("[data-toggle=diff]")).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Guideline gap").check()
    note = page.locator("#id_note")
    note.press_sequentially("just kidding, 2 d")  # letters are letters here
    expect(page).to_have_url(f"{page.url.split('/p/')[0]}/p/arguments/disputes/{pairs[0].pk}/")
    expect(note).to_have_value("just kidding, 2 d")
    page.get_by_role("button", name="Adjudicate").dblclick()
    page.wait_for_url(f"**/disputes/{pairs[1].pk}/")
    expect(page.get_by_text("pair-1 is settled: B is better.")).to_be_visible()
    ruling = Ruling.objects.get()
    assert (ruling.choice, ruling.cause, ruling.by) == ("b", "guideline_gap", rita)


def test_the_pages_stand_on_a_phone_and_in_the_dark(
    rita: User, live_server, open_page, sign_in
) -> None:
    project = Project.objects.get()
    pairs, _ = disputed_make(project, n=2, votes="aab", least_agreeing=2, audit_rate=1.0)
    newer_guideline(project, rita)
    page = open_page(phone=True)
    sign_in(page, rita.username)
    for path in (
        f"disputes/{pairs[0].pk}/", "disputes/?show=split", "disputes/causes/",
        "disputes/re-annotation/", "audits/",
    ):  # fmt: skip
        page.goto(f"{live_server.url}/p/arguments/{path}")
        readable(page, path)


def test_audits_come_one_after_another(rita: User, live_server, open_page, sign_in) -> None:
    disputed_make(Project.objects.get(), n=2, votes="aa", audit_rate=1.0)
    page = open_page()
    sign_in(page, rita.username)
    page.goto(f"{live_server.url}/p/arguments/audits/")
    page.get_by_role("link", name="Audit now").click()
    expect(page.get_by_text("Audits: you judge votes of others anew")).to_be_visible()
    for n in (1, 2):
        page.wait_for_timeout(400)  # a page just shown takes no keys
        page.keyboard.press("1")
        if n == 1:
            expect(page.get_by_text("an audit", exact=True)).to_be_visible()
    expect(page.get_by_role("heading", name="No audit is left for you")).to_be_visible()
    assert Slot.objects.filter(kind="audit", state="done", annotator=rita).count() == 2
