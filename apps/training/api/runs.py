"""The API of runs: launch, watch, read what they left, stop."""

from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal

from django.db import transaction
from django.http import HttpRequest
from ninja import Field, Query, Router, Schema, Status

from apps.accounts.api_auth import fresh_sign_in_demand, needs
from apps.accounts.permissions import READERS, STAFF, project_for
from apps.snapshots.selectors.looks import looks_of_run
from apps.training import display, selectors, services
from apps.training.models import Checkpoint, Run, Sample
from apps.training.selectors import pages
from apps.training.selectors import queueing as fleet_reading
from apps.training.selectors.candidates import best_of
from apps.training.selectors.queueing import queue_lines, queue_words, why_it_waits
from apps.training.services.held_out import judge_of, judge_people
from apps.training.services.housekeeping import LONGEST_NAME, LONGEST_NOTE, MOST_TAGS
from workers.contract.fleet import WorkerReport
from workers.contract.jobs import MOST_PROCESSES

router = Router(tags=["runs"])
BASE = "/projects/{slug}/runs"


class RunIn(Schema):
    kind: Run.Kind
    name: str = Field(max_length=120)
    config: dict[str, Any] = Field(default_factory=dict, description="of the recipe; see docs")
    inputs: dict[str, str] = Field(
        default_factory=dict,
        max_length=50,
        description='role to "snapshot:<id>", "checkpoint:<id>" or "run:<id>" (its final model)',
    )
    seed: int = Field(0, ge=0, lt=2**63)
    seeds: int = Field(
        1,
        ge=1,
        le=services.MOST_SEEDS,
        description="runs to launch, with `seed` and the ones after it, as one group",
    )
    sweep: dict[str, list[Any]] = Field(
        default_factory=dict,
        max_length=services.MOST_SWEPT,
        description="one or two settings of the configuration and the values of each, such as "
        '{"learning_rate": [1e-6, 1e-5]}: a run for every combination and seed, as one group',
    )
    group: str = Field(
        "",
        max_length=40,
        description="a group to join: its runs must be alike but for their seed",
    )
    queue: str = Field("cpu", description="the machine class: cpu, gpu, gpu-large")
    layout: str = Field(
        "one", description="how it spreads over processes: one, data, fsdp, zero2, zero3"
    )
    processes: int = Field(
        1, ge=0, le=MOST_PROCESSES, description="of its layout; 0: one for each GPU of its machine"
    )
    launcher: str = Field("", description="plain, torchrun or accelerate; empty: by the layout")
    priority: Literal["low", "normal", "high"] = Field(
        "normal", description="among the runs that wait for its machine class"
    )
    idempotency_key: str = Field(
        "", max_length=80, description="the same key in a project launches once"
    )
    override_reason: str = Field(
        "",
        max_length=500,
        description="why PPO may optimise against a reward model that nobody approved",
    )


class CheckpointOut(Schema):
    id: str
    step: int
    attempt: int
    tags: list[str]
    status: str
    uri: str
    sha256: str
    size_bytes: int
    metrics: dict[str, Any]
    files_removed_at: datetime | None = Field(description="since when it cannot be used")
    state_removed_at: datetime | None = Field(description="since when no run resumes from it")

    @classmethod
    def of(cls, row: Checkpoint) -> "CheckpointOut":
        return cls(**{name: getattr(row, name) for name in cls.model_fields})


