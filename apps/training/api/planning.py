"""The API of what runs take: time and memory before a launch, disk space after it; the limits of a
project."""

from datetime import datetime

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from apps.accounts.api_auth import needs
from apps.accounts.permissions import ADMIN, STAFF, project_for
from apps.training import services
from apps.training.api.runs import BASE, RunIn, run_of
from apps.training.models import RunQuota
from apps.training.screens.estimate import estimate_basis, estimate_words
from apps.training.selectors import pages
from apps.training.selectors.space import project_space

router = Router(tags=["runs"])


class RunEstimateOut(Schema):
    words: str
    basis: str
    runs: int = Field(description="that the request would launch")
    seconds: float | None = Field(description="of one run; null: no run like it has finished yet")
    least_seconds: float | None
    greatest_seconds: float | None
    seconds_in_all: float | None = Field(description="of all runs, one after the other")
    memory_bytes: int | None = Field(description="by the memory ledger of a preflight")
    scaled_by: str = Field(description="steps, rows, or empty: as long as those took")
    of_project: bool = Field(description="by runs of this project, not of others of the site")
    by_runs: list[str] = Field(description="ids of this project's runs that it rests on")


@router.post(
    BASE + "/estimate",
    auth=needs("read"),
    response=RunEstimateOut,
    summary="How long a run would take, by finished runs like it",
)
def run_estimate(request: HttpRequest, slug: str, payload: RunIn) -> RunEstimateOut:
    """Takes what a launch takes and launches nothing. The settings are checked as for a launch."""
    project, _ = project_for(request.user, slug, STAFF)
    changes = services.sweep_check(kind=payload.kind, sweep=payload.sweep, seeds=payload.seeds)
    found = services.launch_estimate(
        project=project,
        kind=payload.kind,
        config={**payload.config, **changes[0]},
        inputs={role: pages.input_resolve(project, ref) for role, ref in payload.inputs.items()},
        queue=payload.queue,
        layout=payload.layout,
        processes=payload.processes,
    )
    runs = len(changes) * payload.seeds
    return RunEstimateOut(
        words=estimate_words(found, runs=runs),
        basis=estimate_basis(found),
        runs=runs,
        seconds=found.seconds,
        least_seconds=found.least,
        greatest_seconds=found.greatest,
        seconds_in_all=None if found.seconds is None else found.seconds * runs,
        memory_bytes=found.memory_bytes,
        scaled_by=found.scaled_by,
        of_project=found.own,
        by_runs=[run.pk for run in found.runs] if found.own else [],
    )


class SpaceLineOut(Schema):
    id: str
    name: str
    of: str = Field(description="run or dataset")
    kind: str
    state: str
    archived: bool
    models: int = Field(description="bytes of its saved models")
    files: int = Field(description="bytes of reports, samples and other files of the run")
    data: int = Field(description="bytes of a frozen dataset")
    rest: int | None = Field(description="bytes of all else there; null: not measured")
    total: int
    frees: int | None = Field(
        description="bytes of an ended run's intermediate checkpoints and trainer states, part of "
        "the total; null: there are none"
    )
    frees_whole: bool = Field(description="false: trainer states are not measured and come on top")
    frees_at: datetime | None = Field(description="when the retention rule removes them")


class SpaceOut(Schema):
    models: int
    files: int
    data: int
    rest: int | None = Field(description="null where the store is not on this machine's disk")
    total: int
    free: int | None = Field(description="bytes that the store's disk has left; null elsewhere")
    measured_at: datetime | None = Field(
        description="the oldest measure of a folder, ten minutes old at most; null elsewhere"
    )
    quota: int | None = Field(description="bytes of models, files and data; null: no limit")
    keep_days: int | None = Field(
        description="days after a run's end before its intermediate files go; null: never"
    )
    lines: list[SpaceLineOut] = Field(description="runs and datasets, the largest first")


@router.get(
    "/projects/{slug}/space",
    auth=needs("read"),
    response=SpaceOut,
    summary="What the runs and datasets of a project keep in the artifact store, in bytes",
)
def space(
    request: HttpRequest,
    slug: str,
    measure: bool = Query(False, description="read every folder again"),
) -> SpaceOut:
    project, _ = project_for(request.user, slug, STAFF)
    found = project_space(project, measure=measure)
    lines = [
        SpaceLineOut(**{name: getattr(line, name) for name in SpaceLineOut.model_fields})
        for line in found.lines
    ]
    own = SpaceOut.model_fields.keys() - {"lines"}
    return SpaceOut(lines=lines, **{name: getattr(found, name) for name in own})


class LimitsIn(Schema):
    runs_at_once: int | None = Field(None, description="with a slot; checks do not count")
    space_bytes: int | None = Field(
        None, description="of models, files and datasets, before launches are refused"
    )
    gpu_hours: int | None = Field(None, description="of the last 30 days, before runs on GPUs wait")
    keep_days: int | None = Field(
        None, description="after a run's end, for its trainer state and intermediate checkpoints"
    )


class LimitsOut(Schema):
    runs_at_once: int | None
    space_bytes: int | None
    gpu_hours: int | None
    keep_days: int | None

    @classmethod
    def of(cls, row: RunQuota) -> "LimitsOut":
        return cls(**{name: getattr(row, name) for name in cls.model_fields})


@router.patch(
    "/projects/{slug}/limits",
    auth=needs("admin"),
    response=LimitsOut,
    summary="Set the quotas of a project and how long runs keep intermediate files",
)
def limits_set(request: HttpRequest, slug: str, payload: LimitsIn) -> LimitsOut:
    """What is left out stays as it is; null lifts a limit."""
    project, _ = project_for(request.user, slug, frozenset({ADMIN}))
    given = payload.dict(exclude_unset=True)
    return LimitsOut.of(services.quota_set(project=project, user=request.user, **given))


class IntermediatesOut(Schema):
    models: int = Field(description="checkpoints whose files are removed")
    states: int = Field(description="trainer states that are removed; their models stay")
    size: int = Field(description="bytes of all")


@router.post(
    BASE + "/{run_id}/remove-intermediates",
    auth=needs("train"),
    response=IntermediatesOut,
    summary="Remove the intermediate checkpoints and the trainer state of an ended run",
)
def intermediates_remove(request: HttpRequest, slug: str, run_id: str) -> IntermediatesOut:
    """For good. What is final, best, last or approved stays, and what anything else uses. A failed
    or cancelled run can then not be resumed."""
    run = run_of(request, slug, run_id)
    removed = services.intermediates_remove(run=run, user=request.user)
    return IntermediatesOut(models=removed.models, states=removed.states, size=removed.size)
