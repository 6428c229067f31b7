"""Rating tasks as people do them: by keyboard, by finger, without script, and what readers see."""

import os
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from apps.accounts.models import Project, Role
from apps.labeling import services
from apps.labeling.models import Rating, RatingSlot, RatingTask
from apps.labeling.services.ratings import ratings_import
from tests.labeling.rating_tasks import rate
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

ANSWERS = [
    "It depends on what you weigh. **Cost**: bottled water costs about 500 times as much as tap "
    "water.\n\n- Plastic and transport make most of the price.\n- Tap water is tested more often.",
    "Yes, ban them all.",
    "No. People need water when they travel, and a ban hits the poor first. A deposit works "
    "better:\n\n| | with | without |\n|---|---:|---:|\n| returned | 94 % | 31 % |",
    "Bottles are bad.",
]


def shot(page: Page, name: str) -> None:
    """Keep a picture where SCREENSHOTS says, for people to look at."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"rating-{name}.png", caret="initial")


def no_serious_violation(page: Page, name: str) -> None:
    """What axe says of the page, in both themes, each kept as a picture too."""
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        shot(page, f"{name}-{theme}")
        found = Axe().run(page).response["violations"]
        serious = [v for v in found if v["impact"] in ("serious", "critical")]
        assert not serious, [
            (v["id"], v["help"], [node["html"][:160] for node in v["nodes"][:3]]) for v in serious
        ]
    page.emulate_media(color_scheme="light")


@pytest.fixture
def project() -> Project:
    """A task to grade, which comes first, and one to rank."""
    project = Project.objects.create(slug="arguments", name="Arguments")
    ada = person_make("Ada", project, Role.ADMIN)
    person_make("Ana", project, Role.ANNOTATOR)
    services.labeling_set_up(project=project, by=ada)
    question = "Should plastic water bottles be banned? Weigh cost, waste and safety."
    scale = {"min": 1, "max": 7, "min_label": "useless", "max_label": "could not be better"}
    ratings_import(
        project=project,
        rows=[
            {"id": "grade", "prompt": question, "responses": ANSWERS, "scale": scale,
             "priority": 2, "overlap": 2},
            {"id": "rank", "prompt": question, "responses": ANSWERS[:3], "kind": "ranking",
             "overlap": 2},
        ],
    )  # fmt: skip
    return project


def test_ana_grades_and_ranks_by_keyboard_alone_and_changes_her_mind(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page()
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/p/arguments/rate/")
    expect(page.locator("#pair-title")).to_be_focused()
    no_serious_violation(page, "desktop")
    for key in "625":
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    expect(page.locator("[data-need]")).to_have_text("Answer D has no value yet.")
    page.reload()  # what was entered is still there
    expect(page.locator("[data-done]")).to_have_text("3 of 4")
    page.keyboard.press("3")
    expect(page.locator("[data-submit]")).to_be_focused()
    shot(page, "desktop-done")
    page.keyboard.press("Enter")
    expect(page.locator("#pair-title")).to_have_text("Rank 3 answers")
    first = Rating.objects.get()
    assert [first.values[place - 1] for place in first.shown] == [6, 2, 5, 3]

    for key in "2", "1", "ArrowLeft":  # the arrow moves on within the third answer: 3
        page.keyboard.press(key)
    expect(page.locator("[data-done]")).to_have_text("3 of 3")
    shot(page, "desktop-ranking")
    page.keyboard.press("Enter")
    expect(page.locator("#pair-title")).to_contain_text("You have done your part")
    second = Rating.objects.exclude(pk=first.pk).get()
    assert [second.values[place - 1] for place in second.shown] == [2, 1, 3]
    shot(page, "desktop-nothing")

    page.get_by_role("link", name="My ratings").first.click()
    shot(page, "desktop-mine")
    page.get_by_role("link", name="Open the rating").last.click()
    expect(page.locator("#pair-title")).to_have_text("Change your rating")
    page.locator("[data-card=B] [data-key='7']").check()
    page.keyboard.press("Enter")
    expect(page.locator(".messages")).to_contain_text("Your rating was changed.")
    changed = Rating.objects.get(supersedes=first)
    assert [changed.values[place - 1] for place in changed.shown] == [6, 7, 5, 3]


def test_on_a_phone_a_finger_rates_without_dragging_and_nothing_is_cut_off(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page(phone=True)
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/p/arguments/rate/")
    no_serious_violation(page, "phone")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert all(
        label.bounding_box()["width"] >= 24 and label.bounding_box()["height"] >= 24
        for label in page.locator(".point").all()
    )
    for number, value in enumerate((3, 1, 7, 4), start=1):
        page.locator(f".point:has([name=value-{number}][value='{value}'])").tap()
    shot(page, "phone-done")
    page.get_by_role("button", name="Submit").tap()
    expect(page.locator("#pair-title")).to_have_text("Rank 3 answers")
    page.locator("[data-extra=skip] summary").tap()
    shot(page, "phone-skip")
    page.get_by_role("button", name="Not my subject").tap()
    expect(page.locator("#pair-title")).to_contain_text("You have done your part")
    stored = Rating.objects.get()
    assert [stored.values[place - 1] for place in stored.shown] == [3, 1, 7, 4]
    assert stored.active_ms is not None
    assert RatingSlot.objects.filter(task__external_id="rank", state="free").count() == 2


def test_ada_reads_how_the_ratings_lie(live_server, open_page, sign_in, project: Project) -> None:
    people = [person_make(name, project, Role.ANNOTATOR) for name in ("Ben", "Cora")]
    for person, values in zip(people, ([6, 2, 5, 1], [7, 3, 4, 1]), strict=True):
        rate(project, person, values)
    page = open_page()
    sign_in(page, "ada")
    page.goto(f"{live_server.url}/p/arguments/ratings/?sort=spread")
    no_serious_violation(page, "tasks")
    page.get_by_role("link", name="grade", exact=True).click()
    expect(page.get_by_role("heading", name="Rating task grade")).to_be_visible()
    no_serious_violation(page, "task")
    page.set_viewport_size({"width": 390, "height": 844})
    shot(page, "task-phone")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Drop").click()
    expect(page.get_by_role("button", name="Put back")).to_be_visible()
    assert RatingTask.objects.get(external_id="grade").state == "dropped"
