"""What takes the space: sizes as they lie on the disk, by page, CSV, API and client; the quota."""

import csv
import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, Project, User
from apps.snapshots.models import Snapshot
from apps.training import services
from apps.training.models import Artifact, Checkpoint, FolderDeletion, Run, RunQuota
from apps.training.selectors.space import SpaceLine, project_space
from concord import types
from tests.training.conftest import FakeWire
from tests.training.reports import report
from workers.contract import Failed, Opened

pytestmark = pytest.mark.django_db


@pytest.fixture
def runs(project: Project, wire: FakeWire) -> Callable[..., Run]:
    def make(name: str, of: Project = project) -> Run:
        return services.run_launch(
            project=of, kind="drill", name=name, config={"steps": 3}, inputs={}
        )

    return make


def model_of(run: Run, size: int, step: int = 3, folder: str = "final") -> Checkpoint:
    return Checkpoint.objects.create(
        project=run.project,
        run=run,
        attempt=1,
        step=step,
        uri=f"runs/{run.pk}/attempt-1/checkpoints/{folder}",
        sha256=f"{step:064d}",
        size_bytes=size,
    )


def file_of(run: Run, size: int) -> Artifact:
    return Artifact.objects.create(
        run=run,
        attempt=1,
        seq=1,
        name="report.json",
        uri=f"runs/{run.pk}/attempt-1/report.json",
        sha256="f" * 64,
        size_bytes=size,
    )


