"""A constitution is written, changed and read, on a phone as on a desktop."""

import pytest
from playwright.sync_api import expect

from apps.accounts.models import Project, Role
from apps.training.models import Constitution
from tests.browser.readable import readable
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("phone", [False, True])
def test_principles_and_hard_rules_are_written_and_what_changed_is_shown(
    live_server, open_page, sign_in, phone: bool
) -> None:
    project = Project.objects.create(slug="arguments", name="Arguments")
    person_make("Emil", project, Role.ENGINEER)
    page = open_page(phone=phone)
    sign_in(page, "emil")
    address = f"{live_server.url}/p/arguments/training/constitution/"
    page.goto(address)
    first, second = (page.get_by_role("group", name=f"Principle {n}", exact=True) for n in (1, 2))
    first.get_by_label("Name").fill("honest")
    first.get_by_label("Principle").fill("An answer says what it does not know.")
    second.get_by_label("Name").fill("short")
    second.get_by_label("Principle").fill("An answer is as short as it can be.")
    page.get_by_label("Kind of reward").select_option("rules")
    page.get_by_role("button", name="Add a rule").click()
    rule = page.get_by_role("group", name="Rule 1")
    rule.get_by_label("name").fill("no-love")
    rule.get_by_label("test").select_option("lacks")
    rule.get_by_label("lacks").fill("I love you")
    rule.get_by_label("on_violation").select_option("block")
    page.get_by_role("button", name="Save version 1").click()
    expect(page.get_by_text("Version 1 is saved.")).to_be_visible()
    made = Constitution.objects.get()
    assert [one["name"] for one in made.principles] == ["honest", "short"]
    assert made.hard_rules["rules"][0]["lacks"] == ["I love you"]
    first.get_by_label("Principle").fill("An answer is honest.")
    page.get_by_label("What changed, and why").fill("Said more plainly.")
    page.get_by_role("button", name="Save version 2").click()
    newest = page.get_by_role("article", name="Version 2")
    expect(newest.get_by_text("reworded")).to_be_visible()
    expect(newest.get_by_text("Said more plainly.")).to_be_visible()
    readable(page, f"constitution-{'phone' if phone else 'desktop'}")
    page.goto(f"{live_server.url}/p/arguments/runs/new/generate/")
    expect(page.get_by_text("version 2", exact=True)).to_be_visible()
