"""A GPU machine with `workers/`, `measures/`, the broker, the artifact store, and nothing else.

Web side and worker share a Redis and an S3. The worker runs from a copy of those two folders, with
an interpreter that cannot import Django, psycopg or our own apps, and knows no database.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from apps.training import services
from apps.training.models import Run
from tests.training.stack import QUICK, ROOT, Process, celery, database_url, wait_until
from tests.workers.s3 import Bucket, bucket, s3
from workers.supervisor.child import end_with_parent

__all__ = ["bucket", "s3"]  # fixtures
FORBIDDEN = ("django", "psycopg", "apps", "config")
GUARD = f"""
import sys
class _Absent:
    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in {FORBIDDEN!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, _Absent())
"""


class Machine:
    """Another machine, as far as a process can be one: its own folder, and no variables but those
    that a GPU machine is given."""

    def __init__(self, folder: Path, given: dict[str, str]) -> None:
        self.folder, self.log = folder, folder / "worker.log"
        for package in ("workers", "measures"):
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / package, folder / package, ignore=ignore)
        (folder / "sitecustomize.py").write_text(GUARD)
        self.variables = given | {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(folder),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "WORK_DIR": str(folder / "work"),
            "REDIS_URL": os.environ["REDIS_URL"],
        }

    def python(self, program: str) -> str:
        """What a program prints there."""
        argv = [sys.executable, "-c", program]
        ended = subprocess.run(
            argv, cwd=self.folder, env=self.variables, capture_output=True, text=True
        )
        return ended.stdout + ended.stderr

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        with self.log.open("wb") as file:
            process = subprocess.Popen(
                celery("workers.celery", "gpu,cpu", "remote"),
                cwd=self.folder,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


@pytest.fixture
def machine(bucket: Bucket, tmp_path: Path) -> Iterator[Machine]:
    folder = tmp_path / "machine"
    folder.mkdir()
    quick = {name: str(QUICK[name]) for name in ("RUN_GRACE_SECONDS",)}
    machine = Machine(folder, bucket.environment | quick)
    with machine.working():
        yield machine


@pytest.fixture
def web(
    bucket: Bucket, tmp_path: Path, transactional_db: None, settings: Settings
) -> Iterator[None]:
    """The web side, whose event worker has the database."""
    settings.ARTIFACTS_URL = bucket.url
    for name in ("RUN_RESEND_SECONDS", "RUN_SILENCE_SECONDS"):
        setattr(settings, name, 10)
    events = Process(
        celery("config.celery", "events", "events"),
        {"DATABASE_URL": database_url(), "ARTIFACTS_URL": bucket.url},
        tmp_path / "events.log",
    )
    events.start()
    yield
    events.close()


def ended(run: Run, machine: Machine, *, state: str = "finished") -> Run:
    wait_until(
        lambda: Run.objects.filter(pk=run.pk, state__in=Run.ENDED_STATES).exists(),
        meanwhile=services.runs_sweep,
        seconds=600,
        what=f"the end of {run.name}",
    )
    run.refresh_from_db()
    assert run.state == state, (run.failure_message, machine.log.read_text()[-3000:])
    return run
