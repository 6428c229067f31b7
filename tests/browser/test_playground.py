"""The playground in a browser: two models answer, and their pair goes to people and back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from apps.accounts.models import Project, Role, User
from apps.labeling.models import Comparison
from apps.training.models import Checkpoint, Run
from tests.browser.readable import readable
from tests.evaluation.assessed import model_make
from tests.people import person_make
from tests.workers.asked import answerer_runs, emptied, put_model

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.django_db(transaction=True)]
redis_client = pytest.fixture(emptied)
ANSWER_MS = 120_000  # the first question loads torch; machines are busy


def model_put(project: Project, by: User, root: Path, name: str, seed: int) -> Checkpoint:
    _, told = put_model(root, name, seed=seed)
    model = model_make(project, by=by, name=name)
    Checkpoint.objects.filter(pk=model.pk).update(**told)
    Run.objects.filter(pk=model.run_id).update(kind=Run.Kind.SFT)
    return model


@pytest.fixture
def page(
    live_server: Any, open_page: Any, sign_in: Any, settings: Any, tmp_path: Path, redis_client: Any
) -> Iterator[Page]:
    """The page of a model, with an answerer beside it."""
    settings.ARTIFACTS_URL = str(tmp_path / "store")
    project = Project.objects.create(slug="arguments", name="Arguments")
    emil = person_make("Emil", project, Role.ENGINEER)
    first = model_put(project, emil, tmp_path, "first", 1)
    model_put(project, emil, tmp_path, "second", 2)
    page = open_page()
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/models/{first.pk}/")
    with answerer_runs(redis_client, tmp_path):
        yield page


def test_two_models_are_asked_read_and_sent_to_people(page: Page) -> None:
    page.get_by_role("link", name="Ask it").click()
    page.get_by_label("Model B").select_option(index=1)
    if page.get_by_label("Model B").input_value() == page.get_by_label("Model A").input_value():
        page.get_by_label("Model B").select_option(index=2)
    page.get_by_label("Prompt", exact=True).fill("the cat")
    page.get_by_label("Longest answer").fill("12")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_text("Cut at the longest answer").or_(page.get_by_text("Ended by itself")).nth(
        1
    ).wait_for(timeout=ANSWER_MS)
    for side in "AB":
        answer = page.get_by_label(f"Answer {side}").locator(".answer")
        assert answer.inner_text().strip()
    readable(page, "playground")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_label("Votes for each pair").fill("2")
    page.get_by_role("button", name="Send to people").click()
    expect(page.get_by_text("0 of 2 votes cast")).to_be_visible()
    assert Comparison.objects.get().prompt.source == "playground"
    page.get_by_role("button", name="Take them back").click()
    expect(page.get_by_role("button", name="Send to people")).to_be_visible()
    assert not Comparison.objects.exists()
    page.get_by_role("link", name="Continue with this answer").first.click()
    expect(page.get_by_role("heading", name="Continue")).to_be_visible()
