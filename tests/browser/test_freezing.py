"""The form of a freeze, in Chromium."""

import pytest
from playwright.sync_api import expect

from apps.accounts.models import Project, User
from tests.snapshots.test_kept import people_make, voted

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("phone", [False, True])
def test_a_hold_out_says_what_it_loses_as_it_is_typed_and_is_taken_back(
    project: Project, emil: User, open_page, sign_in, live_server, phone: bool
) -> None:
    voted(project, people_make(5, imported=2), 30, 3)
    page = open_page(phone=phone)
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/datasets/new/")
    expect(page.locator("#preview")).to_contain_text("of 30 comparisons")
    expect(page.get_by_label("Share of annotators held out")).not_to_be_visible()
    page.locator("summary", has_text="Advanced").click()
    page.get_by_label("Share of annotators held out").fill("50")
    page.get_by_label("Share of annotators held out").blur()
    beside = page.locator("#loss-heldout_annotators")
    expect(beside).to_contain_text("of 30 pairs")
    beside.get_by_role("button", name="Hold out nobody").click()
    expect(page.locator("#preview")).to_contain_text("of 30 comparisons")
    expect(page.locator("#loss-heldout_annotators")).to_be_empty()
    assert page.locator("[name=heldout_annotators]").input_value() == "0"
