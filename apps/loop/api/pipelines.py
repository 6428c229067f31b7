"""The API of pipelines and their rounds."""

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.permissions import STAFF, project_for
from apps.loop.models import Pipeline, Round
from apps.loop.recipe import TITLES
from apps.loop.selectors import pipelines as selectors
from apps.loop.services.pipelines import (
    LONGEST_BUDGET,
    StepChange,
    pipeline_change,
    pipeline_make,
)
from apps.loop.services.rounds import round_act, round_advance, round_start
from apps.training.selectors import run_get

router = Router(tags=["rounds"])
ALL = "/projects/{slug}/pipelines"
ONE = "/projects/{slug}/pipelines/{pipeline_id}"
ROUNDS = "/projects/{slug}/pipelines/{pipeline_id}/rounds"
ROUND = "/projects/{slug}/pipelines/{pipeline_id}/rounds/{number}"


class PipelineStepOut(Schema):
    key: str = Field(description="freeze, reward, assess, approve, policy, evaluate, promote")
    kind: str = Field(description="freeze, run, approve, promote")
    enabled: bool
    copied_from: str = Field(description="the run whose settings it takes; empty for other kinds")
    inputs: dict[str, dict[str, str]] = Field(
        description="role: origin (step, previous, fixed), step, and the type and id that stand in"
    )
    stage: str = Field(description="to which a policy is promoted; empty for other kinds")


class PipelineOut(Schema):
    id: str
    name: str
    version: int
    created_at: datetime
    trigger_pairs: int | None = Field(
        description="so many fresh accepted pairs start a round; null: by hand or API alone"
    )
    budget_minutes: int | None = Field(description="of a round's freezes and runs; null: no limit")
    fresh_pairs: int = Field(description="accepted since its last dataset was frozen")
    armed: bool = Field(description="whether its trigger may start a round")
    live_round: int | None = Field(description="the number of the round that has not ended")
    steps: list[PipelineStepOut]


class PipelineIn(Schema):
    run: str = Field(description="a finished run: the pipeline repeats what led to it")
    name: str
    trigger_pairs: int | None = Field(None, ge=1, lt=2**31)
    budget_minutes: int | None = Field(None, ge=1, le=LONGEST_BUDGET)


class StepChangeIn(Schema):
    enabled: bool | None = None
    copied_from: str | None = Field(None, description="a finished run whose settings it takes")
    previous: bool | None = Field(
        None, description="whether its input `sft` is what the round before trained"
    )


class PipelineChangeIn(Schema):
    """What is left out stays as it is."""

    seen_version: int = Field(ge=1, description="the version that you looked at")
    name: str | None = None
    trigger_pairs: int | None = Field(None, ge=1, lt=2**31, description="null: none")
    budget_minutes: int | None = Field(None, ge=1, le=LONGEST_BUDGET, description="null: none")
    stage: str = ""
    steps: dict[str, StepChangeIn] = {}


class RoundStepOut(Schema):
    key: str
    title: str
    state: str = Field(description="pending, running, waiting, done, failed, skipped")
    attempt: int
    run: str | None
    dataset: str | None
    model: str | None
    inputs: dict[str, Any]
    decision: str = Field(description="of people; empty until then")
    problem: str = Field(description="why it failed, and what to do")
    reason: str = Field(description="of skipping it")
    started_at: datetime | None
    ended_at: datetime | None


class RoundWaitOut(Schema):
    step: str
    words: str
    who: str
    url: str = Field(description="of the page where it is done; empty for none")


class RoundRateOut(Schema):
    value: float
    low: float | None = Field(description="of the 95 % interval")
    high: float | None
    n: int | None
    of: str = Field(description="the split, or the beginning of the protocol's hash")


