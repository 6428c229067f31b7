"""The form of a reward: what is chosen there is the text that is sent, and the other way round."""

import json

import pytest
from playwright.sync_api import Page, expect

from apps.accounts.models import Project, Role
from tests.browser.readable import readable
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def form(live_server, open_page, sign_in) -> Page:
    """The form of a new GRPO run, on a phone."""
    project = Project.objects.create(slug="arguments", name="Arguments")
    person_make("Emil", project, Role.ENGINEER)
    page = open_page(phone=True, dark=True)
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/runs/new/grpo/")
    return page


def text_of(page: Page) -> dict:
    return json.loads(page.locator("[name=c_reward]").input_value())


def test_a_weighted_sum_is_built_without_writing_json_and_errors_stand_at_their_fields(
    form,
) -> None:
    page, own = form, form.locator(".field", has=form.locator("[name=c_reward]")).first
    assert text_of(page) == {"type": "model"}
    own.get_by_label("Kind of reward").select_option("sum")
    own.get_by_label("aggregate").select_option("min")
    own.get_by_label("weight").first.fill("0.5")
    own.get_by_role("button", name="Add a part").click()
    second = own.get_by_role("group", name="Part 2")
    expect(second.get_by_label("name").first).to_be_focused()
    second.get_by_label("name").first.fill("form")
    second.get_by_role("button", name="Add a rule").click()
    rule = second.get_by_role("group", name="Rule 1")
    rule.get_by_label("test").select_option("lacks")
    rule.get_by_label("lacks").fill("as an AI\nlanguage model")
    rule.get_by_label("penalty").fill("-1")
    assert text_of(page) == {
        "type": "sum",
        "parts": [
            {"name": "part_1", "weight": 0.5, "source": {"type": "model", "aggregate": "min"}},
            {
                "name": "form",
                "source": {
                    "type": "rules",
                    "rules": [
                        {"name": "rule_1", "lacks": ["as an AI", "language model"], "penalty": -1}
                    ],
                },
            },
        ],
    }
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate("document.querySelector('.run-form').noValidate = true")
    page.get_by_role("button", name="Launch").click()
    penalty = page.get_by_role("group", name="Part 2").get_by_label("penalty")
    expect(penalty).to_have_attribute("aria-invalid", "true")
    expect(penalty).to_have_accessible_description("-1.0 is under the least value 0.0 score")
    readable(page, "reward-form")

    page.get_by_text("As text (JSON)").first.click()
    page.locator("[name=c_reward]").fill('{"type": "verifier", "check": "number"}')
    expect(page.get_by_label("Kind of reward").first).to_have_value("verifier")
    expect(page.get_by_label("tolerance", exact=True)).to_be_visible()
    page.locator("[name=c_reward]").fill("{")
    expect(page.get_by_text("no JSON object")).to_be_visible()