class RunOut(Schema):
    id: str
    name: str
    kind: str
    state: str = Field(
        description="waiting, queued, running, stopping, finished, failed, cancelled"
    )
    queue: str
    layout: str
    processes: int
    launcher: str
    priority: str
    waits: str = Field(description="why a queued run has not begun, and its place; else empty")
    attempt: int
    command: str = Field(description='"stop" or "cancel" while one is under way')
    wish: str = Field(
        description="the former name of `command`; gone with 1.0",
        json_schema_extra={"deprecated": True},
    )
    step: int
    total_steps: int | None
    phase: str
    eta_s: float | None = Field(description="seconds left, where the trainer says so")
    seed: int
    config: dict[str, Any]
    summary: dict[str, Any]
    override_reason: str
    group: str = Field(description="shared by runs that differ in their seed only; may be empty")
    note: str
    tags: list[str]
    archived_at: datetime | None
    code_version: str
    fault: str = Field(description="whose turn it is after a failure")
    failure_kind: str
    failure_message: str
    created_by: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of(cls, run: Run, waits: str | None = None) -> "RunOut":
        made = {
            "created_by": run.created_by.username if run.created_by else None,
            "priority": run.get_priority_display(),
            "wish": run.command,
            "waits": waits if waits is not None else why_it_waits(run),
        }
        return cls(**{n: getattr(run, n) for n in cls.model_fields if n not in made}, **made)


class RunPage(Schema):
    count: int
    items: list[RunOut]


class JudgePeopleOut(Schema):
    shared: int
    n: int = Field(description="people behind the judge's training rows; 0: labelled elsewhere")
    of_reward: int = Field(description="the same of the reward model")
    independent: bool = Field(description="whether it counts as a second opinion")


class JudgeLineOut(Schema):
    line: str
    title: str
    verdict: str = Field(description="green, red or unmeasured")
    says: str


class JudgeOut(Schema):
    model: str
    name: str
    assessed: bool = Field(description="whether anything was measured of it")
    lines: list[JudgeLineOut] = Field(
        description="whether people agree with it, and its taste for length and format"
    )


class RunLookOut(Schema):
    snapshot: str
    split: str
    look: int = Field(description="which look at this split the run was, from 1")
    budget: int | None = Field(description="looks that need no second person; null for any number")
    alpha: float = Field(description="what its result may be tested at: 6 · 0.05 / (π² look²)")
    items: int


class BestOfOut(Schema):
    n: int = Field(description="candidates evaluated by the same protocol")
    figure: str
    inflation: float = Field(description="standard errors that the best one lies too high, by luck")
    amount: float | None = Field(description="the same in the figure's unit; null without interval")


class RunDetailOut(RunOut):
    looks: list[RunLookOut] = Field(description="held-out splits that it read")
    best_of: BestOfOut | None = Field(description="of the best of several evaluated models")
    judge_people: JudgePeopleOut | None = Field(
        description="who is behind the judge and the reward model; null without both"
    )
    judge: JudgeOut | None = Field(description="of an evaluation; null without one")
    checkpoints: list[CheckpointOut]
    open_alerts: int
    parked_events: int = Field(
        description="of a newer worker; applied once the web side is upgraded"
    )


class EventOut(Schema):
    id: int
    attempt: int
    seq: int
    at: datetime
    type: str
    body: dict[str, Any]


class EventPage(Schema):
    events: list[EventOut]
    cursor: int = Field(description="send it with the next call")


class SeriesOut(Schema):
    steps: list[int]
    values: list[float | str | None] = Field(description='"nan", "inf" and "-inf" are words')


class MetricsOut(Schema):
    series: dict[str, SeriesOut]
    cursor: str = Field(description="send it with the next call")
    discard_after: int | None = Field(
        description="the run went back: drop what you have beyond this step; null where it did not"
    )


class SampleOut(Schema):
    id: int = Field(description="of the sample, for verdicts")
    step: int
    bucket: str
    prompt: list[dict[str, Any]]
    response: str
    baseline: str
    reward: float | str | None = Field(description='"nan", "inf" and "-inf" are words')
    parts: dict[str, Any]
    kl: float | str | None = Field(description="nats per sequence")
    tokens: int | None

    @classmethod
    def of(cls, row: Sample) -> "SampleOut":
        return cls(**{name: display.speakable(getattr(row, name)) for name in cls.model_fields})


class LineOut(Schema):
    attempt: int
    at: datetime
    level: str
    text: str


class LineageOut(Schema):
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]


def run_of(request: HttpRequest, slug: str, run_id: str) -> Run:
    project, _ = project_for(request.user, slug, STAFF)
    return selectors.run_get(project=project, run_id=run_id)


