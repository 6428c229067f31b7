"""What takes the space: sizes as they lie on the disk, by page, CSV, API and client."""

import csv
import io
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.snapshots.models import Snapshot
from apps.training import services
from apps.training.models import Artifact, Checkpoint, Run
from apps.training.selectors.space import SpaceLine, project_space
from concord import types
from tests.training.conftest import FakeWire

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
    assert read.free
    assert client.get("/api/v1/projects/other/space").status_code == 404
    assert client.get("/p/other/space/").status_code == 404
    assert client.get("/p/other/space/space.csv").status_code == 404