def written(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def line_of(project: Project, row: Run | Snapshot) -> SpaceLine:
    (found,) = [line for line in project_space(project).lines if line.id == row.pk]
    return found


def du(folder: Path) -> int:
    """Bytes of the files by `du`, without those of the folders themselves."""
    said = subprocess.run(
        ["du", "--apparent-size", "--bytes", "--summarize", folder],
        capture_output=True,
        text=True,
        check=True,
    )
    folders = sum(one.lstat().st_size for one in [folder, *folder.rglob("*")] if one.is_dir())
    return int(said.stdout.split()[0]) - folders


def test_the_total_of_a_run_is_what_du_says_of_its_folder(
    project: Project, runs: Callable[..., Run], artifacts: Path
) -> None:
    run = runs("one")
    home = artifacts / "runs" / run.pk / "attempt-1"
    model = written(home / "checkpoints" / "final" / "model.safetensors", 5_000)
    written(home / "checkpoints" / "final" / "manifest.json", 70)
    written(home / "report.json", 300)
    written(home / "events.jsonl", 1_234)
    os.link(model, home / "checkpoints" / "same.safetensors")
    model_of(run, 5_000)
    file_of(run, 300)
    line = line_of(project, run)
    assert (line.models, line.files, line.rest) == (5_000, 300, 1_304)
    assert line.total == du(artifacts / "runs" / run.pk) == 6_604


def test_a_folder_that_several_rows_name_counts_once(
    project: Project, runs: Callable[..., Run], artifacts: Path
) -> None:
    run = runs("one")
    model_of(run, 400, step=3, folder="final")
    model_of(run, 400, step=4, folder="final")
    model_of(run, 50, step=2, folder="last")
    assert line_of(project, run).models == 450


def test_files_that_were_deleted_by_hand_make_no_negative_rest(
    project: Project, runs: Callable[..., Run], artifacts: Path
) -> None:
    run = runs("one")
    model_of(run, 400)
    assert line_of(project, run).rest == 0


def test_a_dataset_counts_with_its_private_splits(
    project: Project, snapshot_make: Callable[..., Snapshot], artifacts: Path
) -> None:
    snapshot = snapshot_make("preferences")
    written(artifacts / snapshot.uri / "extra.jsonl", 90)
    written(artifacts / "private" / snapshot.pk / "test.jsonl", 40)
    line = line_of(project, snapshot)
    assert (line.of, line.data, line.rest) == ("dataset", 0, 130)
    assert line.total == du(artifacts / snapshot.uri) + du(artifacts / "private" / snapshot.pk)


def test_of_a_store_elsewhere_the_database_says_the_sizes(
    project: Project, runs: Callable[..., Run], settings: Settings
) -> None:
    settings.ARTIFACTS_URL = "memory://space"
    run = runs("one")
    model_of(run, 400)
    found = project_space(project)
    assert (found.free, found.rest, found.total) == (None, None, 400)
    assert line_of(project, run).rest is None


def test_page_csv_and_api_list_the_largest_first_and_nothing_of_others(
    project: Project,
    runs: Callable[..., Run],
    artifacts: Path,
    client: Client,
    emil: User,
) -> None:
    other = Project.objects.create(name="Other", slug="other")
    small, large, strange = runs("a small one"), runs("big one"), runs("strange", other)
    for run, size in ((small, 2_000), (large, 7_000_000), (strange, 9_000)):
        model_of(run, size)
    client.force_login(emil)

    page = client.get(f"/p/{project.slug}/space/").content.decode()
    assert page.index("big one") < page.index("a small one")
    assert "7.0 MB" in page
    assert "strange" not in page
    page = client.get(f"/p/{project.slug}/space/?sort=models").content.decode()
    assert page.index("a small one") < page.index("big one")
    assert client.get(f"/p/{project.slug}/space/?sort=nonsense").status_code == 200

    sent = client.get(f"/p/{project.slug}/space/space.csv").getvalue().decode()
    rows = list(csv.DictReader(io.StringIO(sent)))
    assert [(row["id"], row["total"]) for row in rows] == [
        (large.pk, "7000000"),
        (small.pk, "2000"),
    ]

    answer = client.get(f"/api/v1/projects/{project.slug}/space").json()
    read = types.Space.read(answer)
    assert [line.id for line in read.lines] == [large.pk, small.pk]
    assert read.total == read.models == 7_002_000
    assert read.extra == {}
    assert all(line.extra == {} for line in read.lines)
    assert read.free
    assert client.get("/api/v1/projects/other/space").status_code == 404
    assert client.get("/p/other/space/").status_code == 404
    assert client.get("/p/other/space/space.csv").status_code == 404


def test_folders_are_measured_once_in_ten_minutes_and_on_demand(
    project: Project, runs: Callable[..., Run], artifacts: Path, client: Client, emil: User
) -> None:
    run = runs("one")
    log = written(artifacts / "runs" / run.pk / "events.jsonl", 100)
    assert line_of(project, run).rest == 100
    log.write_bytes(b"x" * 250)
    assert line_of(project, run).rest == 100
    first = project_space(project).measured_at
    found = project_space(project, measure=True)
    assert [line.rest for line in found.lines] == [250]
    assert first is not None
    assert found.measured_at is not None
    assert found.measured_at > first
    client.force_login(emil)
    assert "measure=now" in client.get(f"/p/{project.slug}/space/").content.decode()
    log.write_bytes(b"x" * 400)
    asked = client.get(f"/api/v1/projects/{project.slug}/space?measure=true").json()
    assert types.Space.read(asked).rest == 400


def test_a_folder_that_was_deleted_is_measured_again(
    project: Project, runs: Callable[..., Run], artifacts: Path
) -> None:
    run = runs("one")
    written(artifacts / "runs" / run.pk / "attempt-1" / "x" / "weights", 100)
    assert line_of(project, run).rest == 100
    FolderDeletion.objects.create(folder=f"runs/{run.pk}/attempt-1/x")
    services.runs_sweep()
    assert line_of(project, run).rest == 0


# The quota.


@pytest.fixture
def full(project: Project, runs: Callable[..., Run], artifacts: Path) -> Run:
    """A project that keeps 2.0 kB of a quota of 2.0 kB."""
    run = runs("large")
    model_of(run, 2_000)
    services.quota_set(project=project, space_bytes=2_000)
    return run


def test_over_its_quota_a_project_launches_nothing_that_keeps_files_by_form_or_api(
    project: Project, full: Run, client: Client, emil: User, wire: FakeWire
) -> None:
    client.force_login(emil)
    logged = AuditEvent.objects.count()
    sent = {"kind": "drill", "name": "one more", "config": {"steps": 3}, "seeds": 2}
    runs = f"/api/v1/projects/{project.slug}/runs"
    answer = client.post(runs, json.dumps(sent), content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (409, "space_quota_used")
    assert "2.0 kB of the 2.0 kB" in answer.json()["message"]
    address = f"/p/{project.slug}/runs/new/drill/"
    form = client.get(address).context["form"]
    filled = {name: form[name].value() for name in form.fields}
    filled = {
        name: value for name, value in filled.items() if value is not None and value is not False
    }
    page = client.post(address, filled)
    assert page.status_code == 422
    assert page.context["form"].non_field_errors()
    assert f"/p/{project.slug}/space/" in page.content.decode()
    assert Run.objects.count() == 1
    assert AuditEvent.objects.count() == logged
    services.quota_set(project=project, space_bytes=2_001)
    assert client.post(address, filled).status_code == 302


def test_over_its_quota_checks_go_on_and_so_does_what_has_begun(
    project: Project, full: Run, wire: FakeWire
) -> None:
    answers = [{"prompt": "Why?", "response": "Because."}]
    reward = {"type": "token_count", "token": "good"}
    check = services.reward_try(project=project, reward=reward, answers=answers, inputs={})
    assert check.kind == "check"
    report(full, Opened(), Failed("killed", "machine", "It is gone.", retryable=True))
    assert (full.state, full.attempt) == ("queued", 2)
    report(full, Failed("broken", "data", "It is broken."), attempt=2)
    assert services.run_resume(run=full).attempt == 3


def test_another_projects_files_do_not_count(
    project: Project, full: Run, runs: Callable[..., Run]
) -> None:
    other = Project.objects.create(name="Other", slug="other")
    services.quota_set(project=other, space_bytes=10)
    assert runs("theirs", other).attempt == 1


def test_an_admin_sets_the_limits_by_page_and_api_and_the_log_says_so(
    project: Project, client: Client, emil: User, ada: User, artifacts: Path
) -> None:
    page, api = f"/p/{project.slug}/space/limits/", f"/api/v1/projects/{project.slug}/limits"
    client.force_login(emil)
    assert client.post(page, {"space_gb": "1"}).status_code == 403
    assert client.patch(api, "{}", content_type="application/json").status_code == 403
    client.force_login(ada)
    assert client.post(page, {"space_gb": "1.5", "keep_days": "30"}).status_code == 302
    row = RunQuota.objects.get(project=project)
    assert (row.runs_at_once, row.space_bytes, row.keep_days) == (None, 1_500_000_000, 30)
    refused = client.post(page, {"space_gb": "-1", "keep_days": "many"})
    assert refused.status_code == 422
    assert refused.context["limits_form"].errors.keys() == {"space_gb", "keep_days"}
    shown = client.get(f"/p/{project.slug}/space/").context["limits_form"]
    assert (shown["space_gb"].value(), shown["keep_days"].value()) == ("1.5", 30)
    sent = json.dumps({"space_bytes": None, "runs_at_once": 2})
    answer = client.patch(api, sent, content_type="application/json").json()
    assert answer == {
        "runs_at_once": 2, "space_bytes": None, "gpu_hours": None, "keep_days": 30
    }  # fmt: skip
    for field in ("space_bytes", "keep_days", "runs_at_once"):
        wrong = client.patch(api, json.dumps({field: 0}), content_type="application/json")
        assert (wrong.status_code, wrong.json()["field"]) == (400, field)
    logged = AuditEvent.objects.filter(action="project.quota_set").order_by("pk")
    assert [event.details for event in logged] == [
        {"space_bytes": 1_500_000_000, "keep_days": 30},
        {"space_bytes": None, "runs_at_once": 2},
    ]
    said = client.get(f"/p/{project.slug}/audit-log/").content.decode()
    assert "the quota of disk space in bytes to 1,500,000,000" in said


@pytest.mark.parametrize(("used", "percent"), [(900, 0), (910, 91), (1_500, 150)])
def test_the_overview_tells_engineers_and_admins_above_ninety_percent(
    project: Project,
    runs: Callable[..., Run],
    client: Client,
    emil: User,
    rita: User,
    used: int,
    percent: int,
) -> None:
    model_of(runs("one"), used)
    services.quota_set(project=project, space_bytes=1_000)
    api = f"/api/v1/projects/{project.slug}/overview"
    client.force_login(emil)
    needs = {one["key"]: one for one in client.get(api).json()["needs"]}
    assert needs.get("space", {"n": 0})["n"] == percent
    if percent:
        assert needs["space"]["words"] == f"{percent} % of the quota of disk space is used"
        assert needs["space"]["url"] == f"/p/{project.slug}/space/"
    client.force_login(rita)
    assert "space" not in {one["key"] for one in client.get(api).json()["needs"]}
