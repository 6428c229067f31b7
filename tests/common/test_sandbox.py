"""A child process reads for us: within its limits, without our secrets, and leaving nothing."""

import contextlib
import os
import time
from typing import Any

import pytest
from django.conf import settings as django_settings

from apps.common.errors import DomainError, Unavailable
from apps.common.sandbox import Limits, sandboxed, upload_limits, worker_limits
from apps.common.scratch import scratch_dir, scratch_folder, scratch_sweep
from config.celery import app

# Generous in time: what is tested is which limit is met, not how soon.
LIMITS = Limits(seconds=60, cpu_seconds=60, memory=1_000_000_000, decoded=10_000_000)


def values(function: str, limits: Limits = LIMITS, **arguments: Any) -> list[Any]:
    return list(sandboxed(f"tests.common.misbehaving:{function}", limits, **arguments))


def left_over() -> list[str]:
    return [path.name for path in scratch_dir().iterdir() if path.name[0] != "."]


def test_values_come_in_order_whatever_is_printed_beside_them() -> None:
    assert values("counts", to=5) == [0, 1, 2, 3, 4]
    assert left_over() == []


@pytest.mark.parametrize(
    ("function", "code", "limits"),
    [
        ("hangs", "file_too_slow", Limits(0.5, 60, 10**9, 10**7)),
        ("hangs", "file_too_slow", Limits(0, 60, 10**9, 10**7, idle=0.5)),
        ("computes", "file_too_slow", Limits(60, 1, 10**9, 10**7)),
        ("hoards", "file_needs_memory", LIMITS),
        ("crashes", "file_breaks_reader", LIMITS),
        ("errs", "file_breaks_reader", LIMITS),
        ("leaves", "file_breaks_reader", LIMITS),
        ("digs", "file_too_deep", LIMITS),
        ("writes", "file_unpacks_too_large", LIMITS),
        ("repeats", "file_unpacks_too_large", LIMITS),
        ("talks", "row_too_large", Limits(60, 60, 10**9, 10**8)),
        ("talks", "row_too_large", Limits(0, 60, 10**9, 10**8, line=17_000_000)),
    ],
)
def test_what_the_child_dies_of_becomes_a_refusal_of_the_file(
    function: str, code: str, limits: Limits
) -> None:
    with pytest.raises(DomainError) as caught:
        values(function, limits)
    assert (caught.value.code, caught.value.field) == (code, "file")
    assert left_over() == []


def test_a_worker_takes_longer_rows_than_a_page() -> None:
    (text,) = values("talks", Limits(60, 60, 10**9, 10**8, line=18_000_000))
    assert len(text) == 17_000_000
    assert worker_limits().line > upload_limits().line


def test_a_refusal_keeps_its_row_and_details() -> None:
    with pytest.raises(DomainError) as caught:
        values("refuses")
    error = caught.value
    assert (error.code, error.row, error.details) == ("odd", 3, [{"row": 3}])


def test_the_child_knows_no_secret_and_ends_when_nobody_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "METRICS_TOKEN", "EMAIL_URL"):
        monkeypatch.setenv(name, "secret")
    with contextlib.closing(sandboxed("tests.common.misbehaving:tells", LIMITS)) as found:
        told = next(found)
        os.kill(told["pid"], 0)
    with pytest.raises(ProcessLookupError):
        os.kill(told["pid"], 0)
    assert not {"DATABASE_URL", "REDIS_URL", "SECRET_KEY"} & set(told["environment"])
    assert not [name for name in told["environment"] if "TOKEN" in name or "EMAIL" in name]
    assert not os.path.exists(told["scratch"])  # noqa: PTH110


def test_only_so_many_files_are_looked_at_at_once(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.UPLOAD_PARSERS = 1
    monkeypatch.setattr("apps.common.sandbox._WAIT_FOR_SLOT", 0.0)
    with contextlib.closing(sandboxed("tests.common.misbehaving:tells", LIMITS)) as first:
        next(first)
        with pytest.raises(Unavailable) as caught:
            values("counts", to=1)
        assert caught.value.code == "parsers_busy"
        worker = Limits(0, 60, 10**9, 10**7)  # nobody waits for it, so it takes no slot
        assert values("counts", worker, to=1) == [0]
    assert values("counts", to=1) == [0]


def test_scratch_files_are_private_and_swept_when_they_are_old() -> None:
    assert scratch_dir().stat().st_mode & 0o777 == 0o700
    assert scratch_dir() == django_settings.FILE_UPLOAD_TEMP_DIR
    with scratch_folder("test") as folder:
        (folder / "file").write_text("x")
    assert not folder.exists()
    old, new = scratch_dir() / "killed-old", scratch_dir() / "killed-new"
    for path in (old, new):
        path.mkdir()
        (path / "upload").write_text("x")
    os.utime(old, (time.time() - 90_000,) * 2)
    assert scratch_sweep() == 1
    assert (old.exists(), new.exists()) == (False, True)
    assert scratch_sweep(older_than=-1) >= 1
    assert not new.exists()


def test_every_task_of_the_schedule_is_one_that_a_worker_knows() -> None:
    app.loader.import_default_modules()
    wanted = {entry["task"] for entry in app.conf.beat_schedule.values()}
    assert "apps.common.tasks.sweep_scratch" in wanted
    assert wanted <= set(app.tasks)
