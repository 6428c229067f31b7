"""What an annotator reads: code, formulas, conversations, differences; and what must stay inert."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.core.cache import cache
from playwright.sync_api import Page, expect

from apps.accounts.models import Project, Role
from apps.labeling import services
from tests.labeling import model_texts
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SETTLED = 300  # ms after a swap in which keys are ignored


@pytest.fixture
def label(live_server, open_page, sign_in) -> Callable[..., Page]:
    """`label({prompt, response_a, response_b}, …, phone=, …)`: Ana's screen with these pairs."""

    def open_with(*rows: dict[str, Any], **options: Any) -> Page:
        cache.clear()
        project = Project.objects.create(slug="panes", name="Panes")
        ada = person_make("Ada", project, Role.ADMIN)
        person_make("Ana", project, Role.ANNOTATOR)
        services.labeling_set_up(project=project, by=ada)
        services.comparisons_import(project=project, rows=[{"prompt": "Why?"} | r for r in rows])
        page = open_page(**options)
        page.on("dialog", lambda dialog: pytest.fail(f"a dialog opened: {dialog.message}"))
        page.on(
            "request",
            lambda request: (
                request.url.startswith(live_server.url) or pytest.fail(f"asked {request.url}")
            ),
        )
        sign_in(page, "ana")
        page.goto(f"{live_server.url}/p/panes/label/")
        expect(page.locator("#pair-title")).to_be_focused()
        page.wait_for_timeout(SETTLED)
        return page

    return open_with


CODE = {"response_a": model_texts.CODE, "response_b": model_texts.CODE_SHORT}
MATHS = {"response_a": model_texts.MATHS, "response_b": model_texts.MATHS_OTHER}
EDITED = {
    "response_a": "The *lazy* dog sleeps in the sun.\n\n`x = 1`",
    "response_b": "The lazy cat sleeps in the sun.\n\n`x = 2`",
}


def shot(page: Page, name: str) -> None:
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"panes-{name}.png", caret="initial")


def no_serious_violation(page: Page, name: str) -> None:
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        shot(page, f"{name}-{theme}")
        found = Axe().run(page).response["violations"]
        serious = [v for v in found if v["impact"] in ("serious", "critical")]
        assert not serious, [
            (v["id"], v["help"], [node["html"][:160] for node in v["nodes"][:3]]) for v in serious
        ]


def toggle(page: Page, name: str, key: str) -> None:
    """By its key; where no keys are, by its button."""
    button = page.locator(f"[data-toggle={name}]")
    before = button.get_attribute("aria-pressed")
    page.keyboard.press(key)
    expect(button).not_to_have_attribute("aria-pressed", before)


def swipe(page: Page, start: int, end: int) -> None:
    """A finger across the answers from one x to another, in CSS pixels."""
    touch = page.context.new_cdp_session(page)
    for kind, x in [("touchStart", start), ("touchMove", (start + end) / 2), ("touchMove", end)]:
        point = {"x": x, "y": 500}
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def fits(page: Page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def marked(page: Page) -> dict[str, list[str]]:
    """The marked words of each pane, sorted, by the name of the side."""
    return {
        side: page.locator(f"#pane-{side} .only").all_text_contents() for side in ("left", "right")
    }


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_code_and_formulas_with_differences_marked_have_no_violation(
    label: Callable[..., Page], phone: bool
) -> None:
    both = {side: MATHS[side] + CODE["response_a"] for side in MATHS}
    page = label(both, phone=phone)
    expect(page.locator("#pane-left .katex").first).to_be_attached()
    expect(page.locator(".math:not(.typeset)")).to_have_count(0)
    assert page.locator("#pane-left .katex-display").count() >= 1
    expect(page.locator("#pane-left .unbroken").first).to_have_text(re.compile("[,.:]$"))
    assert page.locator("#pane-left .turn").inner_text().count("$5") == 1  # money is text
    toggle(page, "diff", "d")
    expect(page.locator("[data-diff-said]")).to_contain_text("only in A")
    no_serious_violation(page, "phone" if phone else "desktop")
    assert fits(page)


def test_words_of_one_answer_only_are_marked_and_kept_so_for_the_next_pair(
    label: Callable[..., Page],
) -> None:
    page = label(EDITED, {**EDITED, "prompt": "And why?"})
    page.context.set_offline(True)  # nothing of it needs the server
    toggle(page, "diff", "d")
    expect(page.locator("[data-diff-said]")).to_have_text(re.compile("2 .* A, 2 .* B"))
    assert sorted(marked(page).values()) == [["cat", "2"], ["dog", "1"]]
    shot(page, "marks")
    toggle(page, "raw", "w")
    expect(page.locator("[data-diff-said]")).to_contain_text("4 words only in")  # * and * too
    written = page.locator(".panes .written").all_text_contents()
    assert sorted(written) == sorted([EDITED["response_a"], EDITED["response_b"]])
    toggle(page, "raw", "w")
    toggle(page, "diff", "d")
    assert marked(page) == {"left": [], "right": []}
    assert page.locator("#pane-left .prose p").first.evaluate("(p) => p.childNodes.length") in (
        1,
        3,
    )
    toggle(page, "diff", "d")
    page.context.set_offline(False)
    page.keyboard.press("t")
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    expect(page.locator("[data-toggle=diff]")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".only").first).to_be_visible()
    page.reload()
    expect(page.locator(".only").first).to_be_visible()


