"""Answers that need more than one key, and answers that cannot be delivered at once."""

import re

import pytest
from playwright.sync_api import Page, expect

from apps.accounts.models import Project, Role, User
from apps.labeling import services
from apps.labeling.models import Response, Slot, Vote
from tests.browser.test_labeling import (
    label_open,
    no_serious_violation,
    open_both,
    press_and_wait,
    project,
    shot,
)
from tests.labeling.pairs import lapse
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
__all__ = ["project"]

WHOLE = {
    "criteria": [
        {"key": "correct", "label": "Correct"},
        {"key": "clear", "label": "Clear"},
        {"key": "safe", "label": "Safe"},
    ],
    "require_criteria": True,
    "show_rationale": True,
    "require_rationale": True,
    "show_strength": True,
    "show_improve": True,
}


def asks(project: Project, **settings: object) -> None:
    services.labeling_settings_update(
        project=project, by=User.objects.get(username="ada"), **settings
    )


def waiting(page: Page) -> int:
    return page.evaluate(
        "Object.keys(localStorage).filter((key) => key.startsWith('concord.outbox')).length"
    )


def drafts(page: Page) -> int:
    return page.evaluate(
        "Object.keys(localStorage).filter((key) => key.startsWith('concord.draft')).length"
    )


def test_a_whole_answer_is_filled_and_submitted_by_keyboard_alone(
    live_server, open_page, sign_in, project: Project
) -> None:
    asks(project, **WHOLE)
    page = open_page()
    sign_in(page, "ana")
    label_open(live_server, page)
    no_serious_violation(page, "answer-1")
    page.keyboard.press("Shift+1")
    need = page.locator("[data-need]")
    expect(need).to_have_text("Judge “Correct” too.")
    page.keyboard.press("1")
    page.keyboard.press("t")
    shot(page, "answer-2")
    page.keyboard.press("2")
    expect(need).to_contain_text("Say why")
    page.keyboard.press("Enter")  # still missing: nothing is sent
    page.keyboard.press("3")
    expect(page.get_by_role("checkbox", name="Clear")).to_be_checked()
    expect(need).to_be_hidden()
    page.keyboard.press("i")
    editor = page.locator("#improvement")
    expect(editor).to_be_focused()
    written = editor.input_value()
    assert written
    page.keyboard.press("Control+End")
    page.keyboard.type(" More exactly so.")
    no_serious_violation(page, "answer-3")
    assert not Vote.objects.exists()
    press_and_wait(page, "Control+Enter", "Pair 2")
    stored = Vote.objects.get()
    assert (stored.choice, stored.strength) == (stored.left_is, 2)
    right = "b" if stored.left_is == "a" else "a"
    assert stored.criteria == {"correct": stored.left_is, "clear": "tie", "safe": right}
    assert stored.reasons == ["Clear"]
    assert stored.improvement.messages[-1]["content"] == f"{written} More exactly so.".strip()
    assert stored.improvement.origin == Response.Origin.EDIT
    assert drafts(page) == waiting(page) == 0


def test_a_whole_answer_is_filled_on_a_phone(
    live_server, open_page, sign_in, project: Project
) -> None:
    asks(project, **WHOLE)
    page = open_page(phone=True)
    sign_in(page, "ana")
    label_open(live_server, page)
    no_serious_violation(page, "answer-phone-1")
    rows = page.get_by_role("link", name="0 of 3 criteria (required) · Why? (required)")
    rows.tap()
    expect(page.get_by_role("group", name="Correct")).to_be_in_viewport()
    page.get_by_role("button", name="B is better").tap()
    expect(page.locator("#pane-right")).to_be_visible()
    assert page.get_by_role("button", name="B is better").get_attribute("aria-pressed") == "false"
    page.get_by_role("button", name="B is better").tap()
    expect(page.locator("[data-need]")).to_have_text("Judge “Correct” too.")
    shot(page, "answer-phone-2")
    for name in ("Correct", "Clear", "Safe"):
        page.get_by_role("group", name=name).get_by_role("radio", name="Tie").check()
    expect(page.locator("[data-criteria-set]")).to_have_text("3 of 3 criteria")
    page.get_by_role("checkbox", name="To the point").check()
    shot(page, "answer-phone-3")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Submit").tap()
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    stored = Vote.objects.get()
    assert (stored.reasons, set(stored.criteria.values())) == (["To the point"], {"tie"})


