"""Every test process has its own embedded PostgreSQL and Redis, in a folder of its own.

Where pytest-xdist runs the tests in several processes, each of them has its own; the process that
only hands out tests has none.
"""

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import psycopg

_stack = contextlib.ExitStack()


def _start_servers() -> None:
    folder = Path(tempfile.mkdtemp(prefix="concord-test-"))
    (folder / "static").mkdir()  # WhiteNoise warns of a folder that is not there
    os.environ["VAR_DIR"] = str(folder)
    for name in (
        "DATABASE_URL",
        "DATABASE_OWNER_URL",
        "DATABASE_DIRECT_URL",
        "REDIS_URL",
        "CACHE_URL",
        "ARTIFACTS_URL",
        "PRODUCTION",
        "DEBUG",
    ):
        os.environ.pop(name, None)
    for name in ("API_RATE", "API_RATE_UNKNOWN", "HEAVY_RATE", "HEAVY_RATE_PROJECT"):
        os.environ[name] = "0"  # tests ask often; those of the limits set their own
    os.environ["DRILL_FOLDER"] = tempfile.gettempdir()  # drills of tests crash and write files
    os.environ["MODEL_FOLDERS"] = tempfile.gettempdir()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")

    from apps.common import embedded

    atexit.register(_stack.close)  # pytest that refuses its arguments never comes to an end of ours
    _stack.callback(shutil.rmtree, folder, ignore_errors=True)
    # Callbacks run last-in first-out: the servers stop, then the folder goes.
    _stack.enter_context(embedded.servers())
    _stack.callback(_last_words, folder)
    # The suite makes databases and empties tables; `tests/conftest.py` lets the tests themselves
    # have no more rights than the application has.
    os.environ["DATABASE_URL"] = embedded.postgres_url(folder, embedded.SUPERUSER)
    _trust_the_machine(os.environ["DATABASE_URL"])
    del os.environ["DATABASE_OWNER_URL"]


def _last_words(folder: Path) -> None:
    """Of a server that ended before the tests did: its folder is about to go."""
    from apps.common import embedded

    if not embedded.postgres_runs(folder):
        lines = (folder / "postgres" / "log").read_text(errors="replace").splitlines()
        said = [f"PostgreSQL has ended early (mode of its folder {folder.stat().st_mode:o}):"]
        sys.stderr.write("\n".join([*said, *lines[-40:], ""]))


def _trust_the_machine(url: str) -> None:
    """What the tests write need not survive a power cut."""
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.execute(f"alter system set {setting} = off")
        connection.execute("select pg_reload_conf()")


def pytest_unconfigure() -> None:
    _stack.close()


def _only_hands_out() -> bool:
    return "PYTEST_XDIST_WORKER" not in os.environ and any(
        word in {"-n", "--numprocesses"} for word in sys.argv
    )


if not _only_hands_out():
    _start_servers()
