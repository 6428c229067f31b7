"""Judging by keyboard: the inbox, the samples of a run, a blind sheet; readable everywhere."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, Role
from apps.evaluation.models import FlaggedAnswer, Verdict
from apps.evaluation.services.sheets import sheet_finish, sheet_make
from tests.browser.readable import readable
from tests.evaluation.audited import evaluation_make, flag, judge_all, sample_make
from tests.people import person_make
from tests.web.world import run_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


@pytest.fixture
def project() -> Project:
    project = Project.objects.create(slug="arguments", name="Arguments")
    for name, role in (("Rita", Role.REVIEWER), ("Ada", Role.ADMIN), ("Emil", Role.ENGINEER)):
        person_make(name, project, role)
    return project


def given() -> list[str]:
    return list(Verdict.objects.order_by("pk").values_list("value", flat=True))


def heading(page: Page, text: str) -> None:
    expect(page.get_by_role("heading", name=text, exact=True)).to_be_visible()


def test_the_inbox_is_judged_by_keyboard_alone(
    project: Project, open_page, sign_in, live_server
) -> None:
    run = run_make(project, kind="ppo", name="the policy")
    for word in ("One", "Two", "Three"):
        flag(run, f"{word}.", reason="rule length: the answer is short")
    one, two, three = FlaggedAnswer.objects.order_by("pk").values_list("pk", flat=True)
    page = open_page()
    sign_in(page, "rita")
    page.goto(f"{live_server.url}/p/arguments/inbox/")
    heading(page, f"Answer {three}")
    page.keyboard.press("j")
    heading(page, f"Answer {two}")
    page.keyboard.press("k")
    heading(page, f"Answer {three}")
    page.keyboard.press("3")
    heading(page, f"Answer {two}")
    page.keyboard.press("u")
    heading(page, f"Answer {three}")
    page.keyboard.press("2")
    heading(page, f"Answer {two}")
    assert given() == ["unsafe", "withdrawn", "bad"]
    page.locator("summary", has_text="Add a note").click()
    page.get_by_label("Note").fill("1 of 2")  # typing is no verdict, and Enter sends none
    page.get_by_label("Note").press("Enter")
    heading(page, f"Answer {two}")
    page.get_by_role("button", name="Fine").click()
    heading(page, f"Answer {one}")
    page.keyboard.press("4")
    expect(page.get_by_text("Nothing waits for a verdict")).to_be_visible()
    assert given()[3:] == ["fine", "wrong_reward"]
    assert Verdict.objects.get(value="fine").note == "1 of 2"


def test_samples_of_a_run_are_judged_card_by_card(
    project: Project, open_page, sign_in, live_server
) -> None:
    run = run_make(project, kind="ppo", state="finished", name="the policy")
    samples = [sample_make(run, number, reward=float(number)) for number in range(3)]
    page = open_page()
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/runs/{run.pk}/?tab=samples")
    page.keyboard.press("2")  # no card has the focus: nothing is judged
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("2")
    second = samples[1].pk  # the highest reward stands first
    expect(page.locator(f"#verdicts-{second} .given")).to_contain_text("Emil (you)")
    assert list(Verdict.objects.values_list("sample", "value")) == [(second, "bad")]
    readable(page, "samples")


def test_the_pages_are_readable_on_a_phone_and_in_the_dark(
    project: Project, open_page, sign_in, live_server
) -> None:
    run = run_make(project, kind="ppo", name="the policy")
    flag(run, "A longer answer. " * 40, reason="the members of the reward model disagree")
    evaluation = evaluation_make(project, 30)
    rita = project.memberships.get(user__username="rita").user
    done = sheet_make(project=project, run=evaluation, user=rita, n_random=8, n_baseline=3)
    judge_all(done, rita, list(done.items.values_list("pk", flat=True)[:5]))
    sheet_finish(sheet=done, user=rita)
    fresh = sheet_make(project=project, run=evaluation, user=rita, n_random=8)
    for phone in (False, True):
        page = open_page(phone=phone)
        sign_in(page, "ada")
        for name, path in (
            ("inbox", "inbox/"),
            ("sheets", "audit-sheets/"),
            ("new", "audit-sheets/new/"),
            ("open", f"audit-sheets/{fresh.pk}/"),
            ("judge", f"audit-sheets/{fresh.pk}/judge/"),
            ("result", f"audit-sheets/{done.pk}/"),
        ):
            page.goto(f"{live_server.url}/p/arguments/{path}")
            readable(page, f"{name}{'-phone' if phone else ''}")


def test_a_sheet_is_judged_by_keyboard(project: Project, open_page, sign_in, live_server) -> None:
    ada = project.memberships.get(user__username="ada").user
    made = sheet_make(
        project=project,
        run=evaluation_make(project, 20),
        user=ada,
        n_random=2,
        n_extreme=0,
        n_baseline=1,
    )
    page = open_page()
    sign_in(page, "rita")
    page.goto(f"{live_server.url}/p/arguments/audit-sheets/{made.pk}/")
    page.get_by_role("link", name="Judge", exact=True).click()
    page.wait_for_url("**/judge/")
    for number, key in enumerate("12", start=1):
        page.keyboard.press(key)
        expect(page.get_by_text(f"You have judged {number} of 3.")).to_be_visible()
    page.keyboard.press("u")
    expect(page.get_by_text("You have judged 1 of 3.")).to_be_visible()
    for number in (2, 3):
        page.keyboard.press("1")
        expect(page.get_by_text(f"You have judged {number} of 3.")).to_be_visible()
    page.get_by_role("button", name="Finish the sheet").click()
    expect(page.get_by_text("No bad one in 2 random answers of the policy")).to_be_visible()
