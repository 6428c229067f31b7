"""The frame in a browser: accessible, at home on a phone, themed, quick to the keyboard."""

import os
import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.utils import timezone
from playwright.sync_api import Page, expect

from apps.accounts.models import Project, Role
from apps.training.models import Alert, Checkpoint, Sample
from tests.people import person_make
from tests.web.world import event_add, metrics_add, run_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PAGES = (
    "/account/",
    "/api/v1/docs",
    "/projects/",
    "/projects/new/",
    "/p/arguments/project/",
    "/p/arguments/people/",
    "/p/arguments/people/{ada}/",
    "/p/arguments/audit-log/",
    "/p/arguments/runs/",
    "/p/arguments/runs/?q=nothing",
    "/p/arguments/runs/new/",
    "/p/arguments/runs/new/ppo/",
    "/p/arguments/runs/{run}/",
    "/p/arguments/runs/{run}/?tab=charts",
    "/p/arguments/runs/{run}/?tab=samples",
    "/p/arguments/runs/{run}/?tab=alerts",
    "/p/arguments/runs/{run}/?tab=checks",
    "/p/arguments/runs/{run}/?tab=config",
    "/p/arguments/runs/{run}/?tab=repeat",
    "/p/arguments/runs/{run}/?tab=logs",
    "/p/arguments/runs/{run}/?tab=lineage",
    "/p/arguments/runs/{run}/cancel/",
    "/p/arguments/models/",
    "/p/arguments/models/{model}/",
    "/p/nowhere/",
)


def shot(page: Page, name: str) -> None:
    """Keep a picture where SCREENSHOTS says, for people to look at."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"frame-{name}.png", full_page=True)


@pytest.fixture
def names() -> dict[str, str]:
    """A project with a failed run that left one of everything; what the addresses name."""
    project = Project.objects.create(slug="arguments", name="Arguments with a rather long name")
    ada = person_make("Ada", project, Role.ADMIN)
    run = run_make(
        project,
        by=ada,
        state="failed",
        fault="machine",
        failure_kind="out_of_memory",
        failure_message="The machine ran out of memory at step 40.",
    )
    metrics_add(run, 1, [1, 2, 3], objective__kl=[0.1, 0.4, 12.0], loss=[0.5, "nan", 0.4])
    event_add(run, 2, "Log", {"lines": ["step 1", "warning: low memory"], "level": "warning"})
    common = {"run": run, "attempt": 1, "step": 3}
    Alert.objects.create(
        **common,
        seq=3,
        rule="objective/kl",
        severity="critical",
        message="KL is over 10 nats per sequence",
        value=12.0,
        threshold=10.0,
        raised_at=timezone.now(),
    )
    Sample.objects.create(
        **common,
        seq=4,
        bucket="high",
        prompt=[{"role": "user", "content": "Why?"}],
        response="Because of " + "averyverylongword" * 12,
        baseline="Because.",
        reward=1.25,
        kl=3.0,
        tokens=9,
    )
    model = Checkpoint.objects.create(
        project=project, **common, uri="runs/x", sha256="0" * 64, tags=["best"], metrics={"a": 1.0}
    )
    return {"run": run.pk, "model": model.pk, "ada": str(ada.pk)}


def violations(page: Page, *rules: str) -> list[tuple[str, str, list[str]]]:
    """Serious and critical ones, of all rules or of these."""
    options = {"runOnly": list(rules)} if rules else None
    found = Axe().run(page, options=options).response["violations"]
    return [
        (v["id"], v["help"], [node["html"][:160] for node in v["nodes"][:3]])
        for v in found
        if v["impact"] in ("serious", "critical")
    ]


def test_no_page_has_a_serious_accessibility_fault_in_either_theme(
    live_server, open_page, sign_in, names
) -> None:
    page = open_page()
    page.goto(f"{live_server.url}/sign-in/")
    assert not violations(page)
    sign_in(page, "ada")
    found = {}
    for template in PAGES:
        page.goto(live_server.url + template.format(**names))
        page.emulate_media(color_scheme="light")
        found[template, "light"] = violations(page)
        page.emulate_media(color_scheme="dark")  # only its colours are other ones
        found[template, "dark"] = violations(page, "color-contrast")
    assert not {place: faults for place, faults in found.items() if faults}


def test_no_page_is_wider_than_a_phone(live_server, open_page, sign_in, names) -> None:
    page = open_page(phone=True, dark=True)
    sign_in(page, "ada")
    for number, template in enumerate(PAGES):
        page.goto(live_server.url + template.format(**names))
        shot(page, f"phone-{number:02}")
        over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert over <= 0, (template, over)
    page.goto(live_server.url + "/p/arguments/runs/")
    bar = page.get_by_role("navigation", name="Tabs").bounding_box()
    assert bar["y"] + bar["height"] == pytest.approx(844, abs=1)  # at the bottom, above nothing


def test_the_theme_changes_at_once_and_stays(live_server, open_page, sign_in, names) -> None:
    page = open_page()
    sign_in(page, "ada")
    page.goto(live_server.url + "/account/")
    root = page.locator("html")
    button = page.get_by_role("button", name="Theme:")
    for theme in ("light", "dark"):
        with page.expect_response("**/account/theme/"):
            button.click()
        expect(root).to_have_attribute("data-theme", theme)
        expect(button).to_have_text(f"Theme: {theme}")
    page.reload()
    expect(root).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"


def test_a_question_mark_lists_the_shortcuts_and_a_slash_finds_the_search(
    live_server, open_page, sign_in, names
) -> None:
    page = open_page()
    sign_in(page, "ada")
    page.goto(live_server.url + "/p/arguments/runs/")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.type("warm?")
    expect(dialog).not_to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"q=warm%3F"))


def test_the_first_tab_leads_past_the_rail(live_server, open_page, sign_in, names) -> None:
    page = open_page()
    sign_in(page, "ada")
    page.goto(live_server.url + "/p/arguments/runs/")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_everything_needed_works_without_javascript(live_server, open_page, sign_in, names) -> None:
    page = open_page(java_script_enabled=False)
    sign_in(page, "ada")
    page.goto(f"{live_server.url}/p/arguments/runs/{names['run']}/")
    page.get_by_role("link", name="Alerts").click()
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.get_by_text("Ada, just now")).to_be_visible()
    page.get_by_role("link", name="Charts").click()
    expect(page.get_by_role("row", name="objective/kl")).to_contain_text("12.0")
    page.get_by_role("link", name="Runs", exact=True).first.click()
    page.get_by_label("State").select_option("finished")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("No matching runs")).to_be_visible()
    page.get_by_role("button", name="Theme: system").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password")).to_be_visible()
