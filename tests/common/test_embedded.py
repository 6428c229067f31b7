"""The embedded servers stop with their last user, however that user ended, and keep their data."""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from apps.common import embedded
from apps.common.embedded.locks import UsersLock
from apps.common.environment import make_private, private_folder
from apps.common.scratch import scratch_dir

pytestmark = pytest.mark.spread

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
    yield path
    shutil.rmtree(path, ignore_errors=True)


PARENT = """
import subprocess, sys
from apps.common import embedded
with embedded.servers():
    print("in", flush=True)
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = subprocess.Popen(sleep, pass_fds=embedded.shared_descriptors())
    print(child.pid, flush=True)
    child.wait()
"""


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def user(folder: Path, code: str = HOLD) -> subprocess.Popen[str]:
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in {"DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "CACHE_URL"}
    }
    process = subprocess.Popen(
        [sys.executable, "-c", code],
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


@pytest.fixture
def in_use(folder: Path) -> Iterator[None]:
    """For servers that a test starts itself: else they would be stopped as nobody's."""
    with UsersLock(folder) as lock:
        with lock.exclusive_start():
            pass
        yield


def test_the_last_to_leave_stops_the_servers_also_after_a_kill(folder: Path) -> None:
    first, second = user(folder), user(folder)
    os.kill(first.pid, signal.SIGKILL)  # leaves no trace but its dropped lock
    first.communicate()
    assert not embedded.redis_is_gone(folder)
    assert embedded.postgres_runs(folder)
    leave(second)
    assert embedded.redis_is_gone(folder)
    assert not embedded.postgres_runs(folder)


def test_killing_the_last_user_stops_the_servers_once_its_children_have_ended(folder: Path) -> None:
    holder = user(folder, PARENT)
    child = int(holder.stdout.readline())
    kill(holder.pid)
    holder.wait()  # its output stays open: the child has it too
    holder.stdin.close()
    holder.stdout.close()
    assert embedded.postgres_runs(folder)  # the child still works with it
    kill(child)
    wait_for(lambda: embedded.redis_is_gone(folder) and not embedded.postgres_runs(folder))


def test_others_on_this_machine_can_neither_list_nor_read_what_lies_there(folder: Path) -> None:
    opened = folder / "artifacts" / "private" / "test.jsonl"
    opened.parent.mkdir(parents=True)
    opened.write_text("held out")
    opened.chmod(0o644)
    for parent in (opened.parent, opened.parent.parent):
        parent.chmod(0o755)
    process = user(folder)
    try:
        assert make_private(folder, leave=("postgres",)) >= 3
        assert stat.S_IMODE(opened.stat().st_mode) == 0o600
        for path in folder.rglob("*"):
            assert not path.stat().st_mode & 0o077 or path.is_symlink(), path
        # below root PostgreSQL's account passes through it, by its group
        assert stat.S_IMODE(folder.stat().st_mode) in {0o700, 0o710}
    finally:
        leave(process)


@pytest.mark.parametrize(("before", "after"), [(0o711, 0o710), (0o755, 0o710), (0o700, 0o700)])
def test_a_folder_is_closed_to_others_and_to_the_server_s_account_stays_open(
    tmp_path: Path, before: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below root a server of its own may run in there, whose account passes by the group."""
    (tmp_path / "scratch").mkdir(mode=0o700)
    for path in (tmp_path, tmp_path / "scratch"):
        path.chmod(before)
    monkeypatch.setenv("VAR_DIR", str(tmp_path))
    umask = os.umask(0o077)
    try:
        for path in (private_folder(tmp_path), scratch_dir()):
            assert stat.S_IMODE(path.stat().st_mode) == after
    finally:
        os.umask(umask)


def test_a_number_that_another_process_got_is_neither_believed_nor_stopped(tmp_path: Path) -> None:
    """A server that was killed leaves its file, and numbers of processes come again."""
    (tmp_path / "postgres").mkdir()
    other = subprocess.Popen(["sleep", "600"], cwd="/")
    try:
        (tmp_path / "postgres" / "postmaster.pid").write_text(f"{other.pid}\n")
        assert not embedded.postgres_runs(tmp_path)
        embedded.stop_postgres(tmp_path)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.usefixtures("in_use")
def test_a_server_that_ends_while_it_is_waited_for_is_started_again(folder: Path) -> None:
    embedded.ensure_redis(folder)
    try:
        pid = int((folder / "redis" / "redis.pid").read_text())
        os.kill(pid, signal.SIGSTOP)  # listens, and does not answer
        killed = threading.Timer(1, os.kill, (pid, signal.SIGKILL))
        killed.start()
        client = redis.Redis.from_url(embedded.ensure_redis(folder))
        killed.join()
        assert client.ping()
        client.close()
        assert int((folder / "redis" / "redis.pid").read_text()) != pid
    finally:
        embedded.stop_redis(folder)


@pytest.mark.usefixtures("in_use")
def test_a_server_that_was_killed_is_started_again_with_its_data(folder: Path) -> None:
    url = embedded.ensure_redis(folder)
    try:
        client = redis.Redis.from_url(url)
        client.set("kept", "yes")
        client.close()
        time.sleep(1.2)  # the append-only file is flushed once a second
        os.kill(int((folder / "redis" / "redis.pid").read_text()), signal.SIGKILL)
        time.sleep(0.2)
        assert embedded.redis_is_gone(folder)
        client = redis.Redis.from_url(embedded.ensure_redis(folder))
        assert client.get("kept") == b"yes"
        client.close()

        embedded.ensure_postgres(folder)
        address = embedded.postgres_url(folder, embedded.SUPERUSER)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("create table kept (word text)")
            connection.execute("insert into kept values ('yes')")
        pid = int((folder / "postgres" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while embedded.postgres_runs(folder) and time.monotonic() < deadline:
            time.sleep(0.1)
        embedded.ensure_postgres(folder)
        with psycopg.connect(address) as connection:
            assert connection.execute("select word from kept").fetchone() == ("yes",)
    finally:
        embedded.stop_redis(folder)
        embedded.stop_postgres(folder)


def redis_servers(folder: Path) -> set[int]:
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            program, works_in = (entry / "exe").readlink(), (entry / "cwd").readlink()
            if program.name == "redis-server" and works_in.is_relative_to(folder):
                found.add(int(entry.name))
    return found


@pytest.fixture
def server(folder: Path, in_use: None) -> Iterator[int]:
    """Redis alone, on a file of its own; its process."""
    shutil.rmtree(folder / "redis", ignore_errors=True)
    embedded.ensure_redis(folder)
    (pid,) = redis_servers(folder)
    yield pid
    for left in redis_servers(folder):
        kill(left)


def test_a_server_that_is_stopped_for_a_while_is_not_replaced(
    folder: Path, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.common.embedded.redis_server.START_SECONDS", 0.3)
    said: list[str] = []
    keeper = embedded.ServerKeeper(folder, {"Redis"}, echo=lambda _, text: said.append(text))
    os.kill(server, signal.SIGSTOP)
    try:
        keeper.check()
        with pytest.raises(embedded.EmbeddedServerError, match=f"process {server}"):
            embedded.ensure_redis(folder)
        (folder / "redis" / "redis.sock").unlink()  # as if it could not be reached at all
        with pytest.raises(embedded.EmbeddedServerError, match=f"process {server}"):
            embedded.ensure_redis(folder)
        assert redis_servers(folder) == {server}
    finally:
        os.kill(server, signal.SIGCONT)
    assert said == []


@pytest.mark.parametrize("damage", ["cut", "garbage", "garbage from the start"])
def test_a_damaged_file_is_repaired_and_a_copy_kept(folder: Path, server: int, damage: str) -> None:
    client = redis.Redis(unix_socket_path=str(embedded.redis_socket(folder)))
    for number in range(100):
        client.set(f"key-{number}", "x" * 100)
    client.close()
    embedded.stop_redis(folder)
    file = folder / "redis" / "appendonly.aof"
    text = file.read_bytes()
    half = len(text) // 2
    file.write_bytes(
        {
            "cut": text[:-7],
            "garbage": text[:half] + b"\x00not redis\r\n" * 20 + text[half:],
            "garbage from the start": b"not redis at all\r\n" * 40,
        }[damage]
    )
    client = redis.Redis.from_url(embedded.ensure_redis(folder))
    kept = client.dbsize()
    client.set("more", "1")
    client.close()
    copies = list(file.parent.glob("appendonly.damaged-*.aof"))
    if damage == "cut":
        assert (kept, copies) == (99, [])
    else:
        assert len(copies) == 1
        assert kept == (0 if damage == "garbage from the start" else pytest.approx(50, abs=5))


def test_a_long_folder_name_still_gets_a_short_socket(folder: Path) -> None:
    deep = folder / ("x" * 90)
    assert len(str(embedded.redis_socket(deep))) < 100
