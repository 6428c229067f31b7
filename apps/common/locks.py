"""Locks of the database that last over many transactions, and the way to the server itself.

Such a lock belongs to a connection, not to a transaction. Behind a pooler that gives each
transaction another connection it would stay with one that others use, so it has a connection of its
own, past the pooler. When the process dies, its connection ends and the lock with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

import dj_database_url
import psycopg
from django.conf import settings
from django.db import OperationalError, connection
from django.db.backends.postgresql.base import DatabaseWrapper

_IN_OPTIONS = ("host", "port")
_PLACE = ("dbname", "user", "password", "host", "port")


def settings_at(given: Mapping[str, Any], url: str) -> dict[str, Any]:
    """Django's settings of a connection, `given`, with the server and the role of `url`; the
    database's name and other options stay."""
    there = dj_database_url.parse(url)
    asked = there.get("OPTIONS", {})  # a socket's folder is named there
    options = {name: one for name, one in given["OPTIONS"].items() if name not in _IN_OPTIONS}
    options |= {name: asked[name] for name in _IN_OPTIONS if name in asked}
    server = {name: there[name] for name in ("USER", "PASSWORD", "HOST", "PORT")}
    return {**given, **server, "OPTIONS": options}


def direct_settings() -> dict[str, Any]:
    """Django's settings of a connection without a pooler, as the role of this process."""
    given, url = connection.settings_dict, settings.DATABASE_DIRECT_URL
    if not url:
        return dict(given)
    return settings_at(given, url) | {"NAME": dj_database_url.parse(url)["NAME"]}


def direct_params() -> dict[str, Any]:
    """The same for psycopg."""
    given = DatabaseWrapper(direct_settings()).get_connection_params()
    return {name: value for name, value in given.items() if value is not None}


def direct_place() -> dict[str, Any]:
    """Of these, what programs need that are not Django: database, role, password, host, port."""
    given = direct_params()
    return {name: given[name] for name in _PLACE if given.get(name)}


@contextmanager
def lock_held(key: str, given: Sequence[Any], *, wait: bool = False) -> Iterator[bool]:
    """Whether nobody else holds the lock, which is then held until the end of the block. `key`: a
    number in SQL, with `given` as its values. `wait`: until it is free."""
    try:
        own = psycopg.connect(**direct_params(), autocommit=True)
    except psycopg.OperationalError as error:
        raise OperationalError(*error.args) from error
    with closing(own):
        free = True
        if wait:
            own.execute(f"select pg_advisory_lock({key})", given)
        else:
            row = own.execute(f"select pg_try_advisory_lock({key})", given).fetchone()
            free = bool(row and row[0])
        try:
            yield free
        finally:
            # The server may notice later that a connection has ended; a broken one holds nothing.
            if free:
                with suppress(psycopg.OperationalError):
                    own.execute(f"select pg_advisory_unlock({key})", given)
