"""The web server as `manage.py up` starts it, for the length of a measurement."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.cpu import Servers

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
    from apps.common.processes import end_with_parent, web_programs

    program = web_programs(port=port, log_level="INFO", environment={})[0]
    log = var / "web.log"
    with log.open("ab") as output:
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
        url = f"http://127.0.0.1:{port}"
        _wait(process, f"{url}/healthz", log)
        yield Running(url, Servers.of(web=process.pid, var=var))
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
