"""A live dialogue in a browser: written by keyboard, read while two servers write, then chosen."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from apps.accounts.models import Project, Role, User
from apps.evaluation.models import Conversation, DialogueCampaign, DialogueTurn
from apps.evaluation.services.dialogues import CampaignAsked, dialogue_open
from apps.labeling.models import Vote
from apps.training.models import Checkpoint, Run
from tests.browser.test_labeling import no_serious_violation
from tests.evaluation.assessed import model_make
from tests.people import person_make
from tests.workers.asked import answerer_runs, emptied
from tests.workers.scored import put_tree
from tests.workers.servers.stub import Body, Stub, events, status
from workers.config.server import ServedModelSettings
from workers.servers.answers import write_served

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.django_db(transaction=True)]
redis_client = pytest.fixture(emptied)
ANSWER_MS = 120_000  # the first question loads torch; machines are busy
TURNS = 5


class Servers:
    """Two that stream what they were asked; `dead`: which of them answers with an error now."""

    def __init__(self) -> None:
        self.dead = ""
        self.stubs = {name: Stub(self._answers(name)) for name in ("Primus", "Secundus")}

    def _answers(self, name: str) -> Any:
        def told(body: Body, k: int) -> Any:
            if self.dead == name:
                return status(500, "out of order")
            asked = body["messages"][-1]["content"]
            return events("You said: ", f"**{asked}** ", f"<i>as {len(name)} letters</i>")

        return told


@pytest.fixture
def servers(tmp_path: Path, settings: Any) -> Iterator[Servers]:
    settings.ARTIFACTS_URL = str(tmp_path / "store")
    made = Servers()
    yield made
    for stub in made.stubs.values():
        stub.close()


def served(project: Project, by: User, root: Path, name: str, stub: Stub) -> Checkpoint:
    write_served(root / name, ServedModelSettings(url=stub.url, model=name), None)
    _, uri, sha256 = put_tree(root, root / name, name)
    model = model_make(project, by=by, name=name)
    Checkpoint.objects.filter(pk=model.pk).update(uri=uri, sha256=sha256)
    Run.objects.filter(pk=model.run_id).update(kind=Run.Kind.SFT)
    return model


@pytest.fixture
def campaign(tmp_path: Path, servers: Servers, redis_client: Any) -> Iterator[DialogueCampaign]:
    project = Project.objects.create(slug="arguments", name="Arguments")
    person_make("Ana", project, Role.ANNOTATOR)
    emil = person_make("Emil", project, Role.ENGINEER)
    models = [
        served(project, emil, tmp_path, name, stub).pk for name, stub in servers.stubs.items()
    ]
    asked = CampaignAsked(name="Tea talk", models=models, most_turns=TURNS)
    with answerer_runs(redis_client, tmp_path, INFERENCE_HOSTS="127.0.0.1", NO_PROXY="*"):
        yield dialogue_open(project=project, user=emil, asked=asked, seed=7)


def begin(page: Page, server: str) -> None:
    page.goto(f"{server}/my-work/")
    page.get_by_role("link", name="Tea talk").click()
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_label("Your message")).to_be_focused()


def test_five_turns_by_keyboard(
    live_server: Any, open_page: Any, sign_in: Any, campaign: DialogueCampaign
) -> None:
    page = open_page()
    sign_in(page, "ana")
    begin(page, live_server.url)
    for number in range(1, TURNS + 1):
        page.keyboard.type(f"Question {number}?")
        page.keyboard.press("Control+Enter")
        chosen = page.locator(".choosing")
        chosen.wait_for(timeout=ANSWER_MS)
        if number == 1:
            no_serious_violation(page, "dialogue-choose")
            expect(page.locator(".pane.a strong")).to_have_text("Question 1?")
            text = page.locator("#pair").inner_text()
            assert not {"Primus", "Secundus"} & set(text.split())
        page.keyboard.press("12tx1"[number - 1])
        chosen.wait_for(state="detached")
    expect(page.get_by_text("This conversation has ended.")).to_be_visible()
    talk = Conversation.objects.get()
    turns = list(DialogueTurn.objects.filter(conversation=talk).order_by("number"))
    assert [turn.message for turn in turns] == [f"Question {n}?" for n in range(1, TURNS + 1)]
    assert [turn.is_drawn for turn in turns] == [False, False, True, True, False]
    assert Vote.objects.count() == TURNS


def test_a_dead_server_blocks_nothing_on_a_phone(
    live_server: Any, open_page: Any, sign_in: Any, campaign: DialogueCampaign, servers: Servers
) -> None:
    page = open_page(phone=True)
    sign_in(page, "ana")
    servers.dead = "Primus"
    begin(page, live_server.url)
    page.get_by_label("Your message").fill("Are you there?")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("One answer did not come.")).to_be_visible(timeout=ANSWER_MS)
    no_serious_violation(page, "dialogue-missing")
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    servers.dead = ""
    page.get_by_role("button", name="Try again").click()
    page.locator(".choosing").wait_for(timeout=ANSWER_MS)
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    page.locator(".choice").first.click()
    expect(page.get_by_text("Here is answer B, which was not open yet.")).to_be_visible()
    page.locator(".choice").first.click()
    expect(page.get_by_label("Your next message")).to_be_visible()
    assert Vote.objects.count() == 1
