"""A head-to-head in a browser: an engineer opens it from a file, people answer ordinary pairs,
and its pages can be read on any screen."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, Role
from apps.evaluation.models import HeadToHead
from apps.evaluation.services.head_to_head import (
    head_to_head_end,
    head_to_head_look,
    head_to_head_share,
)
from apps.labeling.models import Answer
from tests.browser.readable import readable
from tests.evaluation.test_head_to_head import GOOD, POOR, cast_by, opened, opened_three, rows
from tests.labeling.pairs import annotators_make
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def arguments(tmp_path: Path, settings: Settings) -> Project:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")
    return Project.objects.create(slug="arguments", name="Arguments")


@pytest.mark.parametrize("phone", [False, True])
def test_the_pages_can_be_read_on_every_screen(
    arguments, live_server, open_page, sign_in, phone: bool
) -> None:
    emil = person_make("emil", arguments, Role.ENGINEER)
    found = opened(arguments, emil, 60)
    people = annotators_make(arguments, 6)
    for turn in range(6):
        for person in people:
            cast_by(arguments, person, POOR if turn == 5 else GOOD)
        head_to_head_look(head_to_head=found, by=emil)
    found = head_to_head_share(head_to_head=found, by=emil, days=3)
    page = open_page(phone=phone, dark=phone)
    sign_in(page, "emil")
    for name, path in (
        ("list", "p/arguments/head-to-heads/"),
        ("one", f"p/arguments/head-to-heads/{found.pk}/"),
        ("new", "p/arguments/head-to-heads/new/"),
        ("suite", "p/arguments/datasets/import/"),
        ("shared", f"p/shared/head-to-head/{found.share_key}/"),
    ):
        page.goto(f"{live_server.url}/{path}")
        page.evaluate("document.querySelectorAll('main details').forEach(d => d.open = true)")
        readable(page, f"head-to-head-{name}-{'phone' if phone else 'desktop'}")


@pytest.mark.parametrize("phone", [False, True])
def test_three_systems_can_be_read_on_every_screen_and_asked_about_again(
    arguments, live_server, open_page, sign_in, phone: bool
) -> None:
    emil = person_make("emil", arguments, Role.ENGINEER)
    found = opened_three(arguments, emil, 60, people=6, name="Three of them")
    for n, person in enumerate(annotators_make(arguments, 6)):
        cast_by(arguments, person, GOOD if n % 3 else POOR, at_most=9)
    head_to_head_share(head_to_head=found, by=emil, days=3)
    found = head_to_head_end(head_to_head=HeadToHead.objects.get(), by=emil)
    page = open_page(phone=phone, dark=phone)
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/shared/head-to-head/{found.share_key}/")
    readable(page, f"three-systems-shared-{'phone' if phone else 'desktop'}")
    page.goto(f"{live_server.url}/p/arguments/head-to-heads/{found.pk}/")
    expect(page.get_by_role("heading", name="Every two systems")).to_be_visible()
    page.evaluate("document.querySelectorAll('main details').forEach(d => d.open = true)")
    readable(page, f"three-systems-{'phone' if phone else 'desktop'}")
    page.get_by_role("link", name="Ask again").click()
    expect(page.get_by_label("Further systems")).to_have_value("Other")


def test_a_file_becomes_pairs_that_a_person_answers_by_keyboard(
    arguments, live_server, open_page, sign_in, tmp_path: Path
) -> None:
    person_make("emil", arguments, Role.ENGINEER)
    person_make("ana", arguments, Role.ANNOTATOR)
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows(24)))
    page = open_page()
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/head-to-heads/new/")
    page.get_by_label("Or a file of answers").set_input_files(file)
    names = {"Name": "Ours", "First system": "Ours", "Second system": "Theirs"}
    for label, text in names.items():
        page.get_by_label(label, exact=True).fill(text)
    page.get_by_label("People", exact=True).fill("6")
    page.get_by_role("button", name="Ask people").click()
    expect(page.get_by_text("No votes yet.")).to_be_visible()

    page = open_page()
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/p/arguments/label/")
    expect(page.get_by_text("how long is a day?").first).to_be_visible()
    expect(page.get_by_text("Theirs")).to_have_count(0)
    page.keyboard.press("1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Pair 2")).to_be_visible()
    assert Answer.objects.get().kind == "blind"
    assert HeadToHead.objects.get().name == "Ours"
