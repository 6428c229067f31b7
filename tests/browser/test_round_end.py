"""The results of the demo in a browser, down to the card of its policy."""

from pathlib import Path

import pytest
from playwright.sync_api import expect
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, Role
from apps.loop.round_end import round_end_try
from tests.browser.readable import readable
from tests.evaluation.promoted import policy_made
from tests.loop.test_round_end import evaluated
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("phone", [False, True])
def test_the_results_of_the_demo_can_be_read_and_lead_to_the_card(
    live_server, open_page, sign_in, tmp_path: Path, settings: Settings, phone: bool
) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")
    project = Project.objects.create(slug="arguments", name="Arguments")
    for name, role in (("Rita", Role.REVIEWER), ("Emil", Role.ENGINEER), ("Ada", Role.ADMIN)):
        person_make(name, project, role)
    round_end_try(run_id=evaluated(policy_made(project, evaluated=False)).pk)
    page = open_page(phone=phone, dark=phone)
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/overview/")
    page.get_by_role("link", name="Results of the demo").click()
    expect(page.get_by_role("heading", name="Production: the gate is closed")).to_be_visible()
    readable(page, f"rounds-{'phone' if phone else 'desktop'}")
    page.get_by_role("link", name="assistant, seed 0, step 400").click()
    expect(page.get_by_text("of these votes are simulated")).to_be_visible()