@router.get(BASE, auth=needs("read"), response=RunPage, summary="Runs, newest first")
def run_list(
    request: HttpRequest,
    slug: str,
    search: str = "",
    kind: Run.Kind | None = None,
    state: Run.State | None = None,
    group: str = Query("", max_length=40, description="the runs of one group of seeds"),
    tag: str = Query("", max_length=40, description="the runs with this tag"),
    archived: bool | None = Query(None, description="only archived ones, or none of them"),
    limit: int = Query(50, ge=1, le=500),
    offset: int = Query(0, ge=0, le=10**9),
) -> RunPage:
    project, _ = project_for(request.user, slug, STAFF)
    rows = pages.runs_for_list(
        project=project,
        search=search,
        kind=kind or "",
        states=[state] if state else (),
        group=group,
        tag=tag,
        archived=archived,
        with_checks=True,
    )
    words = queue_words()
    items = [RunOut.of(run, words.get(run.pk, "")) for run in rows[offset : offset + limit]]
    return RunPage(count=rows.count(), items=items)


@router.post(BASE, auth=needs("train"), response={201: RunOut}, summary="Launch a run")
def run_create(request: HttpRequest, slug: str, payload: RunIn) -> Status:
    """It is queued, or waits for the runs among its inputs. Repeating an `idempotency_key` answers
    with the run that it launched. Of several `seeds`, or of a `sweep`, the first run is answered;
    its `group` lists them all."""
    project, _ = project_for(request.user, slug, STAFF)
    if payload.override_reason.strip():
        fresh_sign_in_demand(request)
    run, *_ = services.runs_launch(
        project=project,
        user=request.user,
        **payload.dict(exclude={"inputs", "priority"}),
        priority=Run.Priority[payload.priority.upper()],
        inputs={role: pages.input_resolve(project, ref) for role, ref in payload.inputs.items()},
    )
    return Status(201, RunOut.of(run))


class GroupStopOut(Schema):
    runs: int = Field(description="that were going on")


@router.post(
    "/projects/{slug}/groups/{group}/stop",
    auth=needs("train"),
    response=GroupStopOut,
    summary="Stop a group of runs",
)
def group_stop(request: HttpRequest, slug: str, group: str) -> GroupStopOut:
    """Those that train save and finish early; those that have not begun are cancelled."""
    project, _ = project_for(request.user, slug, STAFF)
    runs = services.group_stop(project=project, group=group, user=request.user)
    return GroupStopOut(runs=runs)


@router.get(BASE + "/{run_id}", auth=needs("read"), response=RunDetailOut, summary="One run")
def run_get(request: HttpRequest, slug: str, run_id: str) -> RunDetailOut:
    run = run_of(request, slug, run_id)
    people, judge = judge_people(run), judge_of(run)
    return RunDetailOut(
        **RunOut.of(run).dict(),
        judge_people=None
        if people is None
        else JudgePeopleOut(independent=people.independent, **asdict(people)),
        judge=None if judge is None else JudgeOut(**asdict(judge)),
        checkpoints=[CheckpointOut.of(row) for row in selectors.checkpoints(run)],
        open_alerts=sum(a.acknowledged_at is None for a in pages.alerts_of(run)),
        parked_events=selectors.parked_count(run),
        looks=[
            RunLookOut(
                snapshot=one.snapshot.pk,
                split=one.split,
                look=one.look,
                budget=one.budget,
                alpha=one.alpha,
                items=one.items,
            )
            for one in looks_of_run(run.pk)
        ],
        best_of=None if (best := best_of(run)) is None else BestOfOut(**asdict(best)),
    )


class RunPatch(Schema):
    name: str | None = Field(None, max_length=LONGEST_NAME)
    note: str | None = Field(None, max_length=LONGEST_NOTE)
    tags: list[str] | None = Field(None, max_length=MOST_TAGS)
    archived: bool | None = Field(None, description="out of lists and choices; of an ended run")


