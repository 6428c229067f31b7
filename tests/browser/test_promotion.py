"""Models in service in a browser: readable on any screen; asked by one person, decided by another,
undone with one click."""

from pathlib import Path

import pytest
from playwright.sync_api import expect
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, Role
from apps.evaluation.services.promoting import promotion_approve, promotion_request
from apps.training.models import Checkpoint
from tests.browser.readable import readable
from tests.evaluation.promoted import evaluation_made, policy_made
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def served(tmp_path: Path, settings: Settings) -> Checkpoint:
    """A policy in production, asked by Emil and approved by Ada."""
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")
    project = Project.objects.create(slug="arguments", name="Arguments")
    ada = person_make("Ada", project, Role.ADMIN)
    emil = person_make("Emil", project, Role.ENGINEER)
    model = policy_made(project)
    request = promotion_request(
        project=project, checkpoint_id=model.pk, stage="production", user=emil
    )
    promotion_approve(project=project, request_id=request.pk, user=ada, seen_change=0)
    return model


@pytest.mark.parametrize("phone", [False, True])
def test_the_pages_can_be_read_on_every_screen(
    served, live_server, open_page, sign_in, phone: bool
) -> None:
    newer = policy_made(served.project, "newer")
    evaluation_made(newer, 0.5)
    emil = served.promotions.get().requested_by
    waits = promotion_request(
        project=served.project, checkpoint_id=newer.pk, stage="production", share=10, user=emil
    )
    page = open_page(phone=phone, dark=phone)
    sign_in(page, "ada")
    for name, path in (
        ("service", "service/"),
        ("decided", f"promotions/{served.promotions.get().pk}/"),
        ("waits", f"promotions/{waits.pk}/"),
        ("new", f"models/{newer.pk}/promote/?stage=staging"),
        ("checklists", f"runs/{served.run_id}/checklists/"),
    ):
        page.goto(f"{live_server.url}/p/arguments/{path}")
        page.evaluate("document.querySelectorAll('main details').forEach(d => d.open = true)")
        readable(page, f"{name}-{'phone' if phone else 'desktop'}")


def test_one_asks_another_approves_and_a_revert_is_one_click(
    served, live_server, open_page, sign_in
) -> None:
    newer = policy_made(served.project, "newer")
    page = open_page()
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/models/{newer.pk}/")
    page.get_by_role("link", name="Request promotion").click()
    page.get_by_label("Stage").select_option("production")
    page.get_by_label("Reason").fill("better in every line")
    page.get_by_role("button", name="Request promotion").click()
    expect(page.get_by_text("You asked for this: another person decides.")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)

    page = open_page()
    sign_in(page, "ada")
    page.goto(f"{live_server.url}/p/arguments/service/")
    page.get_by_role("link", name="newer, seed 0, step 400").click()
    page.get_by_role("button", name="Approve: production names it").click()
    expect(page.get_by_text("approved", exact=True)).to_be_visible()
    page.goto(f"{live_server.url}/p/arguments/service/")
    page.get_by_text("Revert to assistant, seed 0, step 400").click()
    production = page.get_by_role("region", name="Production")
    production.get_by_label("Reason").first.fill("rude answers")
    production.get_by_role("button", name="Revert").click()
    expect(page.get_by_text("Production names assistant, seed 0, step 400.")).to_be_visible()
    expect(page.get_by_role("cell", name="Reverted: rude answers. Evidence")).to_be_visible()
