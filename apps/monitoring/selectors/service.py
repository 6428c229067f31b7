"""What the monitoring page shows at a glance."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Count, Q

from apps.accounts.models import Project
from apps.common.health import queues_heard
from apps.common.redis_now import redis_now
from apps.common.registry import NamedModel, named_models
from apps.monitoring.models import Incident, ProbeResult, Watch
from apps.monitoring.selectors.checks import probe_results, watches_of
from apps.monitoring.selectors.outcomes import (
    Scope,
    Series,
    outcome_series,
    reward_series,
    scopes_of,
)
from apps.training.models import Checkpoint, Run
from workers.contract import wire
from workers.contract.asking import ANSWERER
from workers.contract.protocol import KEY
from workers.contract.scores import SCORER
from workers.contract.wire import QUEUE_SHORT, SCHEDULER, alive_key

SPARK_PROBES = 48
CHART_PROBES = 500
MOST_INCIDENTS = 5
MOST_RUNS = 10
MOST_POINTS = 120


@dataclass(frozen=True, slots=True)
class Watched:
    """A model in service with its newest probes, in order of time; see `protocols_of`."""

    watch: Watch
    history: Sequence[ProbeResult]
    incident: Incident | None
    protocols: Mapping[str, str]

    @property
    def latest(self) -> ProbeResult | None:
        return self.history[-1] if self.history else None


@dataclass(frozen=True, slots=True)
class Measured:
    """Series of one model: what the world says and what its reward was."""

    title: str
    watch: str
    series: Sequence[Series]
    reward: Series | None


def watched(project: Project) -> list[Watched]:
    found = []
    for watch in watches_of(project):
        history = history_of(watch, SPARK_PROBES)
        found.append(Watched(watch, history, incident_of(watch), protocols_of(history)))
    return found


def history_of(watch: Watch, most: int = CHART_PROBES) -> list[ProbeResult]:
    """The newest probes, in order of time."""
    return list(probe_results(watch)[:most])[::-1]


def protocols_of(history: Sequence[ProbeResult]) -> dict[str, str]:
    """{run: hash of the protocol that its probe states}; without those that state none."""
    runs = Run.objects.filter(pk__in=[one.run_id for one in history])
    said = runs.values_list("pk", f"summary__{KEY}__sha256")
    return {pk: sha256 for pk, sha256 in said if isinstance(sha256, str)}


def incident_of(watch: Watch) -> Incident | None:
    """The open one."""
    rows = Incident.objects.filter(project=watch.project_id, key=f"watch:{watch.pk}")
    return rows.exclude(state=Incident.State.RESOLVED).first()


# Whether what is monitored is what a stage names.


@dataclass(frozen=True, slots=True)
class WatchStages:
    """named: the stages that name the model which the watch asks. other: where none does, what the
    furthest stage names instead; None where no stage names a model, and of a reward model."""

    named: Sequence[NamedModel] = ()
    other: NamedModel | None = None


def asks_model(watch: Watch, checkpoint: str) -> bool:
    """Whether the watch asks this checkpoint: by its id, or at a server whose model's name, as the
    server says it, holds that id."""
    if watch.checkpoint_id == checkpoint:
        return True
    run = watch.checkpoint.run
    if run.kind != Run.Kind.SERVED:
        return False
    told = (run.summary.get("says"), run.summary.get("served_model"), run.config.get("model"))
    return any(checkpoint in name for name in told if isinstance(name, str))


def stages_of(watch: Watch) -> WatchStages:
    if watch.kind != Watch.Kind.POLICY:
        return WatchStages()
    found = named_models(watch.project)
    named = [one for one in found if asks_model(watch, one.checkpoint)]
    return WatchStages(named, None if named or not found else found[-1])


def open_incidents(project: Project) -> tuple[list[Incident], int]:
    """(the most severe and newest ones, how many there are)."""
    rows = Incident.objects.filter(project=project).exclude(state=Incident.State.RESOLVED)
    ordered = rows.select_related("run").order_by("severity", "-opened_at")  # critical < warning
    return list(ordered[:MOST_INCIDENTS]), rows.count()


def live_runs_with_alerts(project: Project) -> list[Run]:
    """Runs that train now and have said that something is wrong; with `open_alerts`."""
    unseen = Q(alerts__acknowledged_at__isnull=True) & ~Q(alerts__severity="info")
    rows = Run.objects.filter(project=project, state__in=Run.LIVE_STATES)
    rows = rows.annotate(open_alerts=Count("alerts", filter=unseen)).filter(open_alerts__gt=0)
    return list(rows.order_by("-open_alerts", "-created_at")[:MOST_RUNS])


def measurements(project: Project) -> list[Measured]:
    found = []
    for scope in scopes_of(project):
        watch = Watch.objects.filter(pk=scope.watch).first() if scope.watch else None
        found.append(
            Measured(
                title=_title(scope, watch),
                watch=watch.pk if watch is not None else "",
                series=outcome_series(project=project, scope=scope, most=MOST_POINTS),
                reward=reward_series(watch, most=MOST_POINTS) if watch is not None else None,
            )
        )
    return found


def _title(scope: Scope, watch: Watch | None) -> str:
    if watch is not None:
        return watch.name
    if scope.checkpoint:
        model = Checkpoint.objects.select_related("run").get(pk=scope.checkpoint)
        return f"{model.run.name}, step {model.step:,}"
    return "The project as a whole"


def worker_missing() -> bool:
    """Whether nobody takes probes: none would ever end."""
    heard = queues_heard()
    return heard is not None and QUEUE_SHORT not in heard


# One look at the broker: what waits in its queues, and who serves them.

QUEUES = (
    *wire.JOB_QUEUES,
    wire.QUEUE_EVENTS,
    wire.QUEUE_DEFAULT,
    wire.QUEUE_IMPORTS,
    wire.QUEUE_STATISTICS,
)


@dataclass(frozen=True, slots=True)
class BrokerState:
    """lengths: messages by queue; seen: whether a process serves it; oldest_event_at: Unix seconds
    of the newest event in the oldest batch that waits, None when none does or it cannot be
    read; refused: batches that the worker of their run had not signed."""

    lengths: dict[str, int]
    seen: dict[str, bool]
    oldest_event_at: float | None
    refused: int = 0


def broker_state() -> BrokerState:
    """Raises what Redis raises when it is away. One round trip."""
    served = (*QUEUES, SCHEDULER, SCORER, ANSWERER)
    client = redis_now()
    try:
        pipe = client.pipeline(transaction=False)
        for queue in QUEUES:
            pipe.llen(queue)
        pipe.mget([alive_key(name) for name in served])
        pipe.lindex(wire.QUEUE_EVENTS, -1)  # messages are taken from this end
        pipe.get(wire.REFUSED_KEY)
        *lengths, beats, oldest, refused = pipe.execute()
    finally:
        client.close()
    return BrokerState(
        lengths=dict(zip(QUEUES, lengths, strict=True)),
        seen={name: beat is not None for name, beat in zip(served, beats, strict=True)},
        oldest_event_at=_newest_event_at(oldest),
        refused=int(refused or 0),
    )


def _newest_event_at(message: bytes | None) -> float | None:
    """Of a batch of events as kombu stores it. A sign of life has no events."""
    if message is None:
        return None
    try:
        body = json.loads(base64.b64decode(json.loads(message)["body"]))
        return float(body[0][0]["events"][-1]["at"])
    except (ValueError, KeyError, TypeError, IndexError):
        return None