def test_answers_too_different_or_too_long_are_said_to_be_and_left_unmarked(
    label: Callable[..., Page],
) -> None:
    other = " ".join(f"w{n % 977}" for n in range(40_000))
    page = label({"response_a": model_texts.HUGE, "response_b": other})
    assert "lazy dog 3299" in page.locator(".panes").text_content()  # whole, to the last paragraph
    started = page.evaluate("performance.now()")
    toggle(page, "diff", "d")
    expect(page.locator("[data-diff-said]")).to_contain_text("Nothing is marked.")
    assert page.evaluate("performance.now()") - started < 3000
    page.keyboard.press("t")  # and the page still listens
    expect(page.locator('[data-nothing="yours_done"]')).to_be_visible()


def test_linked_panes_scroll_in_proportion_and_unlinked_ones_alone(
    label: Callable[..., Page],
) -> None:
    line = "A line of an answer.\n\n"
    page = label({"response_a": line * 40, "response_b": line * 120})
    share = "(side) => { const p = document.getElementById(`pane-${side}`);"
    share += " return p.scrollTop / (p.scrollHeight - p.clientHeight); }"
    page.keyboard.press("Space")  # the focus is on the heading of the pair, as after a swap
    page.wait_for_timeout(50)
    left, right = (page.evaluate(share, side) for side in ("left", "right"))
    assert 0.05 < left < 0.9
    assert left == pytest.approx(right, abs=0.02)
    page.locator("[data-toggle=linked]").focus()
    page.keyboard.press("End")
    page.wait_for_timeout(50)
    assert [page.evaluate(share, side) for side in ("left", "right")] == pytest.approx([1, 1])
    toggle(page, "linked", "l")
    page.locator("#pane-left").hover()
    page.mouse.wheel(0, -20_000)
    page.wait_for_timeout(100)
    assert page.evaluate(share, "left") == 0
    assert page.evaluate(share, "right") == pytest.approx(1)
    shot(page, "unlinked")
    assert page.evaluate("scrollY") == 0  # prompt and bar never moved


