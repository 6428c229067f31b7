"""Importing in the browser: a file with other column names, its errors, and the import."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from apps.accounts.models import Project, Role
from apps.labeling import dispatch, services
from apps.labeling.models import Answer, Comparison, ImportJob, LabelingSettings, Slot, Task
from apps.labeling.services.task_rows import tasks_import
from tests.labeling.pairs import rate
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Jobs sent to the workers; the test is the worker."""
    jobs: list[str] = []
    monkeypatch.setattr(dispatch, "import_send", lambda job: not jobs.append(job))
    return jobs


def no_serious_violation(page: Page, name: str) -> None:
    """What axe says of the page, in both themes, each kept as a picture where SCREENSHOTS says."""
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        if folder := os.environ.get("SCREENSHOTS"):
            page.screenshot(path=Path(folder) / f"import-{name}-{theme}.png", full_page=True)
        found = Axe().run(page).response["violations"]
        serious = [v for v in found if v["impact"] in ("serious", "critical")]
        assert not serious, [(v["id"], [n["html"][:160] for n in v["nodes"][:3]]) for v in serious]
    page.emulate_media(color_scheme="light")


def rows() -> list[dict[str, Any]]:
    made = [
        {
            "ask": f"Question {n}: how long is a day?",
            "first": f"Twenty-four hours, in answer {n}.",
            "second": f"It depends, says answer {n}.",
            "theme": f"theme {n % 9}",
            "verdict": "first",
        }
        for n in range(60)
    ]
    made[3] |= {"verdict": "perhaps"}
    made[5] |= {"second": "I am ChatGPT, and a day is long."}
    made[6] |= {"first": "Write to ann.lee@gmail.com about it."}
    made[7] |= {"second": made[7]["first"]}
    return made


def test_an_engineer_maps_checks_and_imports_a_file(
    live_server: Any,
    project: Project,
    emil: Any,
    open_page: Callable[..., Page],
    sign_in: Callable[..., None],
    waiting: list[str],
    tmp_path: Path,
) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    page = open_page()
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/comparisons/")
    page.get_by_role("link", name="Import a file").click()
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("heading", name="answers.jsonl")).to_be_visible()
    expect(page.locator("select[aria-invalid=true]")).to_have_count(3)
    no_serious_violation(page, "missing")
    for label, column in (
        ("Prompt", "ask"),
        ("Answer A", "first"),
        ("Answer B", "second"),
        ("Reference label (gold)", "verdict"),
        ("Topic", "theme"),
    ):
        page.get_by_label(label, exact=True).select_option(column)
    page.get_by_role("button", name="Preview again").click()
    expect(page.get_by_role("region", name="First comparisons")).to_contain_text("It depends")
    no_serious_violation(page, "columns")
    page.get_by_role("button", name="Check the whole file").click()
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    no_serious_violation(page, "waiting")
    services.import_job_run(job=waiting[0])
    expect(page.get_by_role("heading", name="What an import would do")).to_be_visible()
    findings = page.get_by_role("region", name="Errors and warnings by row")
    expect(findings).to_contain_text("second")
    expect(findings).to_contain_text("names its model")
    no_serious_violation(page, "checked")
    with page.expect_download() as download:
        page.get_by_role("link", name="All as CSV").click()
    assert Path(download.value.path()).read_text().startswith('"level","row","field"')
    assert not Comparison.objects.exists()
    page.get_by_role("button", name="Import 58 comparisons, leave 2 rows out").click()
    services.import_job_run(job=waiting[1])
    expect(page.get_by_role("heading", name="What was imported")).to_be_visible()
    page.get_by_text("Undo this import").click()
    no_serious_violation(page, "imported")
    assert Comparison.objects.filter(gold="a").count() == 58
    page.get_by_label("Where this is").get_by_role("link", name="Imports").click()
    page.wait_for_url("**/imports/")
    expect(page.get_by_role("table")).to_contain_text("imported")
    assert ImportJob.objects.get().result["n_refused"] == 2
    no_serious_violation(page, "list")


# Rating tasks as people do them: by keyboard, by finger, without script, and what readers see.


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


def no_serious_violation_of_ratings(page: Page, name: str) -> None:
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
    LabelingSettings.objects.update(random_share=0.0001)
    question = "Should plastic water bottles be banned? Weigh cost, waste and safety."
    scale = {"min": 1, "max": 7, "min_label": "useless", "max_label": "could not be better"}
    tasks_import(
        project=project,
        rows=[
            {
                "id": "grade",
                "prompt": question,
                "responses": ANSWERS,
                "scale": scale,
                "priority": 2,
                "overlap": 2,
            },
            {
                "id": "rank",
                "prompt": question,
                "responses": ANSWERS[:3],
                "kind": "ranking",
                "overlap": 2,
            },
        ],
    )
    return project


