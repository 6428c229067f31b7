"""The pages of statistics in a browser: from a cell to what two people differ on, on any screen."""

import pytest
from playwright.sync_api import expect

from apps.accounts.models import Project, Role
from apps.agreement.services.reports import report_refresh
from apps.labeling.models import Prompt, Response
from tests.agreement.crowd import crowd_write
from tests.browser.readable import readable
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
PAGES = ("agreement/", "agreement/slices/?sort=percent&down=1", "agreement/matrix/")


@pytest.fixture
def project() -> Project:
    """40 comparisons of two topics; the first two people differ on ten of them."""
    project = Project.objects.create(slug="arguments", name="Arguments")
    person_make("Ada", project, Role.ADMIN)
    made = crowd_write(project, [["a", "a", "b"]] * 30 + [["a", "b", "b"]] * 10)
    said = [{"role": "user", "content": "Which one convinces more?"}]
    Prompt.objects.update(brief=said)
    Response.objects.update(brief=[{"role": "assistant", "content": "Because it is so."}])
    Prompt.objects.filter(tasks__in=made[:15]).update(topic="a rather long name of a topic")
    report_refresh(project=project)
    return project


def test_a_cell_leads_to_what_two_people_differ_on(
    project: Project, live_server, open_page, sign_in
) -> None:
    page = open_page()
    sign_in(page, "ada")
    page.goto(f"{live_server.url}/p/arguments/agreement/")
    page.get_by_role("link", name="Matrix").click()
    page.get_by_role("link", name="crowd-1 and crowd-0: 75.0 %").or_(
        page.get_by_role("link", name="crowd-0 and crowd-1: 75.0 %")
    ).press("Enter")
    expect(page.get_by_text("comparisons; they differ on 10")).to_be_visible()
    expect(page.get_by_role("article")).to_have_count(10)
    readable(page, "disagreements")
    page.get_by_role("table").get_by_role("link", name="10", exact=True).click()
    expect(page.get_by_role("article")).to_have_count(10)
    expect(page.get_by_role("link", name="show all")).to_be_visible()


@pytest.mark.parametrize("phone", [False, True])
def test_the_pages_stand_on_every_screen(
    project: Project, live_server, open_page, sign_in, phone: bool
) -> None:
    page = open_page(phone=phone)
    sign_in(page, "ada")
    for path in PAGES:
        page.goto(f"{live_server.url}/p/arguments/{path}")
        readable(page, path)