@router.patch(
    BASE + "/{run_id}", auth=needs("train"), response=RunOut, summary="Rename, tag, note, archive"
)
def run_change(request: HttpRequest, slug: str, run_id: str, payload: RunPatch) -> RunOut:
    """What is left out stays as it is."""
    run = run_of(request, slug, run_id)
    given = payload.dict(exclude_unset=True)
    archived = given.pop("archived", None)
    with transaction.atomic():
        run = services.run_describe(run=run, **given, user=request.user)
        if archived is not None:
            run = services.run_archive(run=run, archived=archived, user=request.user)
    return RunOut.of(selectors.run_get(project=run.project, run_id=run.pk))


@router.delete(
    BASE + "/{run_id}", auth=needs("train"), response={204: None}, summary="Delete a run"
)
def run_remove(
    request: HttpRequest,
    slug: str,
    run_id: str,
    name: str = Query("", max_length=LONGEST_NAME, description="of the run, as a confirmation"),
) -> Status:
    """With its curves, samples, checks, models and files. Refused (`run_in_use`) while a run, an
    approval, monitoring or an incident needs it."""
    run = run_of(request, slug, run_id)
    services.run_delete(run=run, typed=name, user=request.user)
    return Status(204, None)


@router.get(BASE + "/{run_id}/events", auth=needs("read"), response=EventPage, summary="Its events")
def run_events(
    request: HttpRequest,
    slug: str,
    run_id: str,
    cursor: int = Query(0, ge=0, lt=2**63),
    limit: int = Query(500, ge=1, le=2000),
) -> EventPage:
    """Every event in the order it was recorded, of all attempts; poll with the cursor. Points of
    metrics are not among them: read those from `metrics`, which has a cursor of its own."""
    run = run_of(request, slug, run_id)
    events, after = selectors.run_events_after(run=run, cursor=cursor, limit=limit)
    rows = [
        EventOut(id=e.pk, attempt=e.attempt, seq=e.seq, at=e.at, type=e.type, body=e.body)
        for e in events
    ]
    return EventPage(events=rows, cursor=after)


@router.get(
    BASE + "/{run_id}/metrics", auth=needs("read"), response=MetricsOut, summary="Its curves"
)
def run_metrics(
    request: HttpRequest,
    slug: str,
    run_id: str,
    names: str = Query("", description="comma separated; all when empty"),
    points: int = Query(2000, ge=4, le=100_000, description="at most so many of each curve"),
    from_step: int | None = Query(None, ge=0, lt=2**63, description="the first step to show"),
    to_step: int | None = Query(None, ge=0, lt=2**63, description="the last step to show"),
    cursor: str = Query("", max_length=40, description="only what was recorded since"),
) -> MetricsOut:
    """Of a cut and resumed run each step counts once. Thinning keeps least and greatest values.
    With a cursor some points may come again: the later one at a step counts."""
    run = run_of(request, slug, run_id)
    wanted = [name.strip() for name in names.split(",") if name.strip()] or None
    found = selectors.metric_news(
        run=run,
        cursor=cursor,
        names=wanted,
        max_points=points,
        from_step=from_step,
        to_step=to_step,
    )
    return MetricsOut(
        series={
            name: SeriesOut(steps=[s for s, _ in rows], values=[v for _, v in rows])
            for name, rows in found.series.items()
        },
        cursor=found.cursor,
        discard_after=found.discard_after,
    )


@router.get(
    BASE + "/{run_id}/samples",
    auth=needs("read"),
    response=list[SampleOut],
    summary="Answers it kept, latest step first",
)
def run_samples(
    request: HttpRequest,
    slug: str,
    run_id: str,
    bucket: str = Query("", description="high, low, random or flagged; all when empty"),
    limit: int = Query(50, ge=1, le=500),
) -> list[SampleOut]:
    project, _ = project_for(request.user, slug, READERS)
    run = selectors.run_get(project=project, run_id=run_id)
    return [
        SampleOut.of(row) for row in selectors.samples(run=run, bucket=bucket or None, limit=limit)
    ]


