"""From an empty site to a downloaded result in the browser alone, with every click counted."""

import csv
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from apps.accounts.models import Project, User
from apps.accounts.services import set_up_token
from apps.labeling import dispatch, services
from apps.labeling.models import Comparison

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
MOST_CLICKS, MOST_FIELDS = 25, 12
COLLEAGUES = ("ben", "cleo", "dan", "eve")
PAIRS = 4


class Newcomer:
    """A page whose clicks and fields are counted."""

    def __init__(self, page: Page) -> None:
        self.page, self.clicks, self.fields = page, 0, 0

    def click(self, place: Locator) -> None:
        self.clicks += 1
        place.click()

    def press(self, name: str) -> None:
        self.click(self.page.get_by_role("button", name=name))

    def follow(self, name: str) -> None:
        self.click(self.page.get_by_role("link", name=name, exact=True).first)

    def fill(self, label: str, text: str) -> None:
        self.fields += 1
        self.page.get_by_label(label).fill(text)

    def shot(self, name: str) -> None:
        if folder := os.environ.get("SCREENSHOTS"):
            self.page.screenshot(path=Path(folder) / f"newcomer-{name}.png", full_page=True)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Imports sent to the workers; the test is the worker."""
    jobs: list[str] = []
    monkeypatch.setattr(dispatch, "import_send", lambda job: not jobs.append(job))
    return jobs


def votes_of(live_server: Any, page: Page, link: str, name: str) -> None:
    """A colleague makes an account by the link and answers every pair there is for them."""
    page.goto(link)
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill("a-rather-long-one")
    page.get_by_role("button", name="Create my account").click()
    page.get_by_role("link", name="Read the guidelines").click()
    page.get_by_role("button", name="I have read the guidelines").click()
    for number in range(1, PAIRS + 1):
        expect(page.locator(f"[data-nothing], :text('Pair {number}')").first).to_be_visible()
        if page.locator("[data-nothing]").count():  # three votes were enough
            return
        better = page.locator(".pane", has_text="Twenty-four")
        page.wait_for_timeout(400)  # a key within a quarter second of a new pair does nothing
        page.keyboard.press("1" if better.get_attribute("data-side") == "left" else "2")
    expect(page.locator("[data-nothing]")).to_be_visible()  # the last answer has arrived


def test_a_newcomer_gets_from_an_empty_site_to_a_file_of_results(
    live_server: Any,
    open_page: Callable[..., Page],
    waiting: list[str],
    tmp_path: Path,
) -> None:
    file = tmp_path / "answers.csv"
    with file.open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(["id", "prompt", "response_a", "response_b", "team"])
        for n in range(PAIRS):
            row = f"How long is day {n}?", f"Twenty-four hours, day {n}.", f"It depends on {n}."
            table.writerow([f"q{n}", *row, "blue"])
    nora = Newcomer(open_page())
    page = nora.page

    page.goto(f"{live_server.url}/set-up/?token={set_up_token()}")
    nora.fill("Username", "nora")
    nora.fill("Password", "a-rather-long-one")
    nora.press("Create my account")
    nora.fill("Name", "Support answers")
    nora.press("Create project")

    nora.fields += 1
    page.get_by_label("File").set_input_files(file)
    nora.press("Upload")
    nora.press("Check the whole file")
    services.import_job_run(job=waiting.pop())
    nora.press(f"Import {PAIRS} comparisons")
    services.import_job_run(job=waiting.pop())
    expect(page.get_by_role("heading", name="What was imported")).to_be_visible()
    nora.shot("imported")
    nora.follow("Next")

    nora.follow("Helpfulness")
    nora.press("Publish")
    nora.follow("Next")
    nora.shot("rule")
    nora.follow("Skip")
    nora.fill("E-mail addresses", "\n".join(f"{name}@example.org" for name in COLLEAGUES))
    nora.press("Invite")
    nora.shot("invited")
    links = [
        page.locator("[data-copy]").nth(place).get_attribute("data-copy")
        for place in range(len(COLLEAGUES))
    ]
    nora.clicks += len(links)  # she copies each
    nora.press("Finish")
    for link, name in zip(links, COLLEAGUES, strict=True):
        votes_of(live_server, open_page(), link, name)

    assert set(Comparison.objects.values_list("state", flat=True)) == {"decided"}
    page.goto(f"{live_server.url}/")
    nora.follow("Comparisons")
    nora.click(page.get_by_text("Download results"))
    nora.shot("download")
    with page.expect_download() as download:
        nora.follow("Results, CSV")
    rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    assert [row["external_id"] for row in rows] == [f"q{n}" for n in range(PAIRS)]
    assert {(row["outcome"], row["votes_a"]) for row in rows} == {("a", "3")}
    assert all('"team": "blue"' in row["metadata"] for row in rows)
    assert User.objects.count() == 1 + len(COLLEAGUES)
    assert Project.objects.get().memberships.count() == 1 + len(COLLEAGUES)
    assert nora.clicks <= MOST_CLICKS, nora.clicks
    assert nora.fields <= MOST_FIELDS, nora.fields
