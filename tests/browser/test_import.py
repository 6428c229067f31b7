"""Importing in the browser: a file with other column names, its errors, and the import."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from apps.accounts.models import Project
from apps.labeling import dispatch, services
from apps.labeling.models import Comparison, ImportJob

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
    page.get_by_role("button", name="Upload and look").click()
    expect(page.get_by_role("heading", name="answers.jsonl")).to_be_visible()
    page.get_by_role("button", name="Check the whole file").click()
    expect(page.get_by_text("Choose the column that holds this.").first).to_be_visible()
    for label, column in (
        ("Prompt", "ask"), ("Answer A", "first"), ("Answer B", "second"),
        ("Published label", "verdict"), ("Topic", "theme"),
    ):  # fmt: skip
        page.get_by_label(label, exact=True).select_option(column)
    page.get_by_role("button", name="Apply and look again").click()
    expect(page.get_by_role("region", name="First comparisons")).to_contain_text("It depends")
    no_serious_violation(page, "columns")
    page.get_by_role("button", name="Check the whole file").click()
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    no_serious_violation(page, "waiting")
    services.import_job_run(job=waiting[0])
    expect(page.get_by_role("heading", name="What an import would do")).to_be_visible()
    findings = page.get_by_role("region", name="Errors and warnings by row")
    expect(findings).to_contain_text("is the same text as response_a")
    expect(findings).to_contain_text("names its model")
    no_serious_violation(page, "checked")
    with page.expect_download() as download:
        page.get_by_role("link", name="All as CSV").click()
    assert Path(download.value.path()).read_text().startswith('"level","row","field"')
    assert not Comparison.objects.exists()
    page.get_by_role("button", name="Import 58, leave 2 rows out").click()
    services.import_job_run(job=waiting[1])
    expect(page.get_by_role("heading", name="What was imported")).to_be_visible()
    assert Comparison.objects.filter(gold="a").count() == 58
    page.get_by_role("link", name="Imports").click()
    page.wait_for_url("**/imports/")
    expect(page.get_by_role("table")).to_contain_text("imported")
    assert ImportJob.objects.get().result["n_refused"] == 2
    no_serious_violation(page, "list")
