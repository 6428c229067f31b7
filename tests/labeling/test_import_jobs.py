"""An import in the background: checked without a trace, in whole or not at all, safe to repeat."""

import csv
import errno
import io
import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import openpyxl
import psycopg
import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError
from apps.labeling import dispatch, services
from apps.labeling.models import (
    Comparison,
    ImportJob,
    LabelingSettings,
    Prompt,
    Slot,
    Vote,
)
from apps.labeling.screens import imports as import_screens
from apps.labeling.services import importing, imports
from tests.labeling.pairs import checked, imported, rows_make, upload
from workers.artifacts import StoreUnreachable

GOOD = {"prompt": "Which is larger?", "response_a": "The sun.", "response_b": "The moon."}
State = ImportJob.State
pytestmark = pytest.mark.usefixtures("inline_parsing")


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Messages to the workers; nobody takes them here but the test itself."""
    messages: list[str] = []
    monkeypatch.setattr(dispatch, "import_send", lambda job: not messages.append(job))
    return messages


def test_a_file_is_uploaded_checked_and_imported(project: Project, emil: User, sent: list) -> None:
    job = upload(project, emil, *rows_make(4))
    assert (job.state, job.preview["layout"], job.preview["container"]) == (
        "draft",
        "pairs",
        "jsonl",
    )
    assert job.preview["mapping"]["response_a"] == "response_a"
    checked(job)
    assert (job.stage, job.state, job.error) == ("check", "done", "")
    assert job.check_report["n_created"] == 4
    assert not Comparison.objects.exists()
    assert not Prompt.objects.exists()
    imported(job)
    assert (job.stage, job.state, job.result["n_created"]) == ("import", "done", 4)
    assert Comparison.objects.filter(batch=f"import {job.pk}").count() == 4
    assert sent == [job.pk, job.pk]
    assert AuditEvent.objects.filter(action="comparisons.imported", actor=emil).count() == 1


def test_the_upload_is_deleted_once_its_rows_are_in(project: Project, emil: User) -> None:
    job = imported(checked(upload(project, emil, *rows_make(2))))
    assert job.file_deleted_at is not None
    assert not imports.store().exists(f"imports/{job.pk}/upload")
    with pytest.raises(Conflict, match="in already"):
        services.import_job_start(job=job)


def test_the_check_lists_every_error_and_warning_by_row(project: Project, emil: User) -> None:
    job = upload(
        project,
        emil,
        GOOD | {"id": "good"},
        GOOD | {"id": "bad", "gold": "maybe"},
        GOOD | {"id": "twin"},
        GOOD | {"id": "named", "prompt": "Who?", "response_a": "I am ChatGPT."},
        GOOD | {"id": "mail", "prompt": "Where?", "response_b": "Ask ann.lee@gmail.com."},
    )
    report = checked(job).check_report
    assert (report["n_created"], report["n_refused"]) == (4, 1)
    assert report["warnings"] == {"duplicate": 1, "model_name": 1, "personal": 1}
    found = list(import_screens.findings(job))
    assert [(f["level"], f["row"], f["field"]) for f in found] == [
        ("error", 2, "gold"),
        ("warning", 3, "id"),
        ("warning", 4, "response_a"),
        ("warning", 5, "response_b"),
    ]
    assert "ann.lee" not in json.dumps(found)  # a warning does not carry what it warns of


def test_a_file_with_errors_is_refused_whole_or_imported_without_them(
    project: Project, emil: User
) -> None:
    job = checked(upload(project, emil, GOOD, GOOD | {"prompt": "Why?", "gold": "x"}))
    imported(job)
    assert job.state == State.FAILED
    assert "row 2, gold" in job.error
    assert not Comparison.objects.exists()
    imported(job, on_error="skip")
    assert (job.state, job.result["n_created"], job.result["n_refused"]) == ("done", 1, 1)


def test_rows_that_are_no_json_are_named_and_the_others_read(project: Project, emil: User) -> None:
    text = json.dumps(GOOD) + "\n{broken\n" + json.dumps(GOOD | {"prompt": "Why?"}) + "\n"
    job = services.import_job_create(
        project=project, by=emil, file_name="x.jsonl", chunks=[text.encode()]
    )
    assert checked(job).check_report["n_created"] == 2
    (error,) = import_screens.findings(job)
    assert (error["row"], error["field"]) == (2, "row")


def test_columns_chosen_by_hand_are_used(project: Project, emil: User) -> None:
    job = upload(project, emil, {"ask": "Why?", "one": "So.", "two": "Because."})
    assert job.preview["mapping"] == {}
    with pytest.raises(DomainError) as caught:
        services.import_job_check(job=job)
    assert caught.value.field == "prompt"
    assert [one["field"] for one in caught.value.details] == ["prompt", "response_a", "response_b"]
    services.import_job_configure(
        job=job, mapping={"prompt": "ask", "response_a": "one", "response_b": "two"}
    )
    imported(checked(job))
    assert Comparison.objects.get().response_b.messages[0]["content"] == "Because."


def test_a_choice_that_cannot_be_is_refused_and_changes_nothing(
    project: Project, emil: User
) -> None:
    job = checked(upload(project, emil, GOOD))
    for wrong, field in (
        ({"mapping": {"prompt": "nothing"}}, "prompt"),
        ({"mapping": {"promt": "prompt"}}, "promt"),
        ({"layout": "poem"}, "file"),
        ({"pairing": "some"}, "pairing"),
        ({"colour": "red"}, "colour"),
        ({"rest": "burn"}, "rest"),
    ):
        with pytest.raises(DomainError) as caught:
            services.import_job_configure(job=job, **wrong)
        assert caught.value.field == field
    job.refresh_from_db()
    assert job.check_report["n_created"] == 1


def test_other_choices_make_an_earlier_check_worthless(project: Project, emil: User) -> None:
    job = checked(upload(project, emil, GOOD))
    services.import_job_configure(job=job, rest="drop")
    with pytest.raises(Conflict, check=lambda e: e.code == "import_unchecked"):
        services.import_job_start(job=job)


def test_what_cannot_be_read_is_refused_at_upload_and_nothing_is_kept(
    project: Project, emil: User
) -> None:
    for content, words in ((b"", "empty"), (b"%PDF-1.7 x", "document"), (b"just words", "table")):
        with pytest.raises(DomainError, match=words) as caught:
            services.import_job_create(project=project, by=emil, file_name="x", chunks=[content])
        assert caught.value.field == "file"
    assert not ImportJob.objects.exists()


def test_an_upload_over_the_limit_is_refused(project: Project, emil: User, settings: Any) -> None:
    settings.IMPORT_MAX_MB = 1
    with pytest.raises(DomainError, match="larger than 1 MB"):
        services.import_job_create(
            project=project, by=emil, file_name="x", chunks=[b"x" * 600_000] * 2
        )
    assert not ImportJob.objects.exists()


def test_a_constraint_phrase_sends_the_pair_to_review_with_its_reason(
    project: Project, emil: User, ada: User
) -> None:
    LabelingSettings.objects.create(project=project, constraint_phrases=["I love you"])
    row = GOOD | {"response_b": "Oh, I  L-O-V-E  you!"}
    job = imported(checked(upload(project, emil, row, GOOD | {"prompt": "Why?"})))
    assert (job.check_report["n_review"], job.result["n_review"]) == (1, 1)
    waiting = Comparison.objects.get(state="review")
    assert re.search("Answer B .*“I love you”", waiting.review_reason)
    assert set(waiting.slots.values_list("state", flat=True)) == {"withdrawn"}
    services.comparison_reopen(comparison=waiting, by=ada)
    assert set(waiting.slots.values_list("state", flat=True)) == {"free"}


def test_a_phrase_without_letters_is_refused_when_it_is_set(project: Project, ada: User) -> None:
    with pytest.raises(DomainError, match="letter") as caught:
        services.labeling_settings_update(
            project=project, by=ada, constraint_phrases=["I love you", "…"]
        )
    assert caught.value.field == "constraint_phrases"


def test_redis_away_keeps_the_import_and_the_sweep_offers_it_again(
    project: Project, emil: User, monkeypatch: pytest.MonkeyPatch, sent: list
) -> None:
    job = upload(project, emil, GOOD)
    monkeypatch.setattr(dispatch, "import_send", lambda job: False)
    assert services.import_job_check(job=job) is False
    job.refresh_from_db()
    assert job.state == State.QUEUED
    monkeypatch.setattr(dispatch, "import_send", lambda job: not sent.append(job))
    assert services.import_jobs_sweep() == 0  # a moment ago: a worker may be about to take it
    ImportJob.objects.update(queued_at=timezone.now() - importing.RESEND_AFTER * 2)
    assert services.import_jobs_sweep() == 1
    assert sent == [job.pk]


def test_a_message_that_comes_twice_runs_the_job_once(project: Project, emil: User) -> None:
    job = imported(checked(upload(project, emil, *rows_make(3))))
    assert services.import_job_run(job=job.pk) == "done"
    job.refresh_from_db()
    assert job.attempt == 2  # one check, one import
    assert Comparison.objects.count() == 3


def test_cancelling_while_it_waits_deletes_the_file(project: Project, emil: User) -> None:
    job = upload(project, emil, GOOD)
    services.import_job_check(job=job)
    services.import_job_cancel(job=job, by=emil)
    assert services.import_job_run(job=job.pk) == "cancelled"
    assert not imports.store().exists(f"imports/{job.pk}/upload")
    with pytest.raises(Conflict, match="no longer kept"):
        services.import_job_configure(job=job)


def test_cancelling_while_it_runs_takes_back_what_was_written(
    project: Project, emil: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = checked(upload(project, emil, *rows_make(3)))
    services.import_job_start(job=job)
    monkeypatch.setattr(imports, "_EVERY", 0.0)
    monkeypatch.setattr("apps.labeling.services.import_checks._TELL_EVERY", 1)
    real, told = imports.Progress.tell, []

    def tell(self: Any, step: str, done: int = 0, total: int = 0) -> None:
        told.append((step, done, total))
        if done == 2 and total:
            services.import_job_cancel(job=ImportJob.objects.get(pk=job.pk), by=emil)
        real(self, step, done, total)

    monkeypatch.setattr(imports.Progress, "tell", tell)
    assert services.import_job_run(job=job.pk) == "cancelled"
    assert ("Checking the rows", 2, 3) in told
    assert not Comparison.objects.exists()
    assert imports.progress_read(job.pk) == {}


def test_a_superseded_attempt_writes_nothing(
    project: Project, emil: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = checked(upload(project, emil, *rows_make(3)))
    services.import_job_start(job=job)
    real = importing.comparisons_import

    def slow(**arguments: Any) -> Any:
        report = real(**arguments)
        ImportJob.objects.filter(pk=job.pk).update(attempt=99)
        return report

    monkeypatch.setattr(importing, "comparisons_import", slow)
    services.import_job_run(job=job.pk)
    assert not Comparison.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_killed_worker_leaves_an_interrupted_import_that_can_go_on(
    project: Project, emil: User
) -> None:
    job = checked(upload(project, emil, *rows_make(3)))
    services.import_job_start(job=job)
    ImportJob.objects.filter(pk=job.pk).update(state=State.RUNNING, attempt=job.attempt + 1)
    params = connection.get_connection_params() | {"cursor_factory": None, "context": None}
    worker = psycopg.connect(
        **{k: v for k, v in params.items() if k in ("dbname", "user", "host", "port", "password")}
    )
    worker.execute("select pg_advisory_lock(%s)", [job.number])
    assert services.import_jobs_sweep() == 0  # somebody works on it
    worker.close()  # what the kernel does to the connection of a killed process
    for _ in range(50):
        if services.import_jobs_sweep():
            break
    job.refresh_from_db()
    assert job.state == State.INTERRUPTED
    assert imported(job).result["n_created"] == 3


def test_past_votes_of_an_export_come_in_and_a_second_run_repeats_none(
    project: Project, emil: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [
        {
            "id": number,
            "data": {"question": f"Q{number}?", "text1": f"One {number}.", "text2": "Two."},
            "annotations": [
                {
                    "completed_by": who,
                    "created_at": "2024-05-01T09:00:00Z",
                    "result": [{"type": "pairwise", "value": {"selected": side}}],
                }
                for who, side in ((7, "left"), (8, "left"), (9, "right"))
            ],
        }
        for number in (1, 2)
    ]
    job = services.import_job_create(
        project=project, by=emil, file_name="ls.json", chunks=[json.dumps(tasks).encode()]
    )
    report = checked(job).check_report
    assert (report["votes"]["n_votes"], report["votes"]["n_people"]) == (6, 3)

    def killed(**arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importing, "votes_import", killed)
    services.import_job_start(job=job)
    with pytest.raises(KeyboardInterrupt):
        services.import_job_run(job=job.pk)
    assert (Comparison.objects.count(), Vote.objects.count()) == (2, 0)
    ImportJob.objects.update(state=State.INTERRUPTED)  # as the sweep says of a killed worker
    monkeypatch.undo()
    monkeypatch.setattr(dispatch, "import_send", lambda job: True)
    job.refresh_from_db()
    result = imported(job).result
    assert (result["n_created"], result["n_unchanged"]) == (2, 0)
    assert result["votes"]["n_created"] == 6
    assert Comparison.objects.count() == 2
    assert Slot.objects.filter(state="done").count() == 6
    assert Vote.objects.filter(choice="a").count() == 4


def test_old_uploads_that_were_never_imported_are_deleted(project: Project, emil: User) -> None:
    job = upload(project, emil, GOOD)
    assert services.import_jobs_sweep() == 0
    ImportJob.objects.update(updated_at=timezone.now() - importing.KEEP_FILE * 2)
    assert services.import_jobs_sweep() == 1
    assert not imports.store().exists(f"imports/{job.pk}")


def test_the_check_shows_whole_groups_in_splits(project: Project, emil: User) -> None:
    rows = [
        {"prompt": f"Q{n}?", "response_a": f"a{n}", "response_b": f"b{n}", "topic": f"t{n % 7}"}
        for n in range(70)
    ]
    splits = checked(upload(project, emil, *rows)).check_report["splits"]
    assert (splits["n_groups"], splits["largest"]) == (7, 10)
    assert sum(part["rows"] for part in splits["parts"]) == 70
    assert all(part["rows"] == 10 * part["groups"] for part in splits["parts"])


def test_answers_that_recur_across_groups_are_counted(project: Project, emil: User) -> None:
    rows = [
        GOOD | {"prompt": "Why?"},
        GOOD | {"prompt": "How?", "response_b": "Quickly."},
        GOOD | {"prompt": "Who?", "response_a": "Ann.", "response_b": "Ben."},
    ]
    assert checked(upload(project, emil, *rows)).check_report["n_recurring"] == 1


def test_artifacts_lie_where_the_settings_say() -> None:
    assert imports.store().url == settings.ARTIFACTS_URL.rstrip("/")


def test_a_store_that_does_not_answer_is_not_called_a_file_that_is_gone(
    project: Project, emil: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = checked(upload(project, emil, GOOD))

    def away(*_: Any) -> None:
        raise StoreUnreachable("away")

    monkeypatch.setattr(imports.Store, "local_path", away)
    imported(job)
    assert services.import_job_run(job=job.pk) == "failed"
    job.refresh_from_db()
    assert job.error.startswith("away. ")


# The import pages without JavaScript, their refusals, and the API beside them.


SignedIn = Callable[[User], Client]
ROOT = "/p/arguments/imports/"
GOOD_ROW = {"prompt": "Why?", "response_a": "So.", "response_b": "Because."}


@pytest.fixture
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
    job = uploaded(client, GOOD_ROW)
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
    job = uploaded(client, GOOD_ROW)
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
    assert list(answer.context["form"].errors) == ["map_response_b"]
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
    job = uploaded(client, GOOD_ROW)
    redis_is_up[0] = False
    answer = client.post(f"{ROOT}{job.pk}/do/", {"action": "check"}, follow=True)
    assert [said.level_tag for said in answer.context["messages"]] == ["warning"]
    assert "waiting for a worker" in answer.content.decode()


def test_the_findings_are_a_csv_that_no_spreadsheet_runs(
    signed_in: SignedIn, project: Project, emil: User
) -> None:
    client = signed_in(emil)
    job = uploaded(client, GOOD_ROW | {"=cmd|' /C calc'!A0": 1, "gold": "=1+1"})
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
    file = file_of(GOOD_ROW | {"prompt": evil, evil: evil}, name=f"../../{evil}.jsonl")
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
        project=project,
        rows=[
            GOOD_ROW | {"response_a": "I  LOVE you"},
            GOOD_ROW | {"prompt": "How?"},
        ],
    )
    client = signed_in(ada)
    page = client.get("/p/arguments/comparisons/?state=review").content.decode()
    waiting = Comparison.objects.get(state="review")
    assert re.search("Answer A .*“I love you”", waiting.review_reason)
    assert waiting.review_reason in page
    page = client.get(f"/p/arguments/comparisons/{waiting.pk}/").content.decode()
    assert 'value="reopen"' in page


def test_other_projects_imports_are_not_found(
    signed_in: SignedIn, project: Project, emil: User, olga: User
) -> None:
    job = uploaded(signed_in(emil), GOOD_ROW)
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
    bad = client.post(root, {"file": file_of(GOOD_ROW), "settings": "{"})
    assert (bad.status_code, bad.json()["field"]) == (400, "settings")


# Files as other tools write them, through the page.


def imported_by_page(client: Client, file: SimpleUploadedFile) -> ImportJob:
    """Upload, check, import: three buttons and no choice."""
    answer = client.post(ROOT, {"file": file})
    assert answer.status_code == 302, answer.context["error"]
    job = ImportJob.objects.latest("created_at")
    page = client.get(f"{ROOT}{job.pk}/")
    answer = client.post(f"{ROOT}{job.pk}/settings/", form_of(page) | {"action": "check"})
    assert answer.status_code == 302, answer.context["form"].errors
    assert services.import_job_run(job=job.pk) == "done"
    client.post(f"{ROOT}{job.pk}/do/", {"action": "start", "on_error": "refuse"})
    assert services.import_job_run(job=job.pk) == "done"
    job.refresh_from_db()
    return job


def workbook(*rows: Any) -> bytes:
    book, buffer = openpyxl.Workbook(), io.BytesIO()
    book.active.title = "Read me"
    sheet = book.create_sheet("Pairs")
    for row in rows:
        sheet.append(row)
    book.save(buffer)
    return buffer.getvalue()


def said(*turns: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(turns)]


def test_a_workbook_is_imported_with_what_its_cells_show(
    signed_in: SignedIn, project: Project, emil: User
) -> None:
    rows = (
        ["id", "question", "answer_1", "answer_2", None, "asked on", "share"],
        [7, "Why?", "So.", None, None, datetime(2026, 1, 2), 0.5],
        [],
        [8, "Who?", "Me.", "You.", None, datetime(2026, 1, 2, 9, 30), 3.0],
    )
    job = imported_by_page(signed_in(emil), SimpleUploadedFile("q.xlsx", workbook(*rows)))
    assert (job.preview["container"], job.preview["split"]) == ("xlsx", "Pairs")
    first, second = Comparison.objects.order_by("external_id")
    assert (first.external_id, first.response_b.messages[0]["content"]) == ("7", "")
    assert first.metadata == {"asked on": "2026-01-02", "share": "0.5"}
    assert second.metadata == {"asked on": "2026-01-02 09:30:00", "share": "3"}


def test_a_chat_of_two_models_is_imported_as_it_is(
    signed_in: SignedIn, project: Project, emil: User
) -> None:
    row = {
        "model_a": "m1",
        "model_b": "m2",
        "conversation_a": said("Hi", "Hello.", "Why?", "So."),
        "conversation_b": said("Hi", "Hello.", "Why?", "Because."),
        "winner": "model_b",
    }
    imported_by_page(signed_in(emil), file_of(row))
    found = Comparison.objects.get()
    assert found.prompt.messages == said("Hi", "Hello.", "Why?")
    assert (found.response_b.messages[0]["content"], found.gold) == ("Because.", "b")


def test_a_copy_of_the_prompt_beside_two_chats_is_no_second_prompt(
    signed_in: SignedIn, project: Project, emil: User
) -> None:
    row = {"prompt": "Why?", "messages_1": said("Why?", "So."), "messages_2": said("Why?", "")}
    imported_by_page(signed_in(emil), file_of(row))
    found = Comparison.objects.get()
    assert (found.prompt.messages, found.response_a.messages) == (said("Why?"), said("", "So.")[1:])
    assert found.response_b.messages[0]["content"] == ""


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Why?", "chosen": "So.", "rejected": ""},
        {"chosen": said("Why?", "So."), "rejected": said("Why?", "")},
        {"prompt": said("Why?"), "chosen": said("Why?", "So.")[1:], "rejected": said("", "")[1:]},
    ],
)
def test_chosen_and_rejected_are_imported_as_they_are(
    signed_in: SignedIn, project: Project, emil: User, row: dict[str, Any]
) -> None:
    imported_by_page(signed_in(emil), file_of(row))
    found = Comparison.objects.get()
    better = {"a": found.response_a, "b": found.response_b}[found.gold]
    assert (found.prompt.messages, better.messages[0]["content"]) == (said("Why?"), "So.")


def ten_votes() -> SimpleUploadedFile:
    """What Label Studio exports of one task that ten people answered."""
    annotations = [
        {
            "completed_by": who,
            "result": [{"type": "pairwise", "value": {"selected": "left"}}],
        }
        for who in range(1, 11)
    ]
    data = {"question": "Why?", "text1": "So.", "text2": "Because."}
    task = {"id": 1, "data": data, "annotations": annotations}
    return SimpleUploadedFile("ls.json", json.dumps([task]).encode())


def test_ten_past_votes_a_pair_go_in_and_the_page_says_so(
    signed_in: SignedIn, project: Project, emil: User
) -> None:
    client = signed_in(emil)
    job = imported_by_page(client, ten_votes())
    assert job.check_report["votes"]["n_raised"] == job.result["votes"]["n_raised"] == 1
    assert (Vote.objects.count(), Comparison.objects.get().n_votes) == (10, 10)
    assert 'data-raised="1"' in client.get(f"{ROOT}{job.pk}/").content.decode()


def test_a_file_with_a_row_for_each_vote_becomes_comparisons_with_votes(
    signed_in: SignedIn, project: Project, emil: User
) -> None:
    """As MT-Bench's human judgments: ten people on each pair, the models now left, now right."""
    chats = {"m1": said("Why?", "So."), "m2": said("Why?", "Because.")}
    rows = [
        {
            "question_id": 81,
            "judge": f"author_{who}",
            "model_a": left,
            "model_b": right,
            "winner": "tie" if who == 9 else ("model_a" if left == "m1" else "model_b"),
            "conversation_a": chats[left],
            "conversation_b": chats[right],
        }
        for who in range(10)
        for left, right in ([("m1", "m2")] if who % 2 else [("m2", "m1")])
    ]
    job = imported_by_page(signed_in(emil), file_of(*rows))
    found = Comparison.objects.get()
    assert (found.n_votes, found.gold) == (10, "")
    assert {found.response_a.origin_ref, found.response_b.origin_ref} == {"m1", "m2"}
    assert Vote.objects.filter(chosen__origin_ref="m1").count() == 9
    assert Vote.objects.filter(choice="tie").count() == 1
    assert (job.result["votes"]["n_people"], job.result["n_refused"]) == (10, 0)
    again = imported_by_page(signed_in(emil), file_of(*reversed(rows)))
    assert (again.result["n_created"], again.result["votes"]["n_unchanged"]) == (0, 10)


