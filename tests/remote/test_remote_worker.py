"""A job on a machine that has neither Django nor the database, over S3."""

import os
from pathlib import Path

import pytest

from apps.accounts.models import Project
from apps.training import selectors, services
from apps.training.models import RunAttempt
from tests.remote.conftest import FORBIDDEN, Machine, ended
from tests.workers.s3 import Bucket
from workers.artifacts import Store

pytestmark = [pytest.mark.stack, pytest.mark.spread]


def test_it_runs_jobs_to_their_end_without_django_and_without_the_database(
    web: None, machine: Machine, bucket: Bucket, project: Project, tmp_path: Path
) -> None:
    for package in FORBIDDEN:
        assert f"No module named '{package}'" in machine.python(f"import {package}")
    assert machine.python("import workers; print(workers.__file__)").startswith(str(machine.folder))
    drill = services.run_launch(
        project=project,
        kind="drill",
        name="a drill",
        config={"steps": 6, "step_seconds": 0.01, "checkpoint_every": 3},
        inputs={},
        seed=3,
    )
    run = ended(drill, machine)
    assert run.step == 6
    checkpoint = selectors.checkpoint_for_use(run)
    store = Store(bucket.url)
    assert store.get_tree(
        checkpoint.uri, sha256=checkpoint.sha256, cache=tmp_path / "look"
    ).is_dir()
    assert f"runs/{run.pk}/attempt-1/events.jsonl" in bucket.names()
    attempt = RunAttempt.objects.get(run=run)
    assert "django" not in attempt.environment["versions"]
    assert not (Path(os.environ["VAR_DIR"]) / "artifacts" / "runs" / run.pk).exists()
