"""Reading, qualifying and coming home in a browser; and what admins see of it."""

import os
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.utils import timezone
from playwright.sync_api import Page, expect

from apps.accounts.models import Membership, Project, Role, User
from apps.accounts.services import membership_pause
from apps.labeling import services
from apps.labeling.models import Annotator, LabelingSettings, QualificationAnswer
from tests.labeling.pairs import practice_make, right_side, rows_make, vote
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
SETTLED = 300  # ms in which a page just shown takes no keys
MARKED = """
When both answers are correct:

- the one that **names its source** is better;
- a shorter one wins a draw.

> Example: “Water boils at 100 °C at sea level” beats “Water boils when it is hot”.
"""


def shot(page: Page, name: str) -> None:
    """Keep a picture where SCREENSHOTS says, for people to look at."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"people-{name}.png", full_page=True)


def no_serious_violation(page: Page, name: str, theme: str = "light") -> None:
    page.emulate_media(color_scheme=theme)
    shot(page, f"{name}-{theme}")
    found = Axe().run(page).response["violations"]
    serious = [v for v in found if v["impact"] in ("serious", "critical")]
    assert not serious, [
        (name, v["id"], [node["html"][:160] for node in v["nodes"][:3]]) for v in serious
    ]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name


@pytest.fixture
def project() -> Project:
    """Guidelines in a second version, three practice pairs, two pairs of work."""
    project = Project.objects.create(slug="arguments", name="Arguments")
    ada = person_make("Ada", project, Role.ADMIN)
    person_make("Ana", project, Role.ANNOTATOR)
    practice_make(project, 3, qualification_pass=0.66)
    rows = [row | {"topic": f"topic {i}"} for i, row in enumerate(rows_make(2))]
    services.comparisons_import(project=project, rows=rows)
    body = project.guidelines.get().body + MARKED
    services.guideline_publish(project=project, body=body, by=ada, is_major=True)
    return project


def answer_by_key(page: Page, *, right: bool) -> None:
    """Press the key of the right (or a wrong) side of the practice pair that is shown."""
    page.wait_for_timeout(SETTLED)
    pair = int(page.locator("input[name=pair]").input_value())
    row = QualificationAnswer.objects.select_related("comparison").get(pk=pair)
    page.keyboard.press("1" if (right_side(row) == "left") == right else "2")
    expect(page.locator(".verdict")).to_contain_text("Right:" if right else "Not right")


def test_ana_reads_qualifies_and_labels_by_keyboard(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page()
    sign_in(page, "ana")
    page.get_by_role("link", name="Read the guidelines").click()
    expect(page.locator("#pair")).to_have_attribute("data-nothing", "guideline")
    expect(page.locator(".changes .added").first).to_be_visible()
    no_serious_violation(page, "reading", "dark")
    page.get_by_role("button", name="I have read the guidelines").press("Enter")
    expect(page.locator("#pair")).to_have_attribute("data-nothing", "qualification")
    shot(page, "qualification-first")
    page.get_by_role("link", name="To the qualification").press("Enter")
    no_serious_violation(page, "qualification-start")
    page.get_by_role("button", name="Start").press("Enter")
    for number, right in enumerate((True, False, True), start=1):
        expect(page.locator("#pair-title")).to_contain_text(f"Practice {number}")
        if number == 2:
            page.reload()
            shot(page, "practice")
        answer_by_key(page, right=right)
        if number < 3:
            no_serious_violation(page, f"verdict-{number}", "dark" if right else "light")
        expect(page.locator(".verdict")).to_be_focused()
        page.keyboard.press("Enter")
    expect(page.locator("#result")).to_contain_text("You passed")
    no_serious_violation(page, "passed")
    page.get_by_role("link", name="Start labeling").press("Enter")
    expect(page.locator("#pair-title")).to_contain_text("Pair 1")


def test_ana_comes_home_on_a_phone(live_server, open_page, sign_in, project: Project) -> None:
    ana, ada = User.objects.get(username="ana"), User.objects.get(username="ada")
    for slug, name in (("law", "Law"), ("code", "Code review"), ("essays", "Essays")):
        other = Project.objects.create(slug=slug, name=name)
        Membership.objects.create(project=other, user=ana, role=Role.ANNOTATOR)
        Annotator.objects.create(project=other, user=ana, acknowledged_version=1)
        services.comparisons_import(project=other, rows=rows_make(3))
    vote(Project.objects.get(slug="law"), ana)
    membership_pause(
        project=Project.objects.get(slug="essays"), user=ana, reason="Please call me.", by=ada
    )
    page = open_page(phone=True)
    sign_in(page, "ana")
    expect(page).to_have_url(f"{live_server.url}/my-work/")
    assert page.locator(".places h2").first.text_content() == "Law"
    expect(page.locator("#place-essays")).to_contain_text("Please call me.")
    no_serious_violation(page, "home-phone", "dark")
    page.set_viewport_size({"width": 1280, "height": 800})
    shot(page, "home-desktop")
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("link", name="Continue in Law").tap()
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    page.locator(".switcher summary").tap()
    page.get_by_role("link", name="My work in all projects").tap()
    page.get_by_role("link", name="Read the guidelines in Arguments").tap()
    no_serious_violation(page, "reading-phone")
    page.get_by_role("button", name="I have read the guidelines").tap()
    page.get_by_role("link", name="To the qualification").tap()
    page.get_by_role("button", name="Start").tap()
    page.get_by_role("tab", name="Answer B").tap()
    no_serious_violation(page, "practice-phone")
    page.locator(".choice").first.tap()
    expect(page.locator(".verdict")).to_be_visible()
    no_serious_violation(page, "verdict-phone")


def test_ada_looks_after_the_people_who_label(
    live_server, open_page, sign_in, project: Project
) -> None:
    ana = User.objects.get(username="ana")
    rita = person_make("Rita", project, Role.REVIEWER)
    person_make("Ben", project, Role.ANNOTATOR)
    ada = User.objects.get(username="ada")
    LabelingSettings.objects.update(acknowledge_guidelines=False)
    Annotator.objects.filter(user=rita).update(
        daily_cap=40, topics=["topic 0"], languages=["en", "de"], acknowledged_version=2
    )
    Annotator.objects.filter(user=ana).update(qualified_at=timezone.now())
    for choice in "ab":
        vote(project, ana, choice)
    Annotator.objects.filter(user=rita).update(topics=[], languages=[])
    vote(project, rita, "b")
    Annotator.objects.filter(user=rita).update(topics=["topic 0"], languages=["en", "de"])
    LabelingSettings.objects.update(acknowledge_guidelines=True)
    membership_pause(project=project, user=rita, reason="On leave until Monday.", by=ada)
    page = open_page()
    sign_in(page, "ada")
    page.goto(f"{live_server.url}/p/arguments/annotators/")
    no_serious_violation(page, "annotators")
    page.get_by_label("Show").select_option("paused")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Rita").click()
    no_serious_violation(page, "annotator", "dark")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".messages .success")).to_be_visible()
    page.goto(f"{live_server.url}/p/arguments/comparisons/ambiguous/")
    no_serious_violation(page, "ambiguous")
    page.goto(f"{live_server.url}/p/arguments/guidelines/edit/")
    page.get_by_label("Guidelines").fill("Be brief.\n\nBe kind.")
    page.get_by_label("A major change").check()
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".note")).to_contain_text("3 people")
    no_serious_violation(page, "guideline-edit")
    page.get_by_role("button", name="Publish version 3").click()
    expect(page.locator(".messages")).to_contain_text("3 people")
    page.locator("details.card summary").click()
    no_serious_violation(page, "guidelines", "dark")
    page.set_viewport_size({"width": 390, "height": 844})
    for address in ("annotators/", f"annotators/{rita.pk}/", "comparisons/ambiguous/"):
        page.goto(f"{live_server.url}/p/arguments/{address}")
        shot(page, f"phone-{address.strip('/').replace('/', '-')}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
