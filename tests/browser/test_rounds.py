"""From a finished run to a round and its end, in a browser."""

from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import expect
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, Role
from apps.loop.models import Round, RoundStep
from apps.loop.services.rounds import rounds_sweep
from apps.snapshots.services.freezing import snapshot_run
from apps.training.models import Run
from tests.browser.readable import readable
from tests.loop.test_rounds import passed, wire
from tests.people import person_make
from tests.snapshots.conftest import crowd_make

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("wire"),
]
__all__ = ["wire"]


@pytest.mark.parametrize("phone", [False, True])
def test_an_engineer_makes_a_pipeline_starts_a_round_and_stops_it(
    live_server, open_page, sign_in, tmp_path: Path, settings: Settings, phone: bool
) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")
    project = Project.objects.create(slug="arguments", name="Arguments")
    emil = person_make("Emil", project, Role.ENGINEER)
    crowd_make(project)
    evaluation = passed(project, emil)
    size = "phone" if phone else "desktop"
    page = open_page(phone=phone, dark=phone)
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/runs/{evaluation.pk}/")
    page.get_by_role("link", name="Make a pipeline").click()
    page.get_by_label("Name").fill("Weekly")
    page.get_by_label("After so many fresh accepted pairs").fill("500")
    readable(page, f"pipeline-new-{size}")
    page.get_by_role("button", name="Make the pipeline").click()
    readable(page, f"pipeline-{size}")
    page.get_by_role("link", name="Change").click()
    readable(page, f"pipeline-edit-{size}")
    page.get_by_text("Budget of a round").click()
    page.get_by_label("Wall time, minutes").fill("90")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Start a round").click()
    expect(page.get_by_role("status").get_by_text("Freeze the dataset.")).to_be_visible()
    steps = RoundStep.objects.filter(round__number=2)
    snapshot_run(snapshot=steps.get(key="freeze").snapshot_id)
    rounds_sweep()
    run = steps.get(key="reward").run
    Run.objects.filter(pk=run.pk).update(
        state="failed",
        ended_at=timezone.now(),
        failure_kind="out_of_memory",
        fault="machine",
        failure_message="The card is full.",
    )
    rounds_sweep()
    # The page asks again by itself.
    expect(page.get_by_role("status").get_by_text("The card is full.")).to_be_visible(
        timeout=15_000
    )
    readable(page, f"round-{size}")
    page.get_by_label("Reason").fill("No machine today")
    page.get_by_role("button", name="Stop the round").click()
    expect(page.get_by_text("Stopped: No machine today")).to_be_visible()
    page.get_by_role("link", name="Weekly").click()
    expect(page.get_by_role("button", name="Start a round")).to_be_visible()
    readable(page, f"pipeline-rounds-{size}")
    states = Round.objects.order_by("number").values_list("trigger", "state")
    assert list(states) == [("past", "finished"), ("hand", "stopped")]


def test_a_newcomer_makes_a_pipeline_of_a_template(
    live_server, open_page, sign_in, tmp_path: Path, settings: Settings
) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")
    project = Project.objects.create(slug="arguments", name="Arguments")
    emil = person_make("Emil", project, Role.ENGINEER)
    crowd_make(project)
    passed(project, emil)
    page = open_page()
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/pipelines/new/")
    page.get_by_role("link", name="Start from a template").click()
    page.get_by_label("Name").fill("Whole circle")
    page.get_by_label("Template").select_option("dpo")
    page.get_by_label("In each round people first label fresh pairs").check()
    readable(page, "pipeline-template")
    page.get_by_role("button", name="Make the pipeline").click()
    expect(page.get_by_role("img", name="Generate pairs of answers")).to_be_visible()
    readable(page, "pipeline-of-template")
    page.get_by_role("link", name="Change").click()
    page.get_by_label("Percent of the pairs").fill("0")
    page.get_by_role("button", name="Save").click()
    page.get_by_label("Percent of the pairs").fill("80")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("80 % of the pairs")).to_be_visible()