@pytest.mark.parametrize("phone", [False, True], ids=["desktop-dark", "phone-light"])
def test_a_session_by_mouse_with_a_broken_line_and_a_lapsed_lease(
    live_server, open_page, sign_in, project: Project, phone: bool
) -> None:
    page = open_page(phone=phone, dark=not phone)
    sign_in(page, "ana")
    label_open(live_server, page)
    open_both(page)
    page.get_by_text("Flag, note").click()
    page.get_by_label("Prompt unclear").check()
    page.get_by_role("button", name="A is better").dblclick()  # the second click judges nothing
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    page.wait_for_timeout(700)
    assert Vote.objects.get().flags == ["prompt_unclear"]

    page.context.set_offline(True)  # the line breaks, and the page is loaded again when it is back
    open_both(page)
    page.get_by_role("button", name="Tie").click()
    expect(page.locator("[data-undelivered]")).to_contain_text("1 answer is kept")
    shot(page, f"session-offline-{'phone' if phone else 'desktop'}")
    page.context.set_offline(False)
    page.reload()  # a try that fails is made again after 2 s, then 4
    expect(page.locator("#pair-title")).to_contain_text("Pair 3", timeout=20_000)
    assert list(Vote.objects.order_by("pk").values_list("choice", flat=True))[1:] == ["tie"]

    lapse(Slot.objects.get(state="leased").pk)  # nobody else took it: the answer counts
    page.wait_for_timeout(300)
    open_both(page)
    page.get_by_role("button", name="Both are bad").click()
    expect(page.locator("#pair-title")).to_contain_text("Pair 4")
    assert Vote.objects.count() == 3

    page.wait_for_timeout(300)
    page.get_by_text("Skip", exact=True).click()
    page.get_by_role("button", name="Not my subject").click()
    page.wait_for_timeout(300)
    expect(page.locator("[data-undo]")).to_have_attribute("href", re.compile("unskip="))
    page.get_by_role("link", name="Undo").click()
    expect(page.locator("[data-undo]")).to_have_attribute("href", re.compile("answer="))
    page.get_by_role("link", name="Undo").click()
    expect(page.locator("#pair-title")).to_have_text("Change your answer")
    page.wait_for_timeout(300)
    shot(page, f"session-undo-{'phone' if phone else 'desktop'}")
    page.get_by_role("button", name="Withdraw answer").click()
    expect(page.get_by_text("Your answer was withdrawn")).to_be_visible()
    assert Vote.objects.filter(is_current=True).count() == 2
    assert drafts(page) == waiting(page) == 0


