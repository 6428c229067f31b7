"""A PgBouncer in transaction mode before the tests' PostgreSQL, where it is installed."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from apps.common.embedded.postgres import APPLICATION, OWNER, SUPERUSER
from workers.supervisor.child import end_with_parent

PORT = 6432  # in the name of its socket alone: it listens nowhere else
CONNECTIONS = 2  # to the server, for each role: fewer than there are clients, so that these share


def installed() -> str | None:
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@contextmanager
def pgbouncer(server: str) -> Iterator[str]:
    """`server`: the folder of PostgreSQL's socket. Gives that of PgBouncer's."""
    program = installed()
    assert program is not None
    owner = Path(server).stat().st_uid  # nobody else may connect to PostgreSQL's socket
    folder = Path(tempfile.mkdtemp(prefix="pooler-"))  # a socket's path must be short
    (folder / "users").write_text("".join(f'"{r}" ""\n' for r in (APPLICATION, OWNER, SUPERUSER)))
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={server}\n"
        f"[pgbouncer]\nlisten_addr =\nlisten_port = {PORT}\nunix_socket_dir = {folder}\n"
        f"auth_type = trust\nauth_file = {folder}/users\npool_mode = transaction\n"
        f"default_pool_size = {CONNECTIONS}\nmax_client_conn = 200\nclient_login_timeout = 20\n"
        f"logfile = {folder}/log\n"
    )
    as_owner: dict[str, int] = {}
    if os.geteuid() == 0:  # it refuses to run as root
        for path in (folder, *folder.iterdir()):
            os.chown(path, owner, -1)
        as_owner = {"user": owner, "group": 0}  # as PostgreSQL runs itself
    process = subprocess.Popen(
        [program, "-q", str(folder / "pgbouncer.ini")], preexec_fn=end_with_parent, **as_owner
    )
    try:
        deadline = time.monotonic() + 30
        while not (folder / f".s.PGSQL.{PORT}").exists():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, "PgBouncer does not come up"
            time.sleep(0.05)
        yield str(folder)
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def pooled_url(folder: str, database: str) -> str:
    return f"postgresql://{SUPERUSER}@/{database}?host={quote(folder)}&port={PORT}"
