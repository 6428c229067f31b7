"""The supervisor restarts what ends, stops all of it, and leaves nothing behind when killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from apps.common.processes import Program, RotatedLog, Supervisor

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
        assert any("web ended with status -9" in line for line in said)
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
    assert ("concord", "stubborn did not stop in time: killed") in said


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
