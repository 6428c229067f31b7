"""The embedded servers stop with their last user, however that user ended, and keep their data."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.common import embedded

HOLD = """
import sys, time
from apps.common import embedded
with embedded.servers():
    print("in", flush=True)
    sys.stdin.read()
print("out", flush=True)
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One folder for all, since making a database cluster takes seconds; short, for sockets."""
    path = Path(tempfile.mkdtemp(prefix="concord-embedded-"))
    path.chmod(0o755)  # PostgreSQL, which never runs as root, must be able to enter
    yield path
    shutil.rmtree(path, ignore_errors=True)


def user(folder: Path) -> subprocess.Popen[str]:
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in {"DATABASE_URL", "REDIS_URL", "CACHE_URL"}
    }
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env=environment | {"VAR_DIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "in\n"
    return process


def leave(process: subprocess.Popen[str]) -> None:
    process.stdin.close()
    assert process.stdout.read() == "out\n"
    assert process.wait(timeout=30) == 0
    process.stdout.close()


def test_the_last_to_leave_stops_the_servers_also_after_a_kill(folder: Path) -> None:
    first, second = user(folder), user(folder)
    os.kill(first.pid, signal.SIGKILL)  # leaves no trace but its dropped lock
    first.communicate()
    assert embedded.redis_answers(folder)
    assert embedded.postgres_runs(folder)
    leave(second)
    assert not embedded.redis_answers(folder)
    assert not embedded.postgres_runs(folder)


def test_a_server_that_was_killed_is_started_again_with_its_data(folder: Path) -> None:
    import psycopg
    import redis

    url = embedded.ensure_redis(folder)
    try:
        client = redis.Redis.from_url(url)
        client.set("kept", "yes")
        client.close()
        time.sleep(1.2)  # the append-only file is flushed once a second
        os.kill(int((folder / "redis" / "redis.pid").read_text()), signal.SIGKILL)
        time.sleep(0.2)
        assert not embedded.redis_answers(folder)
        client = redis.Redis.from_url(embedded.ensure_redis(folder))
        assert client.get("kept") == b"yes"
        client.close()

        address = embedded.ensure_postgres(folder)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("create table kept (word text)")
            connection.execute("insert into kept values ('yes')")
        pid = int((folder / "postgres" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while embedded.postgres_runs(folder) and time.monotonic() < deadline:
            time.sleep(0.1)
        with psycopg.connect(embedded.ensure_postgres(folder)) as connection:
            assert connection.execute("select word from kept").fetchone() == ("yes",)
    finally:
        embedded.stop_redis(folder)
        embedded.stop_postgres(folder)


def test_a_long_folder_name_still_gets_a_short_socket(folder: Path) -> None:
    deep = folder / ("x" * 90)
    assert len(str(embedded.redis_socket(deep))) < 100
