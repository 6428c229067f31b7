"""What a monitoring system reads about the site: a few counts, no name of a run or a person.

Every family has few series however large the site is: labels are states, kinds, queues and stages,
never ids; only `run_gauges` has series of single runs, at most METRICS_RUNS of them. A value of a
label that nobody foresaw counts as "other" once there are too many.
"""

import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import Count, F, Max, Min, QuerySet
from django.utils import timezone

from apps.common.health import schedulers
from apps.labeling.models import Vote
from apps.monitoring.models import Delivery, Incident, Watch
from apps.monitoring.selectors.backups import Kind, last_times
from apps.monitoring.selectors.gauges import Family, capped
from apps.monitoring.selectors.run_gauges import run_families
from apps.monitoring.selectors.service import QUEUES, broker_state
from apps.training.models import Run, RunAttempt
from apps.training.selectors.queueing import fleet_state, queue_lines

MOST_PROJECTS = 50
WAITS_FOR = ("slot", "quota", "needs")
NEWEST_VOTES = 100_000  # among which those of the last hour are counted
TABLES = {
    "training_metricblock": "metric_blocks",
    "training_runevent": "run_events",
    "training_sample": "samples",
    "labeling_vote": "votes",
}


Read = Callable[[datetime], Iterable[Family]]


def site_families(*, now: datetime | None = None) -> list[Family]:
    """Everything; a part that does not answer is left out and says so in `concord_part_up`."""
    now = now or timezone.now()
    started = time.perf_counter()
    parts: dict[str, tuple[Read, type[Exception] | tuple[type[Exception], ...]]] = {
        "database": (_of_database, DatabaseError),
        "broker": (_of_broker, (redis.RedisError, OSError)),
        "fleet": (_of_fleet, (DatabaseError, redis.RedisError, OSError)),
    }
    found: list[Family] = []
    up = []
    for part, (read, expected_error) in parts.items():
        try:
            found += list(read(now))
            up.append(((part,), 1.0))
        except expected_error:
            up.append(((part,), 0.0))
    took = [((), time.perf_counter() - started)]
    return [
        Family("concord_part_up", "Whether this part answered.", ("part",), up),
        Family("concord_scrape_seconds", "How long it took to read all of this.", (), took),
        *found,
    ]


def _of_database(now: datetime) -> Iterable[Family]:
    yield from _runs(now)
    yield from _incidents()
    yield from _deliveries(now)
    yield from _watches(now)
    yield from _votes(now)
    yield from _storage()
    yield from _backups()
    yield from run_families(now)
    if settings.METRICS_PROJECT_LABELS:
        yield from _projects(now)


def _runs(now: datetime) -> Iterable[Family]:
    groups = list(
        Run.objects.order_by()
        .values("state", "kind", "queue")
        .annotate(n=Count("pk"), heard=Min("heard_at"))
    )
    yield Family(
        "concord_runs",
        "Runs.",
        ("state", "kind", "queue"),
        capped([((g["state"], g["kind"], g["queue"]), g["n"]) for g in groups]),
    )
    silent: dict[tuple[str, ...], float] = {}
    for g in groups:
        if g["state"] in (Run.State.RUNNING, Run.State.STOPPING) and g["heard"]:
            key = (g["queue"],)
            silent[key] = max(silent.get(key, 0.0), _age(now, g["heard"]))
    yield Family(
        "concord_run_silence_seconds",
        "The longest time for which a running run has said nothing.",
        ("queue",),
        capped(silent.items()),
    )
    waiting = (
        RunAttempt.objects.filter(run__state=Run.State.QUEUED, number=F("run__attempt"))
        .order_by()
        .values_list("run__queue")
        .annotate(Min("created_at"))
    )
    yield Family(
        "concord_run_oldest_queued_seconds",
        "How long the oldest queued run has waited for a worker.",
        ("queue",),
        capped([((queue,), _age(now, since)) for queue, since in waiting]),
    )


def _incidents() -> Iterable[Family]:
    groups = _counted(
        Incident.objects.exclude(state=Incident.State.RESOLVED), "severity", "link", "state"
    )
    yield Family(
        "concord_incidents_open",
        "Incidents that nobody has resolved.",
        ("severity", "link", "state"),
        capped(groups),
    )


def _deliveries(now: datetime) -> Iterable[Family]:
    unsent = Delivery.objects.exclude(state=Delivery.State.SENT)
    found = {state: n for (state,), n in _counted(unsent, "state")}
    yield Family(
        "concord_deliveries",
        "Messages about incidents that wait to be sent, or were given up.",
        ("state",),
        [((s,), found.get(s, 0)) for s in (Delivery.State.PENDING, Delivery.State.FAILED)],
    )
    since = unsent.filter(state=Delivery.State.PENDING).aggregate(m=Min("created_at"))["m"]
    yield Family(
        "concord_delivery_oldest_pending_seconds",
        "How long the oldest message waits to be sent.",
        (),
        [((), _age(now, since) if since else 0.0)],
    )


def _watches(now: datetime) -> Iterable[Family]:
    enabled = Watch.objects.filter(enabled=True)
    yield Family(
        "concord_watches",
        "Monitored models.",
        ("kind", "state"),
        capped(_counted(enabled, "kind", "state")),
    )
    due = enabled.aggregate(m=Min("next_at"))["m"]
    yield Family(
        "concord_watch_overdue_seconds",
        "How long the probe that is most overdue should have begun.",
        (),
        [((), max(0.0, _age(now, due)) if due else 0.0)],
    )