def test_ana_grades_and_ranks_by_keyboard_alone_and_changes_her_mind(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page()
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/p/arguments/label/")
    expect(page.locator("#pair-title")).to_be_focused()
    no_serious_violation_of_ratings(page, "desktop")
    for key in "625":
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    expect(page.locator("[data-need]")).to_contain_text("Answer D")
    page.reload()  # what was entered is still there
    expect(page.locator("[data-done]")).to_have_text("3 of 4")
    page.keyboard.press("3")
    expect(page.locator("[data-submit]")).to_be_focused()
    shot(page, "desktop-done")
    page.keyboard.press("Enter")
    expect(page.locator("#pair-title")).to_have_text("Rank 3 answers")
    first = Answer.objects.get()
    assert [first.values[place - 1] for place in first.shown] == [6, 2, 5, 3]

    for key in "2", "1", "ArrowLeft":  # the arrow moves on within the third answer: 3
        page.keyboard.press(key)
    expect(page.locator("[data-done]")).to_have_text("3 of 3")
    shot(page, "desktop-ranking")
    page.keyboard.press("Enter")
    expect(page.locator('[data-nothing="yours_done"]')).to_be_visible()
    second = Answer.objects.exclude(pk=first.pk).get()
    assert [second.values[place - 1] for place in second.shown] == [2, 1, 3]
    shot(page, "desktop-nothing")

    page.get_by_role("link", name="My ratings").first.click()
    shot(page, "desktop-mine")
    page.get_by_role("link", name=re.compile("^Open “")).last.click()
    expect(page.locator("#pair-title")).to_have_text("Change your rating")
    page.locator("[data-card=B] [data-key='7']").check()
    page.keyboard.press("Enter")
    expect(page.locator(".messages .success")).to_be_visible()
    changed = Answer.objects.get(supersedes=first)
    assert [changed.values[place - 1] for place in changed.shown] == [6, 7, 5, 3]


def test_grades_given_offline_are_delivered_once_the_line_is_back(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page()
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/p/arguments/label/")
    expect(page.locator("#pair-title")).to_be_focused()
    page.context.set_offline(True)
    for key in "6253":
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    expect(page.locator("[data-undelivered]")).to_contain_text("Not delivered yet")
    shot(page, "offline")
    page.keyboard.press("Enter")  # again: the same answer, kept once
    assert not Answer.objects.exists()
    page.context.set_offline(False)
    expect(page.locator("#pair-title")).to_have_text("Rank 3 answers")
    stored = Answer.objects.get()
    assert [stored.values[place - 1] for place in stored.shown] == [6, 2, 5, 3]
    expect(page.locator("[data-undelivered]")).to_have_count(0)
    for key in "213":
        page.keyboard.press(key)
    LabelingSettings.objects.update(overlap=2, max_overlap=2)
    places = Slot.objects.filter(task__external_id="rank")
    ben, cora = (person_make(name, project, Role.ANNOTATOR) for name in ("Ben", "Cora"))
    places.filter(state="leased").update(annotator=ben)
    places.filter(state="free").update(state="done", annotator=cora)
    page.keyboard.press("Enter")  # others have it by now: said, not lost in silence
    expect(page.locator("[data-refused]")).to_be_visible()
    assert Answer.objects.count() == 1


def test_on_a_phone_a_finger_rates_without_dragging_and_nothing_is_cut_off(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page(phone=True)
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/p/arguments/label/")
    no_serious_violation_of_ratings(page, "phone")
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
    expect(page.locator('[data-nothing="yours_done"]')).to_be_visible()
    stored = Answer.objects.get()
    assert [stored.values[place - 1] for place in stored.shown] == [3, 1, 7, 4]
    assert stored.active_ms is not None
    assert Slot.objects.filter(task__external_id="rank", state="free").count() == 2


def test_ada_reads_how_the_ratings_lie(live_server, open_page, sign_in, project: Project) -> None:
    people = [person_make(name, project, Role.ANNOTATOR) for name in ("Ben", "Cora")]
    for person, values in zip(people, ([6, 2, 5, 1], [7, 3, 4, 1]), strict=True):
        rate(project, person, values)
    page = open_page()
    sign_in(page, "ada")
    page.goto(f"{live_server.url}/p/arguments/ratings/?sort=spread")
    no_serious_violation_of_ratings(page, "tasks")
    page.get_by_role("link", name="grade", exact=True).click()
    expect(page.get_by_role("heading", name="Rating task grade")).to_be_visible()
    no_serious_violation_of_ratings(page, "task")
    page.set_viewport_size({"width": 390, "height": 844})
    shot(page, "task-phone")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Drop").click()
    expect(page.get_by_role("button", name="Put back")).to_be_visible()
    assert Task.objects.get(external_id="grade").state == "dropped"
