"""The API of the fleet: machines, and the order of the runs that wait for them."""

from dataclasses import asdict
from typing import Literal

from django.http import HttpRequest
from ninja import Field, Router, Schema

from apps.accounts.api_auth import needs
from apps.accounts.permissions import STAFF, project_for
from apps.training import services
from apps.training.api import BASE, RunOut, run_of
from apps.training.models import Run
from apps.training.selectors import fleet as fleet_reading
from apps.training.selectors.queueing import queue_lines
from workers.contract.fleet import WorkerReport

router = Router(tags=["runs"])


class GpuOut(Schema):
    name: str
    total_bytes: int | None
    free_bytes: int | None
    driver: str


class WorkerOut(Schema):
    name: str
    instance: str = Field(description="tells workers of one name apart")
    host: str
    queues: list[str] = Field(description="the machine classes that it serves")
    slots: int = Field(description="runs that it takes at once")
    busy: int = Field(description="of these, taken")
    cpus: int
    memory_bytes: int | None
    memory_free_bytes: int | None
    gpus: list[GpuOut]
    versions: dict[str, str]
    code_version: str
    at: float = Field(description="Unix seconds of its last report")

    @classmethod
    def of(cls, worker: WorkerReport) -> "WorkerOut":
        given = asdict(worker) | {"busy": len(worker.runs)}
        return cls(**{name: given[name] for name in cls.model_fields})


class ClassOut(Schema):
    queue: str
    slots: int | None = Field(description="of its live workers; null when Redis does not answer")
    taken: int
    waiting: int


class FleetOut(Schema):
    workers: list[WorkerOut]
    classes: list[ClassOut]


class MoveIn(Schema):
    to: Literal["up", "down", "first"]


class PriorityIn(Schema):
    priority: Literal["low", "normal", "high"]


@router.get(
    "/projects/{slug}/fleet",
    auth=needs("read"),
    response=FleetOut,
    summary="Machines that were heard, and how many runs wait for each class of them",
)
def fleet(request: HttpRequest, slug: str) -> FleetOut:
    """The same in every project: it names no run."""
    project_for(request.user, slug, STAFF)
    heard = fleet_reading.fleet_look()
    return FleetOut(
        workers=[WorkerOut.of(one) for one in (heard.workers if heard else ())],
        classes=[
            ClassOut(queue=n, slots=one.live, taken=len(one.has), waiting=len(one.waiting))
            for n, one in queue_lines(fleet=heard).items()
        ],
    )


@router.post(
    BASE + "/{run_id}/move",
    auth=needs("train"),
    response=RunOut,
    summary="Change its place among the project's runs that wait",
)
def run_move(request: HttpRequest, slug: str, run_id: str, payload: MoveIn) -> RunOut:
    run = run_of(request, slug, run_id)
    return RunOut.of(services.run_move(run=run, to=payload.to, user=request.user))


@router.post(
    BASE + "/{run_id}/priority",
    auth=needs("train"),
    response=RunOut,
    summary="Raise or lower a run that waits",
)
def run_priority(request: HttpRequest, slug: str, run_id: str, payload: PriorityIn) -> RunOut:
    run = run_of(request, slug, run_id)
    priority = Run.Priority[payload.priority.upper()]
    return RunOut.of(services.run_prioritise(run=run, priority=priority, user=request.user))