class PipelineRoundOut(Schema):
    pipeline: str
    number: int
    version: int
    state: str = Field(description="running, waiting, paused, finished, stopped")
    trigger: str = Field(description="hand, api, pairs")
    started_by: str | None
    fresh_pairs: int = Field(description="when it started")
    created_at: datetime
    ended_at: datetime | None
    reason: str = Field(description="why it was stopped")
    machine_seconds: float = Field(description="wall time of its freezes and runs")
    waits_for: RoundWaitOut | None
    accuracy: RoundRateOut | None = Field(description="of the reward model on held-out rows")
    win_rate: RoundRateOut | None = Field(description="against its baseline, by the judge")
    compared_with: int | None = Field(
        description="the newest earlier round evaluated under the same protocol"
    )
    change: float | None = Field(description="of the win rate since that round")
    steps: list[RoundStepOut]


class RoundActIn(Schema):
    action: Literal["pause", "resume", "stop", "skip", "redo"]
    step: str = Field("", description="of skip and redo")
    reason: str = Field("", description="of stop and skip")


def _pipeline(request: HttpRequest, slug: str, pipeline_id: str) -> Pipeline:
    project, _ = project_for(request.user, slug, STAFF)
    return selectors.pipeline_get(project=project, pipeline_id=pipeline_id)


def _out(row: Pipeline) -> PipelineOut:
    version = selectors.version_now(row)
    live = next((one for one in selectors.rounds_of(row)[:1] if one.is_live), None)
    return PipelineOut(
        id=row.pk,
        name=row.name,
        version=version.number,
        created_at=row.created_at,
        trigger_pairs=version.trigger_pairs,
        budget_minutes=version.budget_minutes,
        fresh_pairs=selectors.fresh_pairs(row),
        armed=row.armed,
        live_round=live.number if live else None,
        steps=[
            PipelineStepOut(
                key=step.key,
                kind=step.kind,
                enabled=step.enabled,
                copied_from=step.copied_from,
                inputs={
                    role: {
                        "origin": one.origin,
                        "step": one.step,
                        "type": one.type,
                        "id": one.id,
                    }
                    for role, one in step.inputs.items()
                },
                stage=step.stage,
            )
            for step in selectors.steps_of(version)
        ],
    )


def _rate(found: selectors.Rate | None) -> RoundRateOut | None:
    if found is None:
        return None
    return RoundRateOut(value=found.value, low=found.low, high=found.high, n=found.n, of=found.of)


def _round_out(row: Round, figures: selectors.RoundFigures) -> PipelineRoundOut:
    steps = selectors.round_steps(row)
    wait = selectors.wait_of(row, steps)
    return PipelineRoundOut(
        pipeline=row.pipeline_id,
        number=row.number,
        version=row.version.number,
        state=row.state,
        trigger=row.trigger,
        started_by=row.started_by.username if row.started_by else None,
        fresh_pairs=row.fresh_pairs,
        created_at=row.created_at,
        ended_at=row.ended_at,
        reason=row.reason,
        machine_seconds=round(selectors.spent_seconds(row, steps), 1),
        waits_for=wait
        and RoundWaitOut(step=wait.step, words=wait.words, who=wait.who, url=wait.url),
        accuracy=_rate(figures.accuracy),
        win_rate=_rate(figures.win_rate),
        compared_with=figures.before[0] if figures.before else None,
        change=figures.change,
        steps=[
            RoundStepOut(
                key=one.key,
                title=TITLES[one.key],
                state=one.state,
                attempt=one.attempt,
                run=one.run_id,
                dataset=one.snapshot_id,
                model=one.checkpoint_id,
                inputs=one.inputs,
                decision=one.decision,
                problem=one.problem,
                reason=one.reason,
                started_at=one.started_at,
                ended_at=one.ended_at,
            )
            for one in steps
        ],
    )


def _round_alone(row: Round) -> PipelineRoundOut:
    earlier = selectors.rounds_of(row.pipeline).filter(number__lte=row.number)
    return _round_out(row, selectors.figures_by_round(list(earlier))[row.number])


@router.get(ALL, auth=needs("read"), response=list[PipelineOut], summary="Pipelines")
def pipelines(request: HttpRequest, slug: str) -> list[PipelineOut]:
    """Newest first."""
    project, _ = project_for(request.user, slug, STAFF)
    return [_out(row) for row in selectors.pipelines_of(project)]


