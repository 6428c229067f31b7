"""`manage.py start` and `python -m workers.start`: one program, with its secrets in files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from workers import start


def test_a_file_is_its_variable_and_one_that_is_set_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("from a file\n")
    monkeypatch.delenv("SECRET_KEY", raising=False)
    monkeypatch.setenv("SECRET_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("METRICS_TOKEN", "set itself")
    monkeypatch.setenv("METRICS_TOKEN_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")  # a library's own, left as it is
    start.read_secret_files()
    assert os.environ["SECRET_KEY"] == "from a file"
    assert os.environ["METRICS_TOKEN"] == "set itself"
    assert "SECRET_KEY_FILE" not in os.environ
    assert os.environ["SSL_CERT_FILE"] == "/nonexistent"


def test_a_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL_FILE", "/nonexistent/redis")
    with pytest.raises(start.BadSecretFile, match="REDIS_URL_FILE=/nonexistent/redis"):
        start.read_secret_files()


def test_a_program_is_refused_without_its_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    with pytest.raises(CommandError, match="DATABASE_URL must be set"):
        call_command("start", "events")
    told = subprocess.run(
        [sys.executable, "-m", "workers.start", "train"],
        env={k: v for k, v in os.environ.items() if not k.startswith("REDIS_URL")},
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 2
    assert "REDIS_URL (or REDIS_URL_FILE) must name the broker" in told.stderr


def test_the_program_takes_the_process_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    became: list[tuple[str, ...]] = []
    monkeypatch.setattr(start, "become", became.append)
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@/none")
    monkeypatch.setenv("REDIS_URL", "redis://nowhere")
    for name in ("DATABASE_POOL", "OMP_NUM_THREADS", "PYTHONUNBUFFERED"):
        monkeypatch.setenv(name, "1")
    call_command("start", "web", "--host", "::1")
    call_command("start", "events")
    assert "::1" in became[0]
    assert became[1][became[1].index("-Q") + 1] == "events,default"


def test_workers_start_without_django() -> None:
    told = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import sys, workers.start; print('django' in sys.modules, 'celery' in sys.modules)",
        ],
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == ["False", "False"]
