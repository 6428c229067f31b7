"""Choosing which of a run's pairs people label, in a browser."""

from pathlib import Path

import pytest
from playwright.sync_api import expect
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, Role
from tests.browser.readable import readable
from tests.loop.test_selecting import generated
from tests.people import person_make
from tests.snapshots.conftest import crowd_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("phone", [False, True])
def test_the_switch_opens_the_plan_and_the_chosen_pairs_are_told(
    live_server, open_page, sign_in, tmp_path: Path, settings: Settings, phone: bool
) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")
    project = Project.objects.create(slug="arguments", name="Arguments")
    person_make("Emil", project, Role.ENGINEER)
    crowd_make(project)
    run = generated(project)
    size = "phone" if phone else "desktop"
    page = open_page(phone=phone)
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/runs/{run.pk}/?tab=pairs")
    expect(page.get_by_text("was not replayed yet")).to_be_visible()
    expect(page.get_by_label("Pairs in all")).to_be_hidden()
    page.get_by_label("Choose which pairs people label").check()
    page.get_by_label("Pairs in all").fill("20")
    page.get_by_label("Chosen by a model").fill("25")
    readable(page, f"selecting-{size}")
    page.get_by_role("button", name="Send to people").click()
    expect(page.get_by_text("20 of 40 pairs are in the label queue")).to_be_visible()
    expect(page.get_by_role("row", name="Measuring")).to_contain_text("probability 0.1")
    readable(page, f"selected-{size}")
