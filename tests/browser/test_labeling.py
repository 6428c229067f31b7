"""Labeling as people do it: by keyboard, by mouse, on a phone, offline, and what Ada sees then."""

import gzip
import json
import os
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.utils import timezone
from playwright.sync_api import Page, expect

from apps.accounts.models import Membership, Project, Role, User
from apps.labeling import services
from apps.labeling.models import Comparison, Decision, LabelingSettings, Response, Slot, Vote
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SETTLED = 300  # ms after a swap in which keys are ignored
LONG = """\
Three things decide it:

1. **Cost.** Bottled water costs about 500 times as much as tap water, and the price is mostly \
plastic and transport.
2. **Waste.** Most bottles are not recycled.
3. **Safety.** Tap water is tested more often.

```python
price_per_litre = {"tap": 0.002, "bottle": 1.0}
```

| | tap | bottle |
|---|---:|---:|
| price | 0.002 | 1.00 |
| tested | daily | weekly |

> So the ban is not about the economy; it is about who pays.
"""


def shot(page: Page, name: str) -> None:
    """Keep a picture where SCREENSHOTS says, for people to look at."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"label-{name}.png", caret="initial")


@pytest.fixture
def project() -> Project:
    """Real arguments with one vote per pair, and a first pair with every kind of text."""
    project = Project.objects.create(slug="arguments", name="Arguments")
    ada = person_make("Ada", project, Role.ADMIN)
    person_make("Ana", project, Role.ANNOTATOR)
    services.labeling_set_up(project=project, by=ada)
    services.labeling_settings_update(
        project=project,
        by=ada,
        overlap=1,
        max_overlap=1,
        least_votes=1,
        least_agreeing=1,
    )
    # By priority, or nearly always: the pair with every kind of text comes first.
    LabelingSettings.objects.update(random_share=1e-9)
    with gzip.open(settings.BASE_DIR / "data/comparisons.jsonl.gz", "rt") as lines:
        rows = [json.loads(next(lines)) for _ in range(40)]
    services.comparisons_import(
        project=project,
        rows=[
            {"id": r["item"], "topic": r["debate"]}
            | {name: r[name] for name in ("prompt", "response_a", "response_b")}
            for r in rows[2::3]
        ]
        + [
            {
                "id": "long",
                "prompt": [
                    {"role": "user", "content": "Should plastic water bottles be banned?"},
                    {"role": "assistant", "content": "It depends on what you weigh."},
                    {"role": "user", "content": "Weigh cost, waste and safety."},
                ],
                "response_a": LONG,
                "response_b": "No. People need water when they travel, and a ban hits the poor.",
                "priority": 9,
            }
        ],
    )
    return project


def label_open(live_server, page: Page) -> None:
    page.goto(f"{live_server.url}/p/arguments/label/")
    expect(page.locator("#pair-title")).to_be_focused()
    page.wait_for_timeout(SETTLED)


def open_both(page: Page) -> None:
    """Where one answer is shown at a time nothing is chosen before."""
    tab = page.locator("#tab-right")
    if tab.is_visible():
        tab.click()
        page.locator("#pair-title").focus()


def press_and_wait(page: Page, key: str, title: str) -> None:
    open_both(page)
    page.keyboard.press(key)
    expect(page.locator("#pair-title")).to_contain_text(title)
    expect(page.locator("#pair-title")).to_be_focused()
    page.wait_for_timeout(SETTLED)


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


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_ana_labels_three_pairs_by_keyboard_and_ada_sees_the_decisions(
    live_server, open_page, sign_in, project: Project, phone: bool
) -> None:
    look = "phone" if phone else "desktop"
    page = open_page(phone=phone)
    sign_in(page, "ana")
    label_open(live_server, page)
    no_serious_violation(page, f"{look}-1")
    shown = page.locator("#pane-left .prose").text_content()
    press_and_wait(page, "1", "Pair 2")
    press_and_wait(page, "ArrowRight", "Pair 3")
    shot(page, f"{look}-2")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    press_and_wait(page, "t", "Pair 4")
    assert page.locator("#announce").text_content() == "Pair 4 today"
    cast = list(Vote.objects.order_by("id"))
    assert [vote.choice for vote in cast] == [
        cast[0].left_is,
        "b" if cast[1].left_is == "a" else "a",
        "tie",
    ]
    assert cast[0].chosen.messages[0]["content"].split()[:3] == shown.split()[:3]
    assert all(0 < vote.active_ms <= vote.wall_ms < 60_000 for vote in cast)

    adas = open_page(phone=phone)
    sign_in(adas, "ada")
    adas.goto(f"{live_server.url}/p/arguments/comparisons/?state=decided")
    expect(adas.locator(".count")).to_have_text("3 comparisons")
    no_serious_violation(adas, f"{look}-comparisons")
    adas.get_by_role("link", name=re.compile("^long$|^ukp")).first.click()
    expect(adas.locator("#decision")).to_contain_text(re.compile("is better|Tie"))
    expect(adas.get_by_text("the rule asks for 1 votes")).to_be_visible()
    no_serious_violation(adas, f"{look}-comparison")


def test_keys_are_ignored_while_typing_and_can_be_switched_off(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page()
    sign_in(page, "ana")
    label_open(live_server, page)
    page.keyboard.press("r")
    note = page.locator("#rationale")
    expect(note).to_be_focused()
    page.keyboard.type("a tie? 1 or 2, x")
    page.wait_for_timeout(100)
    assert not Vote.objects.exists()
    page.get_by_label("Names its model").check()
    shot(page, "notes")
    page.keyboard.press("Escape")
    press_and_wait(page, "b", "Pair 2")
    stored = Vote.objects.get()
    assert (stored.rationale, stored.flags) == ("a tie? 1 or 2, x", ["model_revealed"])

    page.keyboard.press("?")
    dialog = page.locator("#shortcuts")
    expect(dialog).to_be_visible()
    shot(page, "shortcuts")
    page.keyboard.press("1")  # behind an open dialog nothing is pressed
    dialog.get_by_label("Single-key shortcuts").uncheck()
    dialog.get_by_role("button", name="Close").click()
    page.keyboard.press("1")
    page.wait_for_timeout(200)
    assert Vote.objects.count() == 1


def test_a_held_key_and_a_hasty_second_press_do_not_judge_unseen_pairs(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page()
    sign_in(page, "ana")
    label_open(live_server, page)
    page.keyboard.down("1")
    for _ in range(5):
        page.keyboard.down("1")  # auto-repeat
    page.keyboard.up("1")
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    page.keyboard.press("1")
    page.wait_for_timeout(SETTLED)
    assert Vote.objects.count() == 1


def test_undo_skip_and_guidelines_by_keyboard(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page()
    sign_in(page, "ana")
    label_open(live_server, page)
    press_and_wait(page, "x", "Pair 2")
    page.keyboard.press("z")
    expect(page.locator("#pair-title")).to_have_text("Change your answer")
    expect(page.get_by_role("button", name="Both are bad")).to_have_attribute(
        "aria-pressed", "true"
    )
    page.wait_for_timeout(SETTLED)
    no_serious_violation(page, "undo")
    press_and_wait(page, "2", "Pair 2")
    assert [v.choice == "both_bad" for v in Vote.objects.order_by("id")] == [True, False]
    expect(page.get_by_text("Your answer was changed.")).to_be_visible()

    before = page.locator("#answer-form input[name=slot]").input_value()
    page.keyboard.press("s")
    expect(page.get_by_role("button", name="Not my subject")).to_be_focused()
    shot(page, "skip")
    page.keyboard.press("2")
    expect(page.locator("#answer-form input[name=slot]")).not_to_have_value(before)
    assert Comparison.objects.get(slots=before).skips.get().reason == "Prompt is unclear"

    page.keyboard.press("g")
    expect(page.get_by_text("Correct beats polished.")).to_be_visible()
    page.wait_for_timeout(100)
    shot(page, "guidelines")
    no_serious_violation(page, "guidelines-beside")
    beside = page.locator("#guidelines").bounding_box()
    for pane in ("left", "right"):  # both answers stay in sight, and can be judged
        box = page.locator(f"#pane-{pane}").bounding_box()
        assert box["x"] + box["width"] <= beside["x"]
    press_and_wait(page, "1", "Pair 3")
    expect(page.get_by_text("Correct beats polished.")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_text("Correct beats polished.")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("g")
    expect(page.get_by_text("Correct beats polished.")).to_be_hidden()
    page.keyboard.press("p")
    expect(page.locator("[data-prompt]")).not_to_have_attribute("open", "")


def test_on_a_phone_one_answer_is_shown_at_a_time(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page(phone=True)
    sign_in(page, "ana")
    label_open(live_server, page)
    left, right = page.locator("#pane-left"), page.locator("#pane-right")
    expect(left).to_be_visible()
    expect(right).to_be_hidden()
    page.wait_for_timeout(SETTLED)
    for name in ("Both are bad", "B is better"):  # nothing is chosen before both were open
        page.get_by_role("tab", name="Answer A").tap()
        page.reload()
        page.wait_for_timeout(SETTLED)
        page.get_by_role("button", name=name).tap()
        expect(right).to_be_visible()
    page.wait_for_timeout(SETTLED)
    assert not Vote.objects.exists()
    page.get_by_role("tab", name="Answer A").tap()
    page.get_by_role("tab", name="Answer B").tap()
    expect(right).to_be_visible()
    expect(left).to_be_hidden()
    shot(page, "phone-b")
    page.get_by_role("button", name="A is better").tap()
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    expect(left).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_prompt_and_bar_stay_in_sight_beside_a_long_answer(
    live_server, open_page, sign_in, project: Project, phone: bool
) -> None:
    services.labeling_settings_update(
        project=project, by=User.objects.get(username="ada"), show_strength=True
    )
    Response.objects.filter(brief__0__content__startswith="Three").update(
        brief=[{"role": "assistant", "content": "\n\n".join([LONG] * 6)}]
    )
    page = open_page(phone=phone)
    sign_in(page, "ana")
    label_open(live_server, page)
    if phone and "Three" not in page.locator("#pane-left").text_content():
        page.get_by_role("tab", name="Answer B").tap()
    if phone:  # one answer at a time: the page scrolls; beside each other each has its own pane
        page.evaluate("scrollTo(0, 900)")
        assert page.evaluate("scrollY") > 500
    else:
        long = page.locator(".pane", has_text="Three things").first
        long.evaluate("pane => pane.scrollTo(0, 900)")
        assert long.evaluate("pane => pane.scrollTop") > 500
    height = page.viewport_size["height"]
    prompt, bar = (page.locator(name).bounding_box() for name in (".prompt", ".bar"))
    assert prompt["y"] >= 0
    assert bar["y"] + bar["height"] <= height
    assert prompt["y"] + prompt["height"] < bar["y"] - 100
    if phone:  # the other answer is one tap away, wherever one is in this one
        expect(page.get_by_role("tab", name="Answer A")).to_be_in_viewport()
    shot(page, f"long-{'phone' if phone else 'desktop'}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for tab in page.get_by_role("tab").all():  # on a phone nothing is chosen before
        tab.click()
    page.locator("#pair-title").focus()
    page.keyboard.press("Shift+2")
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    assert Vote.objects.get().strength == 2


def test_a_reader_keeps_the_pair_and_is_told_when_time_runs_out(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page()
    page.clock.install()
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/p/arguments/label/")
    page.clock.fast_forward("08:00")
    with page.expect_request("**/label/hold/") as held:  # still reading after eight minutes
        page.mouse.move(300, 300)
        page.mouse.move(310, 310)
        page.clock.run_for(2000)
    assert held.value.method == "POST"
    expect(page.locator("[data-lease]")).to_be_hidden()
    Slot.objects.filter(state="leased").update(leased_until=timezone.now() + timedelta(seconds=90))
    page.clock.fast_forward("14:00")  # nobody there: no more prolonging
    page.clock.run_for(2000)
    expect(page.locator("[data-lease]")).to_be_visible()


def test_an_answer_given_offline_is_delivered_once_the_line_is_back(
    live_server, open_page, sign_in, project: Project
) -> None:
    page = open_page()
    sign_in(page, "ana")
    label_open(live_server, page)
    page.context.set_offline(True)
    page.keyboard.press("1")
    expect(page.locator("[data-undelivered]")).to_contain_text("Not delivered yet")
    shot(page, "offline")
    assert not Vote.objects.exists()
    page.context.set_offline(False)
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    assert Vote.objects.count() == 1


def test_everything_done_is_said_with_pleasure(
    live_server, open_page, sign_in, project: Project
) -> None:
    ana = User.objects.get(username="ana")
    while isinstance(
        lease := services.slot_lease_next(project=project, annotator=ana), services.Lease
    ):
        services.vote_cast(
            slot=lease.slot,
            annotator=ana,
            idempotency_key=lease.key,
            side="left",
            lease_next=False,
        )
    page = open_page()
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/p/arguments/label/")
    expect(page.locator("#pair-title")).to_have_text("Everything is labeled!")
    no_serious_violation(page, "done")
    page.get_by_role("link", name="My answers").last.click()
    expect(page.locator(".count")).to_have_text("14 answers")
    no_serious_violation(page, "answers")
    assert Decision.objects.filter(outcome="accepted").count() == 14


def test_ada_changes_the_rule_and_hears_what_is_wrong_with_hers(
    live_server, open_page, sign_in, project: Project
) -> None:
    LabelingSettings.objects.update(random_share=0.2)
    page = open_page()
    sign_in(page, "ada")
    page.goto(f"{live_server.url}/p/arguments/settings/")
    page.get_by_label("Minimum votes").fill("4")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#id_max_overlap_error")).to_be_visible()
    expect(page.get_by_label("Minimum votes")).to_have_value("4")
    page.get_by_label("Maximum votes per comparison").fill("5")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    no_serious_violation(page, "settings")
    assert Membership.objects.get(user__username="ada").role == Role.ADMIN


def test_without_script_a_whole_pair_can_be_labeled(
    live_server, open_page: Callable[..., Page], sign_in, project: Project
) -> None:
    page = open_page(java_script_enabled=False)
    sign_in(page, "ana")
    page.goto(f"{live_server.url}/p/arguments/label/")
    page.get_by_role("button", name="A is better").click()
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    page.get_by_text("Skip", exact=True).click()
    page.get_by_role("button", name="Not my subject").click()
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
    expect(page.locator("[data-undo]")).to_have_attribute("href", re.compile("unskip="))
    page.get_by_role("link", name="Undo").click()
    expect(page.locator("[data-undo]")).to_have_attribute("href", re.compile("answer="))
    page.get_by_role("link", name="Undo").click()
    page.get_by_role("button", name="Tie").click()
    expect(page.get_by_text("Your answer was changed.")).to_be_visible()
    assert Vote.objects.get(is_current=True).choice == "tie"


@pytest.mark.parametrize(("width", "height"), [(700, 450), (350, 225)])  # 200 % and 400 % zoom
def test_a_low_window_leaves_the_answers_readable(
    live_server, open_page, sign_in, project: Project, width: int, height: int
) -> None:
    page = open_page()
    sign_in(page, "ana")
    page.set_viewport_size({"width": width, "height": height})
    label_open(live_server, page)
    page.locator(".pane:visible").first.scroll_into_view_if_needed()
    shot(page, f"zoom-{width}")
    choices = page.locator(".choices").bounding_box()
    assert choices["y"] + choices["height"] <= height + 1  # in sight
    above = page.evaluate("""() => [...document.elementsFromPoint(20, 1)].some(
        (one) => ["fixed", "sticky"].includes(getComputedStyle(one).position))""")
    assert not above  # nothing else stays
    assert choices["y"] >= 0.7 * height
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    open_both(page)
    page.keyboard.press("2")
    expect(page.locator("#pair-title")).to_contain_text("Pair 2")
