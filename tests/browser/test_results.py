"""Results in a browser: from the menu's file to the page that says which model is better."""

import csv
from pathlib import Path

import pytest
from playwright.sync_api import expect

from apps.accounts.models import Project, Role
from tests.agreement.crowd import models_write
from tests.browser.readable import readable
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def project() -> Project:
    project = Project.objects.create(slug="arguments", name="Arguments")
    person_make("Rita", project, Role.REVIEWER)
    models_write(project)
    return project


@pytest.mark.parametrize("phone", [False, True])
def test_a_reviewer_finds_which_model_is_better_and_controls_for_habits(
    project: Project, live_server, open_page, sign_in, phone: bool
) -> None:
    page = open_page(phone=phone)
    sign_in(page, "rita")
    page.goto(f"{live_server.url}/p/arguments/results/")
    expect(page.get_by_text("strong is the best of 3 models")).to_be_visible()
    readable(page, f"results-{'phone' if phone else 'desk'}")
    page.get_by_role("link", name="Controlled for side and length").click()
    expect(page.get_by_text("What was taken out")).to_be_visible()


def test_results_are_downloaded_from_the_menu(
    project: Project, live_server, open_page, sign_in
) -> None:
    page = open_page()
    sign_in(page, "rita")
    page.goto(f"{live_server.url}/p/arguments/comparisons/?state=open")
    page.get_by_text("Download results").click()
    readable(page, "download-menu")
    with page.expect_download() as sent:
        page.get_by_role("link", name="Votes, CSV", exact=True).click()
    rows = list(csv.DictReader(Path(sent.value.path()).read_text().splitlines()))
    assert sent.value.suggested_filename == "arguments-votes.csv"
    assert len(rows) == 480
    assert {row["annotator"].partition("-")[0] for row in rows} == {"person"}
