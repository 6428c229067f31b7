"""The web server as `manage.py up` starts it, for the length of a measurement."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.load.cpu import Servers

if TYPE_CHECKING:
    from apps.common.processes import Program

START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers: where, and the processes behind it."""

    url: str
    servers: Servers


@contextmanager
def web_server(var: Path, *, port: int, settings: str = "config.settings") -> Iterator[Running]:
    """Granian with the arguments and environment of `manage.py up`, in a session of its own.

    settings: another settings module, for the named alternatives. Ended with the block, as a group.
    """
    from apps.common.processes import web_programs

    program = web_programs(port=port, log_level="INFO", environment={})[0]
    with _running(program, var, settings) as process:
        url = f"http://127.0.0.1:{port}"
        _wait(process, f"{url}/healthz", var / f"{program.name}.log")
        yield Running(url, Servers.of(web=process.pid, var=var))


@contextmanager
def web_side(var: Path, *, port: int) -> Iterator[Running]:
    """Both web servers, the events worker and the imports worker as `manage.py up` starts them; the
    CPU of web is that of the first."""
    from apps.common.processes import programs

    wanted = [
        program
        for program in programs(port=port, log_level="INFO")
        if program.name in ("web-1", "web-2", "events", "imports")
    ]
    with ExitStack() as stack:
        started = [stack.enter_context(_running(p, var, "config.settings")) for p in wanted]
        url = f"http://127.0.0.1:{port}"
        _wait(started[0], f"{url}/healthz", var / "web-1.log")
        yield Running(url, Servers.of(web=started[0].pid, var=var))


@contextmanager
def _running(program: "Program", var: Path, settings: str) -> Iterator[subprocess.Popen[bytes]]:
    from apps.common.processes import end_with_parent

    with (var / f"{program.name}.log").open("ab") as output:
        process = subprocess.Popen(
            program.argv,
            env=os.environ | program.environment | {"DJANGO_SETTINGS_MODULE": settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent(os.getpid()),  # also when we are killed
        )
    try:
        yield process
    finally:
        _end(process)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - our own address
                return
        except urllib.error.HTTPError:
            return  # it answers, which is what counts
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    sys.exit(f"the web server did not start:\n{log.read_text()[-2000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it; what is left of its group after ten seconds is killed."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
