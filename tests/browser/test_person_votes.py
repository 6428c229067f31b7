"""The votes of a bad annotator in the browser: found, discarded with what it does, brought back."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from apps.accounts.models import Project, Role, User
from apps.labeling.models import Comparison
from tests.browser.readable import readable
from tests.labeling.pairs import annotators_make, pairs_make, vote
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("phone", [False, True])
def test_ada_discards_the_votes_against_the_decision_and_counts_them_again(
    live_server: Any,
    project: Project,
    ada: User,
    open_page: Callable[..., Page],
    sign_in: Callable[..., None],
    phone: bool,
) -> None:
    pairs_make(project, 8, overlap=4, max_overlap=5)
    people = annotators_make(project, 4)
    for number in range(8):
        for person, choice in zip(people, "abaa" if number % 2 else "aaab", strict=True):
            vote(project, person, choice)
    person_make("Zoe", project, Role.ANNOTATOR)
    page = open_page(phone=phone)
    size = "phone" if phone else "wide"
    sign_in(page, "ada")
    page.goto(f"{live_server.url}/p/{project.slug}/annotators/")
    page.get_by_role("row", name="annotator-0").get_by_role("link", name="8").click()
    expect(page.get_by_role("region", name="Votes").get_by_role("row")).to_have_count(9)
    readable(page, f"person-votes-{size}")
    page.get_by_label("Compared with the decision").select_option("with")
    page.wait_for_url("**decision=with**")
    page.get_by_role("link", name="Discard these votes and ask others").click()
    expect(page.get_by_role("button", name="Discard 8 votes")).to_be_visible()
    readable(page, f"person-discard-{size}")
    page.get_by_label("Reason").fill("Clicks without reading.")
    page.get_by_role("button", name="Discard 8 votes").click()
    expect(page.get_by_role("button", name="Count them again")).to_be_visible()
    assert Comparison.objects.filter(state="open").count() == 8
    readable(page, f"person-discarded-{size}")
    page.get_by_role("button", name="Count them again").click()
    expect(page.get_by_role("region", name="Discarded votes")).to_contain_text("undone")
    assert Comparison.objects.filter(state="decided").count() == 8
    page.goto(f"{live_server.url}/p/{project.slug}/hours/?code=none")
    expect(page.get_by_role("region", name="Hours").get_by_role("row")).to_have_count(5)
    readable(page, f"hours-{size}")


def test_ana_reads_her_completion_code_and_her_hours(
    live_server: Any,
    project: Project,
    ana: User,
    open_page: Callable[..., Page],
    sign_in: Callable[..., None],
) -> None:
    pairs_make(project, 3, completion_votes=1, vote_price=0.1)
    vote(project, ana)
    page = open_page(phone=True)
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/p/{project.slug}/label/")
    expect(page.locator("[data-completion]")).to_be_visible()
    readable(page, "completion-phone")
    page.goto(f"{live_server.url}/p/{project.slug}/answers/")
    page.get_by_role("link", name="My hours").click()
    expect(page.get_by_role("region", name="Hours").get_by_role("row")).to_have_count(2)
    readable(page, "my-hours-phone")
