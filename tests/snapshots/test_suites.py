"""The shipped regression suite, and suites of one's own."""

import json
from collections import Counter
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, Project, Role
from apps.common.errors import DomainError
from apps.labeling import dispatch
from apps.labeling.services import import_job_check, import_job_create, import_job_run
from apps.snapshots.services.importing import snapshot_import
from apps.snapshots.services.suites import suite_add
from apps.snapshots.storage import artifact_store, read_rows
from tests.labeling.conftest import inline_parsing
from tests.people import person_make
from workers.config.suites import read_check
from workers.contract.events import RecipeError
from workers.data.snapshot import read_held_out_prompts, read_prompts

__all__ = ["inline_parsing"]
pytestmark = pytest.mark.usefixtures("inline_parsing")


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")
    monkeypatch.setattr(dispatch, "import_send", lambda job: True)


def test_the_shipped_suite_is_added_once_and_only_tests(project: Project) -> None:
    emil = person_make("emil", project, Role.ENGINEER)
    made, is_new = suite_add(project=project, user=emil)
    assert is_new
    assert suite_add(project=project, user=emil) == (made, False)
    assert AuditEvent.objects.filter(action="snapshot.suite_added").count() == 1
    assert made.counts["rows"] == {"train": 0, "dev": 140}
    folder = Path(artifact_store().url) / made.uri
    rows = read_held_out_prompts(folder)
    assert len(rows) == 140
    with pytest.raises(RecipeError, match="no rows"):  # nothing trains on it
        read_prompts(folder, "train")
    checks = [read_check(row.columns["check"], answer=row.answer) for row in rows]
    counts = Counter(check.category for check in checks)
    assert counts["arithmetic"] == 36
    assert counts["refusals that should be"] == 18


def test_every_row_of_the_shipped_suite_is_free_and_says_so() -> None:
    text = (django_settings.BASE_DIR / "data" / "suite.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert {(row["source"], row["licence"], row["split"]) for row in rows} == {
        ("Concord", "Apache-2.0", "dev")
    }
    assert len({row["prompt"] for row in rows}) == len(rows)


def test_checks_of_one_s_own_are_kept_and_bad_ones_named(project: Project) -> None:
    good = [
        {
            "prompt": f"What is {k} + 1?",
            "answer": k + 1,
            "split": "train" if k else "dev",
            "check": {"category": "sums", "test": "number"},
        }
        for k in range(4)
    ]
    made = snapshot_import(project=project, kind="prompts", name="mine", rows=good)
    assert made.counts["checks"] == 4
    kept = [
        json.loads(row["check"])
        for row in read_rows(Path(artifact_store().url) / made.uri / "train.jsonl")
    ]
    assert {one["test"] for one in kept} == {"number"}
    bad = [*good, {"prompt": "And?", "check": {"category": "sums", "test": "number"}}]
    with pytest.raises(DomainError, match="needs an answer") as refused:
        snapshot_import(project=project, kind="prompts", name="bad", rows=bad)
    assert (refused.value.row, refused.value.field) == (5, "check")


def test_a_file_of_held_out_checks_alone_is_imported(project: Project) -> None:
    emil = person_make("emil", project, Role.ENGINEER)
    check = {"category": "sums", "test": "number"}
    rows = [
        {"prompt": f"{k} + 1?", "answer": k + 1, "check": check, "split": "dev"} for k in range(3)
    ]
    job = import_job_create(
        project=project,
        by=emil,
        file_name="suite.jsonl",
        chunks=["".join(json.dumps(row) + "\n" for row in rows).encode()],
        makes="prompts",
    )
    import_job_check(job=job)
    import_job_run(job=job.pk)
    job.refresh_from_db()
    assert job.state == job.State.DONE, job.error
    parts = job.check_report["splits"]["parts"]
    assert {part["split"]: part["rows"] for part in parts} == {"train": 0, "dev": 3}


def test_emil_adds_it_from_the_page_of_imports(project: Project, client: Client) -> None:
    client.force_login(person_make("emil", project, Role.ENGINEER))
    page = client.get(reverse("snapshots:import", args=[project.slug])).content.decode()
    assert "Add the shipped suite" in page
    response = client.post(reverse("snapshots:suite", args=[project.slug]), follow=True)
    assert "Regression suite" in response.content.decode()
    again = client.post(f"/api/v1/projects/{project.slug}/snapshots/suite")
    assert again.status_code == 200