def _votes(now: datetime) -> Iterable[Family]:
    yield Family(
        "concord_votes_last_hour",
        "Votes cast by people in the last hour.",
        ("source",),
        capped(_counted(_recent_votes(now), "source")),
    )


def _recent_votes(now: datetime) -> QuerySet[Vote]:
    """By number, since no index is by time alone: a scrape must not read a million votes."""
    newest = Vote.objects.aggregate(m=Max("pk"))["m"] or 0
    return Vote.objects.filter(
        pk__gt=newest - NEWEST_VOTES, cast_at__gt=now - timedelta(hours=1)
    ).exclude(source=Vote.Source.IMPORT)


def _storage() -> Iterable[Family]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
            "WHERE relkind = 'r' AND relname = ANY(%s)",
            [list(TABLES)],
        )
        sizes = cursor.fetchall()
    yield Family(
        "concord_storage_bytes",
        "What a table takes on disk, with its indexes.",
        ("table",),
        [((TABLES[table],), size) for table, size in sizes],
    )


def _backups() -> Iterable[Family]:
    """Left out while there was none, so that a rule sees that there is none."""
    times = last_times()
    for name, words, kind in (
        ("concord_last_backup_timestamp", "When the last backup was made.", Kind.MADE),
        (
            "concord_last_proven_restore_timestamp",
            "When a backup was last restored to see that it can be.",
            Kind.PROVEN,
        ),
    ):
        yield Family(name, words, (), [((), times[kind].timestamp())] if kind in times else [])


def _projects(now: datetime) -> Iterable[Family]:
    """Only where METRICS_PROJECT_LABELS says that project names may be told."""
    families = {
        "concord_project_runs": ("Runs of a project.", "state", Run.objects.all()),
        "concord_project_incidents_open": (
            "Incidents of a project that nobody has resolved.",
            "severity",
            Incident.objects.exclude(state=Incident.State.RESOLVED),
        ),
        "concord_project_votes_last_hour": (
            "Votes cast in a project in the last hour.",
            "source",
            _recent_votes(now),
        ),
    }
    for name, (words, by, rows) in families.items():
        counted = _counted(rows, "project__slug", by)
        totals: dict[str, float] = {}
        for (slug, _), n in counted:
            totals[slug] = totals.get(slug, 0) + n
        shown = set(sorted(totals, key=lambda slug: (-totals[slug], slug))[:MOST_PROJECTS])
        told: dict[tuple[str, ...], float] = {}
        for (slug, value), n in counted:
            key = (slug if slug in shown else "other", value)
            told[key] = told.get(key, 0) + n
        yield Family(name, words, ("project", by), capped(told.items()))


def _of_broker(now: datetime) -> Iterable[Family]:
    look = broker_state()
    yield Family(
        "concord_queue_length",
        "Messages that no worker has taken yet.",
        ("queue",),
        [((queue,), look.lengths[queue]) for queue in QUEUES],
    )
    yield Family(
        "concord_batches_refused",
        "Batches of events that were not signed by the worker of their run.",
        (),
        [((), float(look.refused))],
    )
    yield Family(
        "concord_worker_seen",
        "Whether a process that serves this queue gave a sign of life in the last half minute.",
        ("queue",),
        [((name,), float(seen)) for name, seen in look.seen.items()],
    )
    known = schedulers()
    if known is not None:
        yield Family(
            "concord_schedulers",
            "Schedulers that were heard in the last half minute: one leads, others take over.",
            ("state",),
            [(("leads",), float(bool(known.leads))), (("stands_by",), len(known.stand_by))],
        )
    yield Family(
        "concord_event_delay_seconds",
        "How old the newest event of the oldest batch is that waits to be stored; 0 if none waits.",
        (),
        [((), max(0.0, now.timestamp() - look.oldest_event_at) if look.oldest_event_at else 0.0)],
    )


def _of_fleet(now: datetime) -> Iterable[Family]:
    """By machine class; a worker that serves two of them counts in both."""
    fleet = fleet_state()
    if fleet is None:
        raise OSError("Redis does not answer")
    lines = queue_lines(fleet=fleet, now=now)
    yield Family(
        "concord_worker_slots",
        "Runs that the workers which were heard take at once.",
        ("queue",),
        [((queue,), fleet.slots(queue)) for queue in lines],
    )
    yield Family(
        "concord_gpus",
        "GPUs that the workers which were heard may use.",
        ("queue",),
        [((queue,), sum(len(w.gpus) for w in fleet.of_class(queue))) for queue in lines],
    )
    yield Family(
        "concord_slots_taken",
        "Runs that have a slot of their machine class.",
        ("queue",),
        [((queue,), len(line.has)) for queue, line in lines.items()],
    )
    reasons = [
        ((queue, reason), sum((one.held or "slot") == reason for one in line.waiting))
        for queue, line in lines.items()
        for reason in WAITS_FOR
    ]
    yield Family(
        "concord_runs_waiting",
        "Runs that wait for a slot of their machine class, by what they lack.",
        ("queue", "reason"),
        reasons,
    )


def _counted(rows: QuerySet, *by: str) -> list[tuple[tuple[str, ...], float]]:
    found = rows.order_by().values_list(*by).annotate(Count("pk"))
    return [(tuple(map(str, values)), n) for *values, n in found]


def _age(now: datetime, since: datetime) -> float:
    return (now - since).total_seconds()