def test_a_conversation_opens_at_its_last_turn_with_the_system_prompt_folded(
    label: Callable[..., Page],
) -> None:
    turns = [{"role": "system", "content": "Be brief."}]
    for n in range(8):
        turns.append({"role": "user", "content": f"Question {n}?"})
        turns.append({"role": "assistant", "content": f"Answer {n}.\n\nAnd more of it."})
    turns.append({"role": "user", "content": "The last question?"})
    tool = [
        {"role": "assistant", "content": "Let me look."},
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": "Three."},
    ]
    page = label({"prompt": turns, "response_a": tool, "response_b": "I do not know."})
    expect(page.get_by_text("The last question?")).to_be_in_viewport()
    expect(page.get_by_text("Question 0?")).not_to_be_in_viewport()
    expect(page.get_by_text("Be brief.")).to_be_hidden()
    page.get_by_text("System prompt").click()
    expect(page.get_by_text("Be brief.")).to_be_visible()
    long = page.locator(".pane", has_text="Let me look.")
    assert long.locator(".who").all_text_contents() == ["Assistant", "User", "Assistant"]
    shot(page, "conversation")


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_hostile_answers_are_read_and_do_nothing(label: Callable[..., Page], phone: bool) -> None:
    ugly = "\n\n".join([model_texts.STACKED_MARKS, model_texts.NESTED, model_texts.DEEP_FORMULA])
    page = label(
        {"response_a": model_texts.HOSTILE, "response_b": model_texts.WIDE + ugly}, phone=phone
    )
    expect(page.locator(".math:not(.typeset, .broken)")).to_have_count(0)
    for side in ("left", "right"):
        if phone:
            page.locator(f"#tab-{side}").tap()
        shot(page, f"hostile-{side}-{'phone' if phone else 'desktop'}")
        assert fits(page)
        page.locator("[data-toggle=raw]").click()
        assert fits(page)
        page.locator("[data-toggle=raw]").click()
    assert (
        page.locator("#pair :is(script, img, iframe, object, style, input[name=password])").count()
        == 0
    )
    assert (
        page.locator("form").count()
        == page.locator("form:visible, form[hidden], form.sign-out").count()
    )
    source = page.evaluate(
        "[...document.querySelectorAll('template[data-raw]')].map((t) => t.content.textContent)"
    )
    assert model_texts.HOSTILE in source  # character by character, with its </template>
    broken = page.locator(".math.broken").all_text_contents()
    assert {r"\href{javascript:alert(8)}{x}", r"\notacommand{x}", r"\frac{1}{"} <= set(broken)
    page.get_by_role("button", name="Tie").click()  # nothing lies over the bar
    expect(page.locator('[data-nothing="yours_done"]')).to_be_visible()


def test_on_a_phone_each_answer_keeps_its_own_place(label: Callable[..., Page]) -> None:
    page = label({"response_a": "Word.\n\n" * 90, "response_b": "Term.\n\n" * 90}, phone=True)
    page.evaluate("scrollTo(0, 1500)")
    page.locator("#tab-right").tap()
    expect(page.locator("#pane-right h2 + .turn p").first).to_be_in_viewport()
    page.evaluate("scrollTo(0, 700)")
    swipe(page, 80, 330)
    expect(page.locator("#tab-left")).to_have_attribute("aria-selected", "true")
    assert page.evaluate("scrollY") == 1500
    swipe(page, 330, 80)
    expect(page.locator("#tab-right")).to_have_attribute("aria-selected", "true")
    assert page.evaluate("scrollY") == 700


def test_formulas_of_the_next_pair_are_typeset_when_it_is_painted(
    label: Callable[..., Page],
) -> None:
    page = label(MATHS, {**MATHS, "prompt": "Again: $x^2$?"})
    expect(page.locator(".katex").first).to_be_visible()
    page.evaluate("""() => {
        window.seen = null;
        document.addEventListener("htmx:afterSwap", () => requestAnimationFrame(() => {
            window.seen ??= document.querySelectorAll(".math:not(.typeset)").length;
        }));
    }""")
    page.keyboard.press("t")
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    assert page.evaluate("window.seen") == 0
    assert json.dumps(page.locator("#announce").text_content()) == '"Pair 2 today"'


def test_without_script_formulas_can_be_read_and_no_tool_is_shown(
    live_server, open_page: Callable[..., Page], sign_in, label: Callable[..., Page]
) -> None:
    page = label(MATHS)
    plain = open_page(java_script_enabled=False)
    sign_in(plain, "ana")
    plain.goto(page.url)
    expect(plain.locator(".math").first).to_have_text("x e^{-x^2}")
    expect(plain.locator("[data-pane-tools]")).to_be_hidden()
    expect(plain.locator("#pane-left, #pane-right")).to_have_count(2)