def test_what_was_entered_survives_a_reload_and_can_be_discarded(
    live_server, open_page, sign_in, project: Project
) -> None:
    asks(project, **WHOLE)
    page = open_page()
    sign_in(page, "ana")
    label_open(live_server, page)
    page.keyboard.press("2")
    page.keyboard.press("1")
    page.locator("#rationale").fill("half a thought")
    page.get_by_text("Flag", exact=True).click()
    page.get_by_label("Unsafe content").check()
    page.reload()
    expect(page.get_by_text("What you had entered here is back")).to_be_visible()
    shot(page, "draft")
    expect(page.get_by_role("button", name="B is better")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#rationale")).to_have_value("half a thought")
    assert page.locator("input[name=flags]:checked, .criterion input:checked").count() == 2
    page.get_by_role("button", name="Discard").click()
    expect(page.locator("#rationale")).to_have_value("")
    page.reload()
    expect(page.locator("[data-restored]")).to_be_hidden()
    assert drafts(page) == 0


def test_an_answer_of_a_closed_tab_is_delivered_from_another_page(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page()
    sign_in(page, "ana")
    label_open(live_server, page)
    page.context.set_offline(True)
    page.keyboard.press("1")
    expect(page.locator("[data-undelivered]")).to_have_attribute("data-kept", "browser")
    assert not Vote.objects.exists()
    page.context.set_offline(False)
    other = page.context.new_page()
    page.close()
    other.goto(f"{live_server.url}/p/arguments/guidelines/")
    expect(other.locator("[data-undelivered]")).to_have_count(0)
    other.wait_for_function("!Object.keys(localStorage).some((k) => k.includes('outbox'))")
    assert Vote.objects.count() == 1


def test_a_pair_that_another_page_has_delivered_meanwhile_gives_way_to_the_next(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page()
    sign_in(page, "ana")
    label_open(live_server, page)
    page.context.set_offline(True)
    page.keyboard.press("1")
    expect(page.locator("[data-undelivered]")).to_contain_text("1 answer is kept")
    page.add_init_script(  # while this page sends it, another takes it off the list
        """const send = window.fetch;
        window.fetch = async (...request) => {
          const answer = await send(...request);
          if (String(request[0]).includes("/vote/")) localStorage.clear();
          return answer;
        };"""
    )
    page.context.set_offline(False)
    page.reload()
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    assert Vote.objects.count() == 1


def test_an_answer_waits_for_its_person_through_a_sign_out(
    live_server, open_page, sign_in, project: Project
) -> None:
    person_make("Ben", project, Role.ANNOTATOR)
    page = open_page()
    sign_in(page, "ana")
    label_open(live_server, page)
    page.locator("[data-extra=note] summary").click()
    page.locator("#rationale").fill("said before")
    page.keyboard.press("Escape")
    page.context.clear_cookies(name=_session_name(page))
    page.get_by_role("button", name="Tie").click()
    expect(page.locator("[data-undelivered]")).to_have_attribute("data-undelivered", "signed-out")
    shot(page, "signed-out")
    assert page.locator("#rationale").input_value() == "said before"

    sign_in(page, "ben")  # not his answer: it is neither shown nor sent
    page.goto(f"{live_server.url}/p/arguments/answers/")
    expect(page.get_by_role("heading", name="You have not answered a pair yet")).to_be_visible()
    page.wait_for_timeout(300)
    assert page.locator("[data-undelivered]").count() == 0
    assert not Vote.objects.exists()

    page.context.clear_cookies()
    sign_in(page, "ana")
    label_open(live_server, page)
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    stored = Vote.objects.get()
    assert (stored.annotator.username, stored.rationale) == ("ana", "said before")
    assert drafts(page) == waiting(page) == 0


def test_a_second_tab_moves_on_when_its_pair_was_answered_in_the_first(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page()
    sign_in(page, "ana")
    label_open(live_server, page)
    second = page.context.new_page()
    label_open(live_server, second)
    expect(second.locator("#pair-title")).to_contain_text("Pair 1")
    page.bring_to_front()
    page.keyboard.press("1")
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    expect(second.locator("#pair-title")).to_contain_text("Pair 2")
    second.reload()
    expect(second.locator("#pair-title")).to_contain_text("Pair 2")
    assert Vote.objects.count() == 1


def test_a_failing_server_and_a_token_that_signing_in_has_changed_lose_no_answer(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page()
    sign_in(page, "ana")
    label_open(live_server, page)
    failures = []

    def fail_once(route) -> None:
        failures.append(route.request.method)
        route.fulfill(status=503, body="down") if len(failures) == 1 else route.continue_()

    page.route("**/label/vote/", fail_once)
    page.keyboard.press("1")
    expect(page.locator("[data-undelivered]")).to_have_attribute("data-undelivered", "server")
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    assert failures == ["POST", "POST"]

    other = page.context.new_page()  # signs out and in again, in another tab
    other.goto(f"{live_server.url}/p/arguments/label/")
    other.get_by_role("button", name="Sign out").click()
    sign_in(other, "ana")
    page.bring_to_front()
    press_and_wait(page, "2", "Pair 3")
    assert Vote.objects.count() == 2


def test_what_a_full_storage_cannot_keep_is_still_sent_from_the_page(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page()
    page.add_init_script(
        "localStorage.__proto__.setItem = function (name, value) {"
        " if (this === localStorage) throw new DOMException('', 'QuotaExceededError'); }"
    )
    sign_in(page, "ana")
    label_open(live_server, page)
    page.context.set_offline(True)
    page.keyboard.press("x")
    expect(page.locator("[data-undelivered]")).to_have_attribute("data-kept", "page")
    page.context.set_offline(False)
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    assert Vote.objects.count() == 1


def _session_name(page: Page) -> str:
    return next(c["name"] for c in page.context.cookies() if "session" in c["name"])


def test_an_answer_to_a_pair_that_others_have_now_is_refused_plainly_and_its_text_kept(
    live_server, open_page, sign_in, project: Project
) -> None:
    ben = person_make("Ben", project, Role.ANNOTATOR)
    page = open_page()
    sign_in(page, "ana")
    label_open(live_server, page)
    slot = Slot.objects.get(state="leased")
    page.locator("[data-extra=note] summary").click()
    page.locator("#rationale").fill("words worth keeping")
    page.keyboard.press("Escape")
    lapse(slot.pk)
    lease = services.slot_lease_next(project=project, annotator=ben)
    services.vote_cast(slot=lease.slot, annotator=ben, idempotency_key=lease.key, side="left")
    assert lease.slot == slot.pk
    page.get_by_role("button", name="Both are bad").click()
    refused = page.locator("[data-refused]")
    expect(page.get_by_text("It does not count against you.")).to_be_visible()
    shot(page, "lease-lost")
    kept = refused.get_by_role("button", name="Copy what you wrote")
    expect(kept).to_have_attribute("data-copy", "words worth keeping")
    refused.get_by_role("button", name="Dismiss").click()
    expect(refused).to_have_count(0)
    assert Vote.objects.get().annotator == ben


def test_an_answer_that_lacks_what_is_asked_by_now_comes_back_to_be_completed(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page()
    sign_in(page, "ana")
    label_open(live_server, page)
    page.locator("[data-extra=note] summary").click()
    page.locator("#rationale").fill("written before the change")
    page.keyboard.press("Escape")
    page.context.set_offline(True)
    page.get_by_role("button", name="Tie").click()
    expect(page.locator("[data-undelivered]")).to_be_visible()
    asks(project, criteria=WHOLE["criteria"], require_criteria=True)
    page.context.set_offline(False)
    expect(page.locator("[data-refused]")).to_contain_text("Judge “Correct” too.")
    expect(page.get_by_role("group", name="Correct")).to_be_visible()
    expect(page.locator("#rationale")).to_have_value("written before the change")
    assert not Vote.objects.exists()


def test_digits_work_on_a_keyboard_that_needs_shift_for_them(
    live_server, open_page, sign_in, project: Project
) -> None:
    asks(project, show_strength=True)
    page = open_page()
    sign_in(page, "ana")
    label_open(live_server, page)
    press = """([key, code, shiftKey]) => document.activeElement.dispatchEvent(
        new KeyboardEvent("keydown", {key, code, shiftKey, bubbles: true, cancelable: true}))"""
    page.evaluate(press, ["é", "Digit2", False])  # French, without Shift
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    page.wait_for_timeout(300)
    page.evaluate(press, ["1", "Digit1", True])  # French, with Shift: much better
    expect(page.locator("#pair-title")).to_contain_text("Pair 3")
    first, second = Vote.objects.order_by("pk")
    assert (first.strength, second.strength) == (1, 2)
    assert first.choice != first.left_is
    assert second.choice == second.left_is


def test_enter_in_a_row_never_presses_the_first_button(
    live_server, open_page, sign_in, project: Project
) -> None:
    asks(project, criteria=WHOLE["criteria"])  # offered, not required
    page = open_page()
    sign_in(page, "ana")
    label_open(live_server, page)
    page.keyboard.press("c")
    page.keyboard.press("2")
    page.keyboard.press("Enter")
    expect(page.locator("[data-need]")).to_contain_text("Choose first")
    page.wait_for_timeout(200)
    assert not Vote.objects.exists()
    press_and_wait(page, "x", "Pair 2")
    assert len(Vote.objects.get().criteria) == 1
