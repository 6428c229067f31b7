"""One's own data: a CSV of prompts and a Parquet of preferences, into an empty project."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, expect

from apps.accounts.models import Project
from apps.labeling import dispatch, services
from apps.snapshots.models import Snapshot
from tests.browser.test_import import no_serious_violation

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Jobs sent to the workers; the test is the worker."""
    jobs: list[str] = []
    monkeypatch.setattr(dispatch, "import_send", lambda job: not jobs.append(job))
    return jobs


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"dataset-{name}.png", full_page=True)


def test_an_engineer_brings_prompts_and_preferences_into_an_empty_project(
    live_server: Any,
    project: Project,
    emil: Any,
    open_page: Callable[..., Page],
    sign_in: Callable[..., None],
    waiting: list[str],
    tmp_path: Path,
) -> None:
    prompts, pairs = tmp_path / "prompts.csv", tmp_path / "pairs.parquet"
    asked = [f"How many days has year {n}?" for n in range(2000, 2040)]
    prompts.write_text("prompt\n" + "".join(f'"{text}"\n' for text in asked) + '""\n')
    rows = [
        {"prompt": t, "chosen": f"In {t[-5:-1]}: it depends.", "rejected": "400"} for t in asked
    ]
    pq.write_table(pa.Table.from_pylist(rows), pairs)

    page = open_page()
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/datasets/")
    page.get_by_role("link", name="Import", exact=True).click()
    page.get_by_label("File", exact=True).set_input_files(prompts)
    no_serious_violation(page, "dataset-upload")
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("heading", name="prompts.csv")).to_be_visible()
    expect(page.get_by_role("region", name="First comparisons")).to_contain_text("year 2003")
    no_serious_violation(page, "dataset-columns")
    page.get_by_role("button", name="Check the whole file").click()
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    services.import_job_run(job=waiting.pop())
    expect(page.get_by_role("heading", name="What an import would do")).to_be_visible()
    expect(page.get_by_role("region", name="Errors and warnings by row")).to_contain_text("41")
    no_serious_violation(page, "dataset-checked")
    page.get_by_label("Name of the dataset").fill("Years")
    page.get_by_role("button", name="Freeze 40 rows, leave 1 with errors out").click()
    services.import_job_run(job=waiting.pop())
    page.get_by_role("link", name="See the dataset").click()
    expect(page.get_by_role("heading", name="Years")).to_be_visible()
    expect(page.get_by_role("table", name="Splits")).to_contain_text("public_test")
    no_serious_violation(page, "dataset-prompts")

    phone = open_page(phone=True)
    sign_in(phone, "emil")
    phone.goto(f"{live_server.url}/p/arguments/datasets/import/")
    picture(phone, "phone-upload")
    phone.get_by_label("Preferences").check()
    phone.get_by_label("File", exact=True).set_input_files(pairs)
    phone.get_by_role("button", name="Upload").click()
    expect(phone.get_by_role("region", name="First comparisons")).to_contain_text("it depends")
    picture(phone, "phone-columns")
    phone.get_by_role("button", name="Check the whole file").click()
    expect(phone.get_by_role("button", name="Cancel")).to_be_visible()
    services.import_job_run(job=waiting.pop())
    expect(phone.get_by_role("heading", name="What an import would do")).to_be_visible()
    picture(phone, "phone-checked")
    phone.get_by_role("button", name="Freeze 40 rows").click()
    services.import_job_run(job=waiting.pop())
    phone.get_by_role("link", name="See the dataset").click()
    expect(phone.get_by_text("nobody voted here")).to_be_visible()
    picture(phone, "phone-preferences")
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    years, pairs_made = Snapshot.objects.order_by("created_at")
    assert (years.kind, pairs_made.kind) == ("prompts", "preferences")
    assert years.counts["rows"] == pairs_made.counts["rows"], "one prompt has one place"
