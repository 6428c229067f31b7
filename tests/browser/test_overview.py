"""The overview and the notifications of every role: on a desktop, on a phone, in the dark."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.core.cache import cache
from django.utils import timezone
from playwright.sync_api import Page, expect

from apps.accounts.models import Project, Role, User
from apps.agreement.models import AnnotatorReport
from apps.labeling.models import Comparison
from apps.labeling.services import guideline_publish, labeling_settings_update
from apps.monitoring.services.incidents import incident_open
from apps.training.models import Checkpoint, Run
from tests.labeling.pairs import annotators_make, pairs_make, vote
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
PLACES = ("overview", "notifications", "audit-log")


@pytest.fixture
def people() -> dict[str, User]:
    """A project in the middle of its work, with something of everything that waits."""
    cache.clear()
    project = Project.objects.create(slug="arguments", name="Arguments")
    made = {
        name: person_make(name.capitalize(), project, role)
        for name, role in {
            "ada": Role.ADMIN,
            "ana": Role.ANNOTATOR,
            "rita": Role.REVIEWER,
            "emil": Role.ENGINEER,
        }.items()
    }
    pairs_make(project, 40, overlap=3, max_overlap=3)
    for person in annotators_make(project, 3):
        for choice in "abba":
            vote(project, person, choice)
    for _ in range(12):
        vote(project, made["ana"])
    now = timezone.now()
    Comparison.objects.filter(pk__in=Comparison.objects.filter(n_votes=0)[:5]).update(
        state=Comparison.State.CONTESTED
    )
    AnnotatorReport.objects.create(project=project, user=made["ana"], computed_at=now, flags=[{}])
    for name, kind, state in (("rewards", "reward", "finished"), ("policy", "ppo", "failed")):
        run = Run.objects.create(
            project=project,
            name=name,
            kind=kind,
            state=state,
            failure_kind="bug" if state == "failed" else "",
            ended_at=now,
        )
    Checkpoint.objects.create(
        project=project,
        run=Run.objects.get(name="rewards"),
        attempt=1,
        step=500,
        uri="x",
        sha256="1" * 64,
        tags=["final"],
    )
    Run.objects.create(
        project=project,
        name="a DPO run with a rather long name that has to break somewhere",
        kind="dpo",
        state="running",
        total_steps=200,
        step=50,
        eta_s=4_000.0,
        started_at=now - timedelta(hours=1),
    )
    incident_open(
        project=project,
        key="x",
        link="reward",
        rule="drift",
        title="The reward model drifts",
        message="",
        severity="critical",
        run=run,
    )
    labeling_settings_update(project=project, by=made["ada"], overlap=2, least_votes=2)
    guideline_publish(project=project, body="Be fair.", by=made["ada"], is_major=False)
    return made


def looked_at(page: Page, name: str) -> None:
    """Wide enough, without a serious fault, kept as a picture where SCREENSHOTS says."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"overview-{name}.png", full_page=True)
    found = Axe().run(page).response["violations"]
    serious = [
        (v["id"], [node["html"][:160] for node in v["nodes"][:3]])
        for v in found
        if v["impact"] in ("serious", "critical")
    ]
    assert not serious, (name, serious)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name


@pytest.mark.parametrize("name", ["ada", "ana", "rita", "emil"])
def test_everybody_finds_their_overview_at_home_on_every_screen(
    live_server, open_page, sign_in, people, name
) -> None:
    for phone in (False, True):
        page = open_page(phone=phone, dark=phone)
        sign_in(page, name)
        expect(page.locator("h1")).to_have_text("Overview")
        look = "phone" if phone else "desktop"
        tabs = page.get_by_role("navigation", name="Tabs").locator("> ul > li")
        assert tabs.count() <= 5  # four and More
        for place in PLACES if name == "ada" else PLACES[:2]:
            page.goto(f"{live_server.url}/p/arguments/{place}/")
            looked_at(page, f"{name}-{place}-{look}")
            page.emulate_media(color_scheme="light" if phone else "dark")
            looked_at(page, f"{name}-{place}-{look}-other")
    small = open_page()
    sign_in(small, name)
    small.set_viewport_size({"width": 320, "height": 256})  # 1280 × 1024 at 400 %
    small.goto(f"{live_server.url}/p/arguments/overview/")
    assert small.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_bell_is_read_without_javascript(live_server, open_page, sign_in, people) -> None:
    page = open_page(java_script_enabled=False)
    sign_in(page, "emil")
    bell = page.locator("a.bell")
    expect(bell.locator(".bell-count")).to_be_visible()
    bell.click()
    expect(page.locator("[data-notice='incident.opened']")).to_have_attribute("data-new", "")
    page.reload()
    expect(page.locator("[data-notice='incident.opened']")).not_to_have_attribute("data-new", "")
    expect(bell.locator(".bell-count")).to_have_count(0)


def test_a_question_goes_from_the_pair_to_a_reviewer_and_back(
    live_server, open_page, sign_in, people
) -> None:
    for phone in (False, True):
        page = open_page(phone=phone, dark=phone)
        look = "phone" if phone else "desktop"
        sign_in(page, "ana")
        page.goto(f"{live_server.url}/p/arguments/label/")
        expect(page.locator("#pair-title")).to_contain_text("Pair 13")
        page.wait_for_timeout(300)
        if phone:
            page.locator("[data-extra=ask] summary").tap()
            page.get_by_label("Question to the reviewers").tap()
        else:
            page.keyboard.press("q")
        page.keyboard.type(f"Does length count, 1 or 2? ({look})")
        looked_at(page, f"ask-{look}")
        page.get_by_role("button", name="Send").click()
        expect(page.locator("[data-asked=yes]")).to_be_visible()
        expect(page.locator("#pair-title")).to_contain_text("Pair 13")
        expect(page.locator("#ask-text")).to_have_value("")
        fields = "[...document.getElementById('answer-form').elements].map((field) => field.name)"
        assert "text" not in page.evaluate(fields)
    ritas = open_page()
    sign_in(ritas, "rita")
    ritas.goto(f"{live_server.url}/p/arguments/overview/")
    ritas.locator("[data-need=questions] a").click()
    expect(ritas.locator("[data-question=open]")).to_have_count(2)
    looked_at(ritas, "questions")
    ritas.locator("main").get_by_role("link", name="Answer").first.click()
    question = ritas.locator("[data-comment=question]").first
    question.get_by_label("Your answer").fill("No: read the guidelines on length.")
    question.get_by_role("button", name="Answer").click()
    ritas.get_by_label("Add a comment").fill("@ada, the guidelines need a sentence.")
    ritas.get_by_role("button", name="Comment").click()
    expect(ritas.locator("[data-comment=answer]")).to_have_count(1)
    looked_at(ritas, "comments")
    ritas.emulate_media(color_scheme="dark")
    ritas.set_viewport_size({"width": 390, "height": 844})
    looked_at(ritas, "comments-phone")
    ritas.get_by_role("link", name="Edit this comment").click()
    looked_at(ritas, "comment-edit")
    anas = open_page(phone=True)
    sign_in(anas, "ana")
    anas.locator("a.bell").click()
    anas.locator("[data-notice=answer] a").click()
    expect(anas.locator(".reply")).to_contain_text("No: read the guidelines")
    looked_at(anas, "my-questions")