@router.get(
    BASE + "/{run_id}/log", auth=needs("read"), response=list[LineOut], summary="Its last lines"
)
def run_log(
    request: HttpRequest,
    slug: str,
    run_id: str,
    lines: int = Query(200, ge=1, le=5000),
    source: Literal["", "run", "output"] = Query(
        "", description="run: what Concord says of it; output: what its process printed"
    ),
) -> list[dict[str, Any]]:
    """Lines of the level `output` are what the trainer's process printed, as its libraries do."""
    return selectors.log_tail(run=run_of(request, slug, run_id), lines=lines, source=source)


@router.get(
    BASE + "/{run_id}/lineage",
    auth=needs("read"),
    response=LineageOut,
    summary="What it was made from, and what was built on it",
)
def run_lineage(request: HttpRequest, slug: str, run_id: str) -> LineageOut:
    run = run_of(request, slug, run_id)
    return LineageOut(
        inputs=[asdict(node) for node in selectors.lineage_up(run)],
        outputs=[asdict(node) for node in selectors.lineage_down(run)],
    )


@router.post(
    BASE + "/{run_id}/cancel", auth=needs("train"), response=RunOut, summary="End without saving"
)
def run_cancel(request: HttpRequest, slug: str, run_id: str) -> RunOut:
    run = run_of(request, slug, run_id)
    return RunOut.of(services.run_cancel(run=run, user=request.user))


@router.post(
    BASE + "/{run_id}/stop", auth=needs("train"), response=RunOut, summary="Save and finish early"
)
def run_stop(request: HttpRequest, slug: str, run_id: str) -> RunOut:
    run = run_of(request, slug, run_id)
    return RunOut.of(services.run_stop_and_keep(run=run, user=request.user))


@router.post(
    BASE + "/{run_id}/resume",
    auth=needs("train"),
    response=RunOut,
    summary="Go on from the last checkpoint of a failed or cancelled run",
)
def run_resume(request: HttpRequest, slug: str, run_id: str) -> RunOut:
    run = run_of(request, slug, run_id)
    return RunOut.of(services.run_resume(run=run, user=request.user))


# The API of the fleet: machines, and the order of the runs that wait for them.


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
    draining: bool = Field(description="it is told to take no new run")
    drained: bool = Field(description="it has heard so and is at nothing: it may be switched off")
    cpus: int
    memory_bytes: int | None
    memory_free_bytes: int | None
    gpus: list[GpuOut]
    versions: dict[str, str]
    code_version: str
    at: float = Field(description="Unix seconds of its last report")

    @classmethod
    def of(cls, worker: WorkerReport, told: bool) -> "WorkerOut":
        drained = told and worker.draining and not worker.runs
        given = asdict(worker) | {"busy": len(worker.runs), "draining": told, "drained": drained}
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
    heard = fleet_reading.fleet_state()
    return FleetOut(
        workers=[
            WorkerOut.of(one, one.name in heard.draining)
            for one in (heard.workers if heard else ())
        ],
        classes=[
            ClassOut(queue=n, slots=one.live, taken=len(one.has), waiting=len(one.waiting))
            for n, one in queue_lines(fleet=heard).items()
        ],
    )


class DrainIn(Schema):
    worker: str = Field(description="its name, such as train@gpu-1")
    draining: bool = Field(True, description="false: it takes runs again")


class DrainOut(Schema):
    worker: str
    draining: bool
    changed: bool = Field(description="false: it was so already")


@router.post(
    "/projects/{slug}/fleet/drain",
    auth=needs("train"),
    response=DrainOut,
    summary="Let a worker finish what it is at and take no new run, or take runs again",
)
def worker_drain(request: HttpRequest, slug: str, payload: DrainIn) -> DrainOut:
    """For the whole site, and also after the worker was started again."""
    project, _ = project_for(request.user, slug, STAFF)
    act = services.worker_drain if payload.draining else services.worker_resume
    changed = act(name=payload.worker, project=project, user=request.user)
    return DrainOut(worker=payload.worker, draining=payload.draining, changed=changed)


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
