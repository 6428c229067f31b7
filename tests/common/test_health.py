"""/healthz, and the signs of life it reads."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from django.conf import settings as django_settings

from apps.common import health
from apps.common.processes import Program, RotatedLog, Supervisor
from workers import alive
from workers.contract import wire

EVERYTHING = [
    wire.QUEUE_EVENTS,
    wire.QUEUE_DEFAULT,
    wire.QUEUE_IMPORTS,
    wire.QUEUE_STATISTICS,
    wire.QUEUE_CPU,
    wire.SCHEDULER,
]


@pytest.fixture
def beating():
    """Signs of life as the processes of `manage.py up` give them."""
    client = redis.Redis.from_url(django_settings.REDIS_URL)
    # Workers of other tests that this process ran are remembered for half a minute.
    every = {alive.alive_key(name) for part in health.PARTS.values() for name in part}
    client.delete(*every, *[alive.alive_key(name) for name in EVERYTHING])
    pulse = alive.Pulse(django_settings.REDIS_URL)
    pulse.names = list(EVERYTHING)
    pulse.beat()
    yield client
    client.delete(*[alive.alive_key(name) for name in EVERYTHING])
    client.close()


@pytest.mark.django_db
def test_healthz_says_ok_to_anyone_when_every_part_is_up(client, beating):
    answer = client.get("/healthz")
    assert answer.status_code == 200, answer.json()
    assert answer.json()["status"] == "ok"
    assert set(answer.json()["checks"]) >= {"database", "migrations", "redis", "event worker"}


@pytest.mark.django_db
def test_healthz_asks_redis_through_one_connection(client, beating):
    before = beating.info("stats")["total_connections_received"]
    client.get("/healthz")
    assert beating.info("stats")["total_connections_received"] - before == 1


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_probes_answer_without_workers_host_https_or_sign_in(client, settings, path):
    settings.SECURE_SSL_REDIRECT = True
    settings.REDIS_URL = "unix:///nonexistent/redis.sock"
    for ask in (client.get, client.head):
        assert ask(path, headers={"host": "10.0.0.7"}).status_code == 200


@pytest.mark.django_db
def test_a_missing_migration_or_database_makes_a_process_unready_but_alive(client, monkeypatch):
    monkeypatch.setattr(health, "migrations", lambda: "1 not applied; run manage.py migrate")
    assert client.get("/readyz").status_code == 503
    monkeypatch.setattr(health, "migrations", lambda: None)
    monkeypatch.setattr(health, "database", lambda: "the database does not answer")
    assert client.get("/readyz").status_code == 503
    assert client.get("/livez").status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("gone", "part"),
    [
        (wire.QUEUE_EVENTS, "event worker"),
        (wire.QUEUE_IMPORTS, "imports worker"),
        (wire.QUEUE_STATISTICS, "statistics worker"),
        (wire.QUEUE_CPU, "training worker"),
        (wire.SCHEDULER, "scheduler"),
    ],
)
def test_healthz_names_the_part_that_gave_no_sign_of_life(client, beating, gone, part):
    beating.delete(alive.alive_key(gone))
    answer = client.get("/healthz")
    assert answer.status_code == 503
    unwell = {name for name, state in answer.json()["checks"].items() if state != "ok"}
    assert unwell == {part}


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["scorer", "answerer"])
def test_a_missing_resident_process_is_missed_only_while_somebody_waits(client, beating, name):
    channel, _ = health.RESIDENT[name]
    signs = {one: alive.alive_key(found.sign) for one, (found, _) in health.RESIDENT.items()}
    for sign in signs.values():
        beating.set(sign, "here:1", ex=20)
    beating.delete(signs[name], channel.stream)
    resting = client.get("/healthz")
    assert resting.status_code == 200
    assert "503" in resting.json()["remarks"][name]
    beating.xadd(channel.stream, {"id": "r", "request": "{}"})
    try:
        missed = client.get("/healthz")
        assert missed.status_code == 503
        assert missed.json()["checks"][name].endswith(": 1")
        beating.set(signs[name], "here:1", ex=5)
        well = client.get("/healthz")
        assert (well.status_code, well.json()["remarks"]) == (200, {})
    finally:
        beating.delete(*signs.values(), channel.stream)


@pytest.mark.django_db
def test_a_gpu_worker_is_a_training_worker_too(client, beating):
    beating.delete(alive.alive_key(wire.QUEUE_CPU))
    beating.set(alive.alive_key(wire.QUEUE_GPU), "gpu-box:1", ex=5)
    assert client.get("/healthz").status_code == 200
    beating.delete(alive.alive_key(wire.QUEUE_GPU))


@pytest.mark.django_db
def test_healthz_is_503_and_names_redis_when_the_broker_is_down(client, settings):
    settings.REDIS_URL = "unix:///nonexistent/redis.sock"
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["redis"] != "ok"
    assert answer.json()["checks"]["database"] == "ok"
    assert "nonexistent" not in answer.content.decode()


@pytest.mark.django_db
def test_healthz_counts_migrations_that_are_missing(client, beating, monkeypatch):
    monkeypatch.setattr(health, "_migrated", False)
    monkeypatch.setattr(
        "django.db.migrations.executor.MigrationExecutor.migration_plan",
        lambda self, targets: [("one", False), ("two", False)],
    )
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["migrations"].startswith("2 not applied")


def test_a_pulse_expires_and_is_not_written_at_every_beat(beating):
    key = alive.alive_key(wire.QUEUE_EVENTS)
    assert 0 < beating.ttl(key) <= alive.ALIVE_SECONDS
    pulse = alive.Pulse(django_settings.REDIS_URL)
    pulse.names = [wire.QUEUE_EVENTS]
    pulse.beat()
    beating.delete(key)
    pulse.beat()
    assert not beating.exists(key)
    pulse._due = time.monotonic()
    pulse.beat()
    assert beating.exists(key)


def test_a_pulse_without_a_broker_is_silent():
    pulse = alive.Pulse("unix:///nonexistent/redis.sock")
    pulse.names = ["events"]
    pulse.beat()


def test_the_start_line_asks_an_address_that_no_redirect_hides(db, monkeypatch, tmp_path):
    from apps.common.management.commands import up

    asked, said = [], []
    monkeypatch.setattr(up, "_answers", lambda url: asked.append(url) or True)
    banner = up._Banner(
        0.0,
        lambda _, line: said.append(line),
        lambda: said.append("workers"),
        need_sign_ins=False,
        var=tmp_path,
    )
    banner.show_when_ready()
    banner.show_when_ready()
    assert said.count("workers") == 1
    assert [url.rpartition("/")[2] for url in asked] == ["livez"]
    assert any("Concord answers at" in line for line in said)


# The supervisor restarts what ends, stops all of it, and leaves nothing behind when killed.


SLEEPER = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(600)"


def sleeper(name: str, code: str = SLEEPER, *, once: bool = False) -> Program:
    return Program(name, (sys.executable, "-c", code), once=once)


def wait_for(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_program_that_ends_is_started_again_and_a_one_off_is_not(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor = Supervisor(
        [sleeper("web"), sleeper("demo", "print('built')", once=True)],
        logs=tmp_path,
        echo=lambda name, line: said.append(f"{name} {line}"),
    )
    supervisor.start()
    try:
        web, demo = supervisor.children
        first = web.pid
        wait_for(lambda: demo.poll() is not None)
        os.kill(first, signal.SIGKILL)

        def restarted() -> bool:
            supervisor.tick()
            return web.pid != first and web.ended is None

        wait_for(restarted)
        assert any("status -9" in line for line in said)
        assert not any("starting demo" in line for line in said)
    finally:
        supervisor.shut_down()
    assert not lives(web.pid)
    assert "built" in (tmp_path / "demo.log").read_text()


def test_what_may_come_later_does_not_hold_up_what_people_wait_for(tmp_path: Path) -> None:
    later = Program("train", (sys.executable, "-c", SLEEPER), delay=0.5)
    supervisor = Supervisor([sleeper("web"), later], logs=tmp_path, echo=lambda *_: None)
    supervisor.start()
    try:
        web, train = supervisor.children
        assert web.pid is not None
        assert train.pid is None
        supervisor.tick()
        assert train.pid is None

        def started() -> bool:
            supervisor.tick()
            return train.pid is not None

        wait_for(started)
        assert train.failures == 0
    finally:
        supervisor.shut_down()


def test_what_waits_for_the_web_servers_starts_when_they_answer(tmp_path: Path) -> None:
    later = Program("train", (sys.executable, "-c", SLEEPER), delay=3_600)
    supervisor = Supervisor([sleeper("web"), later], logs=tmp_path, echo=lambda *_: None)
    supervisor.start()
    try:
        web, train = supervisor.children
        first = web.pid
        supervisor.tick()
        assert train.pid is None
        supervisor.start_delayed()
        supervisor.tick()
        assert train.pid is not None
        assert web.pid == first
    finally:
        supervisor.shut_down()


def test_a_log_begins_again_before_it_grows_too_large(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("apps.common.processes.LOG_BYTES", 100)
    log = RotatedLog(tmp_path / "web.log")
    for number in range(100):
        log.write(f"line {number:04d}\n".encode())
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert sorted(kept) == ["web.log", "web.log.1", "web.log.2", "web.log.3"]
    assert all(len(text) <= 110 for text in kept.values())
    assert "line 0099" in kept["web.log"] + kept["web.log.1"]


def test_what_does_not_stop_in_time_is_killed_with_its_children(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("apps.common.processes.STOP_SECONDS", 1.0)
    stubborn = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    said: list[tuple[str, str]] = []
    supervisor = Supervisor(
        [sleeper("stubborn", stubborn)],
        logs=tmp_path,
        echo=lambda name, line: said.append((name, line)),
    )
    supervisor.start()
    wait_for(lambda: any(name == "stubborn" for name, _ in said))
    grandchild = int(next(line for name, line in said if name == "stubborn"))
    supervisor.shut_down()
    wait_for(lambda: not lives(supervisor.children[0].pid) and not lives(grandchild))
    assert any(name == "concord" and re.match("stubborn .* killed$", line) for name, line in said)


def test_killing_the_supervisor_leaves_no_orphan(tmp_path: Path) -> None:
    code = f"""
import sys, time
from pathlib import Path
from apps.common.processes import Program, Supervisor
program = Program("web", (sys.executable, "-c", {SLEEPER!r}))
supervisor = Supervisor([program], logs=Path({str(tmp_path)!r}), echo=lambda n, l: None)
supervisor.start()
print(supervisor.children[0].pid, flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    assert lives(child)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: not lives(child))