def test_columns_that_have_to_be_chosen_are_marked_before_and_after(
    signed_in: SignedIn, project: Project, emil: User
) -> None:
    client = signed_in(emil)
    job = uploaded(client, {"ask": "Why?", "one": "So.", "two": "Because."})
    wanted = ["map_prompt", "map_response_a", "map_response_b"]
    page = client.get(f"{ROOT}{job.pk}/")
    assert list(page.context["form"].errors) == wanted
    assert page.content.decode().count('aria-invalid="true"') == 3
    answer = client.post(f"{ROOT}{job.pk}/settings/", form_of(page) | {"action": "check"})
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == wanted


@pytest.mark.parametrize("by_heading", [True, False])
def test_the_headings_of_two_models_columns_are_the_models(
    signed_in: SignedIn, project: Project, emil: User, by_heading: bool
) -> None:
    client = signed_in(emil)
    job = uploaded(client, {"question": "Why?", "Old bot": "So.", "New bot": "Because."})
    form = form_of(client.get(f"{ROOT}{job.pk}/"))
    assert form["by_heading"] is True
    form |= {"map_response_a": "Old bot", "map_response_b": "New bot", "action": "check"}
    if not by_heading:
        del form["by_heading"]
    client.post(f"{ROOT}{job.pk}/settings/", form)
    services.import_job_run(job=job.pk)
    assert bool(form_of(client.get(f"{ROOT}{job.pk}/")).get("by_heading")) is by_heading
    client.post(f"{ROOT}{job.pk}/do/", {"action": "start", "on_error": "refuse"})
    assert services.import_job_run(job=job.pk) == "done"
    pair = Comparison.objects.get()
    named = (pair.response_a.model_name, pair.response_b.model_name)
    assert named == (("Old bot", "New bot") if by_heading else ("", ""))


