"""Two runs of agents are read and answered by keyboard, and images are enlarged by it."""

import base64
import io
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from apps.accounts.models import Project, Role
from apps.labeling import services
from apps.labeling.models import LabelingSettings, RunAnswer, Vote
from tests.browser.readable import readable
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
LONG = "\n".join(f"line {n} of an output that nobody reads at once" for n in range(400))


def call(name: str, **arguments: Any) -> dict[str, Any]:
    asked = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [asked]}


def run(file: str, words: str) -> list[dict[str, Any]]:
    return [
        call("list_files"),
        {"role": "tool", "content": "a\nb"},
        call("read_file", path=file),
        {"role": "tool", "content": f"{file} {LONG}"},
        {"role": "assistant", "content": words},
    ]


def picture() -> str:
    written = io.BytesIO()
    Image.new("RGB", (400, 300), (200, 60, 60)).save(written, "PNG")
    return f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"


@pytest.fixture
def project() -> Project:
    project = Project.objects.create(slug="agents", name="Agents")
    person_make("Ana", project, Role.ANNOTATOR)
    LabelingSettings.objects.create(project=project, overlap=1, ask_steps=True)
    return project


@pytest.mark.parametrize("phone", [False, True])
def test_two_runs_are_read_and_answered_by_keyboard(
    project: Project, open_page, sign_in, live_server, phone: bool
) -> None:
    shown = {"prompt": "Which file?", "response_a": run("a", "A."), "response_b": run("b", "B.")}
    services.comparisons_import(project=project, rows=[shown])
    page = open_page(phone=phone)
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/p/agents/label/")
    pane = page.locator(".pane").first
    expect(pane.get_by_text("first difference")).to_be_visible()
    readable(page, f"runs-{'phone' if phone else 'desktop'}")
    page.keyboard.press("j")  # to the first difference
    step = page.locator("[data-step]:focus")
    expect(step).to_have_attribute("data-step", "3")
    page.keyboard.press("v")
    expect(step.get_by_text("line 399 of an output")).to_be_attached()
    expect(page.locator("#pair-title")).to_be_attached()  # what came took no place but its own
    page.keyboard.press("e")
    expect(page.locator("[data-first-error=left]")).to_have_value("3")
    page.keyboard.press("y")
    page.keyboard.press("y")
    page.keyboard.press("n")
    page.locator("#pair-title").focus()
    page.keyboard.press("1")
    if phone:  # the other run was not open yet
        expect(page.locator("[data-panes]")).to_have_attribute("data-shown", "right")
        page.locator("#pair-title").focus()
        page.keyboard.press("1")
    expect(page.locator("[data-nothing]")).to_be_visible()
    stored = RunAnswer.objects.select_related("answer").get()
    left = stored.answer.left_is
    right = "b" if left == "a" else "a"
    assert stored.answer.choice == left
    assert stored.first_error == {left: 3}
    assert stored.outcome == {left: {"success": "yes"}, right: {"success": "no"}}
    assert stored.unopened == {left: [], right: [3]}


def test_an_image_is_enlarged_by_keyboard(
    project: Project, open_page, sign_in, live_server
) -> None:
    shown = {"prompt": f"What is it? ![a red field]({picture()})"}
    services.comparisons_import(
        project=project, rows=[{**shown, "response_a": "Red.", "response_b": "Blue."}]
    )
    page = open_page()
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/p/agents/label/")
    expect(page.get_by_alt_text("a red field")).to_be_visible()
    readable(page, "image-desktop")
    page.keyboard.press("m")
    dialog = page.locator("dialog.enlarged[open]")
    expect(dialog).to_be_visible()
    width = dialog.locator("img").evaluate("image => image.width")
    page.keyboard.press("+")
    assert dialog.locator("img").evaluate("image => image.width") > width
    readable(page, "image-enlarged")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("1")
    expect(page.locator("[data-nothing]")).to_be_visible()


SETTLED = 500  # ms: an answer right after a pair came is taken for a slip of the finger


def answer(page: Page, phone: bool) -> None:
    """The left one is better; on a phone the first press opens the answer that was not open yet."""
    page.locator("#pair-title").focus()
    page.wait_for_timeout(SETTLED)
    page.keyboard.press("1")
    if phone:
        expect(page.locator("[data-panes]")).to_have_attribute("data-shown", "right")
        page.keyboard.press("1")


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_ten_runs_and_ten_image_pairs_in_a_row_by_keyboard(
    project: Project, open_page, sign_in, live_server, phone: bool
) -> None:
    runs = [
        {
            "prompt": f"Which file {n}?",
            "response_a": run("a", f"A{n}."),
            "response_b": run("b", "B."),
        }
        for n in range(10)
    ]
    images = [
        {
            "prompt": f"What is it, {n}? ![a red field]({picture()})",
            "response_a": f"Red {n}.",
            "response_b": f"Blue {n}.",
        }
        for n in range(10)
    ]
    services.comparisons_import(project=project, rows=runs + images)
    page = open_page(phone=phone)
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/p/agents/label/")
    seen = {"run": 0, "image": 0}
    for done in range(20):
        expect(page.locator("#pair-title")).to_contain_text(f"Pair {done + 1}")
        if page.locator("[data-runs]").count():
            seen["run"] += 1
            page.keyboard.press("j")
            step = page.locator("[data-step]:focus")
            expect(step).to_have_attribute("data-step", "3")
            page.keyboard.press("v")
            expect(step.get_by_text("line 399 of an output")).to_be_attached()
            page.keyboard.press("e")
            expect(page.locator("[data-first-error=left]")).to_have_value("3")
        else:
            seen["image"] += 1
            expect(page.get_by_alt_text("a red field")).to_be_visible()
        answer(page, phone)
        expect(page.locator("#pair-title")).not_to_contain_text(f"Pair {done + 1} ")
    expect(page.locator("[data-nothing]")).to_be_visible()
    assert seen == {"run": 10, "image": 10}
    votes = Vote.objects.all()
    assert [vote.choice == vote.left_is for vote in votes] == [True] * 20
    assert RunAnswer.objects.exclude(first_error={}).count() == 10
