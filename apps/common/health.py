"""Is everything up? One probe per part; each answers None when well, else a short sentence.

The sentences name the part and never its address or an error's text: `/healthz` needs no sign-in.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import redis
from django.apps import apps
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from apps.common import registry
from apps.common.redis_now import redis_now
from apps.common.scheduler_signs import Schedulers, schedulers_now
from workers.contract import asking, scores, wire
from workers.contract.wire import SCHEDULER, alive_key

# For each part, the queues of which one must be consumed.
PARTS: dict[str, tuple[str, ...]] = {
    "event worker": (wire.QUEUE_EVENTS,),
    "default worker": (wire.QUEUE_DEFAULT,),
    "imports worker": (wire.QUEUE_IMPORTS,),
    "statistics worker": (wire.QUEUE_STATISTICS,),
    "training worker": (wire.QUEUE_GPU, wire.QUEUE_GPU_LARGE, wire.QUEUE_CPU),
    "scheduler": (SCHEDULER,),
}


_shared: ContextVar[redis.Redis | None] = ContextVar("shared", default=None)


@contextmanager
def one_connection() -> Iterator[redis.Redis]:
    """The checks inside the block ask Redis through one connection."""
    if client := _shared.get():
        yield client
        return
    client = redis_now(decode_responses=True)
    token = _shared.set(client)
    try:
        yield client
    finally:
        _shared.reset(token)
        client.close()


def beats(names: Iterable[str]) -> set[str]:
    """Which of `names` gave a sign of life in the last seconds."""
    wanted = list(names)
    with one_connection() as client:
        found = client.mget([alive_key(name) for name in wanted])
    return {name for name, value in zip(wanted, found, strict=True) if value}


def queues_heard() -> frozenset[str] | None:
    """The job queues that a worker consumes now; None when Redis does not answer."""
    try:
        return frozenset(beats(wire.JOB_QUEUES))
    except (redis.RedisError, OSError):
        return None


def database() -> str | None:
    try:
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute("select 1")
    except DatabaseError:
        return "the database does not answer"
    return None


_migrated = False


def migrations() -> str | None:
    """Whether every migration is applied; once they are, they stay so while this code runs."""
    global _migrated
    if _migrated:
        return None
    try:
        executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
        unknown = unknown_migrations(executor.loader)
    except DatabaseError:
        return "unknown: the database does not answer"
    if unknown:
        return "those of another version; run manage.py migrate, which says more"
    if missing:
        return f"{len(missing)} not applied; run manage.py migrate"
    _migrated = True
    return None


def broker() -> str | None:
    try:
        beats(["anything"])
    except (redis.RedisError, OSError):
        return "Redis does not answer"
    return None


def part(name: str) -> str | None:
    """Whether one of the part's queues is consumed."""
    try:
        alive = beats(PARTS[name])
    except (redis.RedisError, OSError):
        return "unknown: Redis does not answer"
    if alive:
        return None
    return _none_leads() if name == SCHEDULER else NO_SIGN


NO_SIGN = "no sign of life in the last half minute"


def _none_leads() -> str:
    """A scheduler that does not lead gives no sign as the part of that name."""
    found = schedulers()
    if found is None or not found.stand_by:
        return NO_SIGN
    since = "" if found.sent_at is None else f" for {time.time() - found.sent_at:,.0f} s"
    return f"none of the {len(found.stand_by)} that run leads; nothing was sent{since}"


def schedulers() -> Schedulers | None:
    """Which of them leads; None when Redis does not answer."""
    try:
        with one_connection() as client:
            return schedulers_now(client)
    except (redis.RedisError, OSError):
        return None


RESIDENT = {  # processes that a site may lack: what they answer
    "scorer": (scores.CHANNEL, "requests for scores"),
    "answerer": (asking.CHANNEL, "questions of the playground"),
}


def resident_missed(name: str) -> str | None:
    """A site without such a process is well until somebody waits for it."""
    channel, what = RESIDENT[name]
    try:
        if beats([channel.sign]):
            return None
        with one_connection() as client:
            waiting = client.xlen(channel.stream)
    except (redis.RedisError, OSError):
        return "unknown: Redis does not answer"
    return f"no sign of life while {what} wait: {waiting}" if waiting else None


def resident_absent(name: str) -> str | None:
    channel, what = RESIDENT[name]
    try:
        alive = beats([channel.sign])
    except (redis.RedisError, OSError):
        return None  # said by the checks
    return None if alive else f"no sign of life: {what} are answered with 503"


def statements_unlimited() -> str | None:
    """What a page's connection asks for (STATEMENT_SECONDS) a pooler may keep back."""
    if settings.PROCESS != "web" or not settings.STATEMENT_SECONDS:
        return None
    try:
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute("show statement_timeout")
            (limit,) = cursor.fetchone()
    except DatabaseError:
        return None  # said by the checks
    return (
        "statements of pages have no time limit: see docs/operations.md" if limit == "0" else None
    )


def register() -> None:
    registry.health_add("database", database)
    registry.health_add("migrations", migrations)
    registry.health_add("redis", broker)
    for name in RESIDENT:
        registry.health_add(name, lambda name=name: resident_missed(name))
        registry.health_remark_add(name, lambda name=name: resident_absent(name))
    registry.health_remark_add("statements", statements_unlimited)
    for name in PARTS:
        registry.health_add(name, lambda name=name: part(name))


# Whether the database's migrations are ones that this version knows.


def unknown_migrations(loader: MigrationLoader) -> list[str]:
    """Migrations of Concord's own apps that the database has and this version does not, as
    "app.name": those of another version, newer than this one or older than 0.2.0."""
    own = own_labels()
    return sorted(
        f"{app}.{name}"
        for app, name in loader.applied_migrations
        if app in own and (app, name) not in loader.disk_migrations
    )


def own_labels() -> set[str]:
    """Concord's own apps."""
    return {config.label for config in apps.get_app_configs() if config.name.startswith("apps.")}
