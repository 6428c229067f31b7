"""The page of a reward model in a browser: readable on any screen, and decided on without a
terminal."""

from pathlib import Path

import pytest
from playwright.sync_api import expect
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, Role
from apps.training.models import Checkpoint
from tests.browser.readable import readable
from tests.evaluation.assessed import assessment_make, model_make, with_evidence
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def model(tmp_path: Path, settings: Settings) -> Checkpoint:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")
    project = Project.objects.create(slug="arguments", name="Arguments")
    person_make("Ada", project, Role.ADMIN)
    made = model_make(project)
    assessment_make(made, with_evidence())
    return made


@pytest.mark.parametrize("phone", [False, True])
def test_the_pages_can_be_read_on_every_screen(
    model, live_server, open_page, sign_in, phone: bool
) -> None:
    other = model_make(model.project, name="another")
    page = open_page(phone=phone, dark=phone)
    sign_in(page, "ada")
    one = f"reward-models/{model.pk}/"
    for path in (
        "reward-models/",
        one,
        f"{one}assess/",
        f"{one}approve/",
        f"reward-models/compare/?a={model.pk}&b={other.pk}",
    ):
        page.goto(f"{live_server.url}/p/arguments/{path}")
        page.evaluate("document.querySelectorAll('details.finding').forEach(d => d.open = true)")
        readable(page, path)


def test_a_person_reads_a_red_line_and_approves_with_a_reason(
    model, live_server, open_page, sign_in
) -> None:
    page = open_page(java_script_enabled=False)
    sign_in(page, "ada")
    page.goto(f"{live_server.url}/p/arguments/reward-models/")
    page.get_by_role("link", name="rewards, step 400").click()
    page.get_by_role("link", name="Flattery does not pay").click()
    expect(page.locator("#praise_probes")).to_be_in_viewport()
    page.locator("#praise_probes summary").first.click()
    expect(page.get_by_text("What is the capital of Peru?")).to_be_visible()
    page.get_by_role("link", name="Approve").click()
    page.get_by_label("Reason").fill("too short")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("at least 10 characters why")).to_be_visible()
    page.get_by_label("Reason").fill("praise never reaches this policy")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Approved by Ada")).to_be_visible()
    page.get_by_role("link", name="The page at that time").click()
    expect(page.get_by_text("It never changes")).to_be_visible()
