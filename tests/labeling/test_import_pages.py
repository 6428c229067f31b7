"""The import pages without JavaScript, their refusals, and the API beside them."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from apps.accounts.models import Project, User
from apps.labeling import dispatch, services
from apps.labeling.models import Comparison, ImportJob

SignedIn = Callable[[User], Client]
ROOT = "/p/arguments/imports/"
GOOD = {"prompt": "Why?", "response_a": "So.", "response_b": "Because."}
pytestmark = pytest.mark.usefixtures("inline_parsing")


@pytest.fixture(autouse=True)
def redis_is_up(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    up = [True]
    monkeypatch.setattr(dispatch, "import_send", lambda job: up[0])
    return up


def file_of(*rows: Any, name: str = "rows.jsonl") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, "".join(json.dumps(r) + "\n" for r in rows).encode())


def uploaded(client: Client, *rows: Any) -> ImportJob:
    answer = client.post(ROOT, {"file": file_of(*rows)})
    assert answer.status_code == 302, answer.content
    return ImportJob.objects.latest("created_at")


def form_of(answer: Any) -> dict[str, Any]:
    """The settings form as a browser would send it back."""
    form = answer.context["form"]
    values = {bound.html_name: bound.value() for bound in form}
    return {n: v for n, v in values.items() if v is not None and v is not False and v != ""}


def test_a_file_is_imported_by_buttons_alone(
    signed_in: SignedIn, project: Project, ada: User
) -> None:
    client = signed_in(ada)
    job = uploaded(client, GOOD)
    page = client.get(f"{ROOT}{job.pk}/")
    client.post(f"{ROOT}{job.pk}/settings/", form_of(page) | {"action": "check"})
    assert services.import_job_run(job=job.pk) == "done"
    page = client.get(f"{ROOT}{job.pk}/").content.decode()
    assert "Import 1 comparison" in page
    client.post(f"{ROOT}{job.pk}/do/", {"action": "start", "on_error": "refuse"})
    assert services.import_job_run(job=job.pk) == "done"
    page = client.get(f"{ROOT}{job.pk}/").content.decode()
    assert "What was imported" in page
    assert Comparison.objects.count() == 1
    assert "imported" in client.get(ROOT).content.decode()


def test_a_page_at_work_polls_and_is_reloaded_when_it_is_done(
    signed_in: SignedIn, project: Project, emil: User
) -> None:
    client = signed_in(emil)
    job = uploaded(client, GOOD)
    services.import_job_check(job=job)
    polled = client.get(f"{ROOT}{job.pk}/", headers={"HX-Request": "true"})
    assert 'hx-trigger="every 1s"' in polled.content.decode()
    services.import_job_run(job=job.pk)
    polled = client.get(f"{ROOT}{job.pk}/", headers={"HX-Request": "true"})
    assert polled.headers["HX-Refresh"] == "true"


def test_what_is_wrong_stands_beside_its_field_and_what_was_chosen_is_kept(
    signed_in: SignedIn, project: Project, emil: User
) -> None:
    client = signed_in(emil)
    job = uploaded(client, {"ask": "Why?", "one": "So.", "two": "Because."})
    page = client.get(f"{ROOT}{job.pk}/")
    sent = form_of(page) | {"map_prompt": "ask", "map_response_a": "one", "action": "check"}
    answer = client.post(f"{ROOT}{job.pk}/settings/", sent)
    assert answer.status_code == 422
    assert answer.context["form"].errors == {
        "map_response_b": ["Choose the column that holds this."]
    }
    assert answer.context["form"]["map_prompt"].value() == "ask"


def test_another_layout_is_looked_at_before_it_is_checked(
    signed_in: SignedIn, project: Project, emil: User
) -> None:
    client = signed_in(emil)
    job = uploaded(client, {"prompt": "Sky?", "chosen": "Blue.", "rejected": "Green."})
    page = client.get(f"{ROOT}{job.pk}/")
    assert page.context["form"]["layout"].value() == "preference"
    client.post(f"{ROOT}{job.pk}/settings/", form_of(page) | {"layout": "pairs", "action": "check"})
    job.refresh_from_db()
    assert (job.preview["layout"], job.state) == ("pairs", "draft")


def test_an_upload_that_cannot_be_read_says_why_and_keeps_nothing(
    signed_in: SignedIn, project: Project, emil: User
) -> None:
    client = signed_in(emil)
    answer = client.post(ROOT, {"file": SimpleUploadedFile("x.pdf", b"%PDF-1.4")})
    assert answer.status_code == 422
    assert "document" in answer.content.decode()
    assert client.post(ROOT).status_code == 422
    assert not ImportJob.objects.exists()


def test_redis_away_is_said_and_the_import_waits(
    signed_in: SignedIn, project: Project, emil: User, redis_is_up: list
) -> None:
    client = signed_in(emil)
    job = uploaded(client, GOOD)
    redis_is_up[0] = False
    answer = client.post(f"{ROOT}{job.pk}/do/", {"action": "check"}, follow=True)
    page = answer.content.decode()
    assert "Redis does not answer" in page
    assert "waits for a worker" in page


def test_the_findings_are_a_csv_that_no_spreadsheet_runs(
    signed_in: SignedIn, project: Project, emil: User
) -> None:
    client = signed_in(emil)
    job = uploaded(client, GOOD | {"=cmd|' /C calc'!A0": 1, "gold": "=1+1"})
    services.import_job_check(job=job)
    services.import_job_run(job=job.pk)
    answer = client.get(f"{ROOT}{job.pk}/findings.csv")
    assert "attachment" in answer.headers["Content-Disposition"]
    text = b"".join(answer.streaming_content).decode()
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["level"], row["row"], row["field"]) == ("error", "1", "gold")
    assert not row["message"].startswith("=")


def test_a_file_name_and_its_cells_are_shown_and_not_run(
    signed_in: SignedIn, project: Project, emil: User
) -> None:
    client = signed_in(emil)
    evil = "<script>alert(1)</script>"
    file = file_of(GOOD | {"prompt": evil, evil: evil}, name=f"../../{evil}.jsonl")
    client.post(ROOT, {"file": file})
    job = ImportJob.objects.get()
    page = client.get(f"{ROOT}{job.pk}/").content.decode()
    assert "/" not in job.file_name
    assert evil not in page
    assert "&lt;script&gt;" in page


def test_a_pair_with_a_constraint_phrase_is_listed_for_review_with_its_reason(
    signed_in: SignedIn, project: Project, ada: User
) -> None:
    services.labeling_set_up(project=project)
    project.labeling.constraint_phrases = ["I love you"]
    project.labeling.save()
    services.comparisons_import(
        project=project, rows=[GOOD | {"response_a": "I  LOVE you"}, GOOD | {"prompt": "How?"}]
    )
    client = signed_in(ada)
    page = client.get("/p/arguments/comparisons/?state=review").content.decode()
    assert "Answer A holds the constraint phrase “I love you”" in page
    waiting = Comparison.objects.get(state="review")
    page = client.get(f"/p/arguments/comparisons/{waiting.pk}/").content.decode()
    assert "Nobody gets it until you put it back" in page


def test_other_projects_imports_are_not_found(
    signed_in: SignedIn, project: Project, emil: User, olga: User
) -> None:
    job = uploaded(signed_in(emil), GOOD)
    assert signed_in(olga).get(f"/p/elsewhere/imports/{job.pk}/").status_code == 404


def test_the_api_uploads_checks_and_starts(
    signed_in: SignedIn, project: Project, emil: User
) -> None:
    client, root = signed_in(emil), "/api/v1/projects/arguments/imports"
    settings = json.dumps({"mapping": {"prompt": "ask"}, "rest": "drop"})
    file = file_of({"ask": "Why?", "response_a": "So.", "response_b": "Because."})
    made = client.post(root, {"file": file, "settings": settings})
    assert made.status_code == 201, made.content
    job = made.json()
    assert job["preview"]["mapping"]["prompt"] == "ask"
    for step in ("check", "start"):
        answer = client.post(f"{root}/{job['id']}/{step}", {}, content_type="application/json")
        assert answer.status_code == 202, answer.content
        services.import_job_run(job=job["id"])
    done = client.get(f"{root}/{job['id']}").json()
    assert (done["state"], done["result"]["n_created"]) == ("done", 1)
    assert client.get(f"{root}/{job['id']}/findings").json() == []
    bad = client.post(root, {"file": file_of(GOOD), "settings": "{"})
    assert (bad.status_code, bad.json()["field"]) == (400, "settings")