@router.post(
    ALL, auth=needs("train"), response={201: PipelineOut}, summary="Make a pipeline of a run"
)
def pipeline_create(request: HttpRequest, slug: str, payload: PipelineIn) -> Status:
    """The runs behind it and the newest that followed from it give each step its settings. 409 for
    a name that another pipeline has (name_taken)."""
    project, _ = project_for(request.user, slug, STAFF)
    asked = payload.dict()
    run = run_get(project=project, run_id=asked.pop("run"))
    return Status(201, _out(pipeline_make(project=project, run=run, user=request.user, **asked)))


@router.get(ONE, auth=needs("read"), response=PipelineOut, summary="A pipeline")
def pipeline(request: HttpRequest, slug: str, pipeline_id: str) -> PipelineOut:
    return _out(_pipeline(request, slug, pipeline_id))


@router.patch(ONE, auth=needs("train"), response=PipelineOut, summary="Change a pipeline")
def pipeline_update(
    request: HttpRequest, slug: str, pipeline_id: str, payload: PipelineChangeIn
) -> PipelineOut:
    """A new version, which counts from the next round on. 409 where somebody saved one meanwhile
    (changed_meanwhile)."""
    found = _pipeline(request, slug, pipeline_id)
    version = selectors.version_now(found)
    given = payload.dict(exclude_unset=True)
    pipeline_change(
        pipeline=found,
        user=request.user,
        seen_version=payload.seen_version,
        name=payload.name if payload.name is not None else found.name,
        trigger_pairs=given.get("trigger_pairs", version.trigger_pairs),
        budget_minutes=given.get("budget_minutes", version.budget_minutes),
        stage=payload.stage,
        steps={key: StepChange(**one.dict()) for key, one in payload.steps.items()},
    )
    return _out(_pipeline(request, slug, pipeline_id))


@router.get(
    ROUNDS, auth=needs("read"), response=list[PipelineRoundOut], summary="Rounds of a pipeline"
)
def rounds(
    request: HttpRequest,
    slug: str,
    pipeline_id: str,
    offset: int = Query(0, ge=0, le=2**31),
    limit: int = Query(20, ge=1, le=100),
) -> list[PipelineRoundOut]:
    """Newest first."""
    every = list(selectors.rounds_of(_pipeline(request, slug, pipeline_id)))
    figures = selectors.figures_by_round(every)
    return [_round_out(row, figures[row.number]) for row in every[offset : offset + limit]]


@router.post(ROUNDS, auth=needs("train"), response={201: PipelineRoundOut}, summary="Start a round")
def round_create(request: HttpRequest, slug: str, pipeline_id: str) -> Status:
    """409 while a round of this pipeline has not ended (round_live)."""
    row = round_start(
        pipeline=_pipeline(request, slug, pipeline_id),
        user=request.user,
        trigger=Round.Trigger.API,
    )
    round_advance(round_id=row.pk)
    return Status(201, _round_alone(_round(request, slug, pipeline_id, row.number)))


def _round(request: HttpRequest, slug: str, pipeline_id: str, number: int) -> Round:
    project, _ = project_for(request.user, slug, STAFF)
    return selectors.round_get(project=project, pipeline_id=pipeline_id, number=number)


@router.get(
    ROUND, auth=needs("read"), response=PipelineRoundOut, summary="A round: what it waits for"
)
def round_detail(
    request: HttpRequest, slug: str, pipeline_id: str, number: int
) -> PipelineRoundOut:
    return _round_alone(_round(request, slug, pipeline_id, number))


@router.post(ROUND, auth=needs("train"), response=PipelineRoundOut, summary="Act on a round")
def round_action(
    request: HttpRequest, slug: str, pipeline_id: str, number: int, payload: RoundActIn
) -> PipelineRoundOut:
    """pause begins no further step; stop and skip need a reason; redo does a step and all after it
    again. 409 for a round that has ended (round_ended)."""
    row = _round(request, slug, pipeline_id, number)
    round_act(round=row, user=request.user, **payload.dict())
    return _round_alone(_round(request, slug, pipeline_id, number))