def test_errors_name_the_columns_of_the_file(project: Project, emil: User) -> None:
    row = {"question": "Why?", "answer_1": "So.", "answer_2": "So."}
    job = checked(upload(project, emil, row, row | {"answer_2": 7}))
    found = [(f["field"], f["message"]) for f in import_screens.findings(job)]
    assert found == [
        ("answer_2", "is the same text as answer_1"),
        ("answer_2", "must be a text or a list of messages"),
    ]
    with pytest.raises(Conflict) as caught:
        services.import_job_start(job=job, on_error="skip")
    assert caught.value.code == "import_nothing"


def test_no_button_imports_nothing(signed_in: SignedIn, project: Project, emil: User) -> None:
    client = signed_in(emil)
    job = checked(uploaded(client, GOOD_ROW | {"response_b": "So."}))
    page = client.get(f"{ROOT}{job.pk}/").content.decode()
    assert "data-nothing" in page
    assert 'value="start"' not in page


def test_a_full_disk_fails_an_import_in_words_and_it_can_be_started_again(
    project: Project, emil: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    job = checked(upload(project, emil, *rows_make(4)))
    with monkeypatch.context() as patch:
        patch.setattr(importing, "file_rows", full)
        imported(job)
    assert (job.state, "disk of this server is full" in job.error) == ("failed", True)
    assert not Comparison.objects.exists()
    assert imported(job).state == "done"
    assert Comparison.objects.count() == 4
