"""A real PostgreSQL and a real Redis from Python wheels, for machines that have neither.

State lies below `VAR_DIR`. Both are reached by unix sockets only. Whoever uses the servers holds a
shared file lock, which the kernel drops with the process; the last one to leave stops them, and a
small process (`watch`) stops them when the last one was killed. `DATABASE_URL` and
`REDIS_URL` replace either server.

Imports no Django: it runs before settings are read and hands them the addresses through the
environment.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from apps.common import environment as env
from apps.common.embedded.keeper import ServerKeeper, ensure_watched
from apps.common.embedded.locks import EmbeddedServerError, UsersLock, shared_descriptors
from apps.common.embedded.postgres import (
    APPLICATION,
    OWNER,
    SUPERUSER,
    ensure_postgres,
    postgres_runs,
    postgres_url,
    stop_postgres,
)
from apps.common.embedded.redis_server import ensure_redis, redis_is_gone, redis_socket, stop_redis

__all__ = [
    "APPLICATION",
    "SUPERUSER",
    "EmbeddedServerError",
    "ServerKeeper",
    "ensure_postgres",
    "ensure_redis",
    "own_servers",
    "postgres_alone",
    "postgres_runs",
    "postgres_url",
    "redis_is_gone",
    "redis_socket",
    "servers",
    "shared_descriptors",
    "stop_postgres",
    "stop_redis",
]


_own: set[str] = set()


def own_servers() -> frozenset[str]:
    """Which of PostgreSQL and Redis this process has started or found below VAR_DIR."""
    return frozenset(_own)


@contextlib.contextmanager
def servers(*, start: bool = True) -> Iterator[None]:
    """Start what the environment does not name, export the addresses, stop it as the last user."""
    own_database = not env.text("DATABASE_URL")
    own_redis = not env.text("REDIS_URL")
    if not start or not (own_database or own_redis):
        yield
        return
    folder = env.private_folder(env.var_dir())
    _own.update({"PostgreSQL"} if own_database else (), {"Redis"} if own_redis else ())
    with UsersLock(folder) as lock:
        with lock.exclusive_start():
            if own_database:
                ensure_postgres(folder)
                os.environ["DATABASE_URL"] = postgres_url(folder, APPLICATION)
                os.environ.setdefault("DATABASE_OWNER_URL", postgres_url(folder, OWNER))
            if own_redis:
                os.environ["REDIS_URL"] = ensure_redis(folder)
        ensure_watched(folder)
        try:
            yield
        finally:
            if lock.is_last_user():
                if own_redis:
                    stop_redis(folder)
                if own_database:
                    stop_postgres(folder)


@contextlib.contextmanager
def postgres_alone(folder: Path) -> Iterator[Callable[[str], str]]:
    """A PostgreSQL of its own below `folder` for as long as the block lasts, with our database and
    roles; gives the address by role. It ends with a killed process too."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with UsersLock(folder) as lock:
        with lock.exclusive_start():
            ensure_postgres(folder)
        ensure_watched(folder)
        try:
            yield lambda role: postgres_url(folder, role)
        finally:
            stop_postgres(folder)
