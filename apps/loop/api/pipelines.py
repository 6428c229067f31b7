"""The API of pipelines and their rounds."""

from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Query, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.permissions import STAFF, project_for
from apps.loop.models import Pipeline, Round
from apps.loop.recipe import RULE_NAMES, TITLES, Rules
from apps.loop.selectors import pipelines as selectors
from apps.loop.selectors.figures import Rate, RoundFigures, figures_by_round
from apps.loop.selectors.rules import next_due, rules_of, spent_of
from apps.loop.services.pipelines import StepChange, pipeline_change, pipeline_make
from apps.loop.services.rounds import round_act, round_advance, round_start
from apps.loop.services.templates import pipeline_from_template
from apps.snapshots.selectors.snapshots import snapshot_get
from apps.training.selectors import run_get
from apps.training.selectors.pages import checkpoint_get

router = Router(tags=["rounds"])
ALL = "/projects/{slug}/pipelines"
ONE = "/projects/{slug}/pipelines/{pipeline_id}"
ROUNDS = "/projects/{slug}/pipelines/{pipeline_id}/rounds"
ROUND = "/projects/{slug}/pipelines/{pipeline_id}/rounds/{number}"


class RulesSchema(Schema):
    """What starts rounds by themselves, and what ends one in order; null is no such rule."""

    trigger_pairs: int | None = Field(None, description="fresh accepted pairs")
    trigger_age_days: int | None = Field(None, description="of the newest reward model")
    trigger_drift: bool = Field(False, description="a watched model differs from its baseline")
    trigger_every_days: int | None = Field(None, description="a schedule, from the next such hour")
    trigger_at_hour: int = Field(6, description="of the schedule, 0 to 23, UTC")
    budget_minutes: int | None = Field(None, description="wall time of freezes and runs")
    budget_votes: int | None = Field(
        None, description="on the round's generated pairs, else of the project while it lasts"
    )
    budget_gpu_hours: float | None = None
    budget_money: float | None = Field(None, description="needs a price")
    price_vote: float | None = None
    price_gpu_hour: float | None = None
    currency: str = ""


class PipelineStepOut(Schema):
    key: str = Field(
        description="generate, select, label, decide, freeze, reward, assess, approve, policy, "
        "evaluate, audit, promote"
    )
    kind: str = Field(description="run, select, label, decide, freeze, approve, audit, promote")
    enabled: bool
    copied_from: str = Field(description="the run whose settings it takes; empty for other kinds")
    inputs: dict[str, dict[str, str]] = Field(
        description="role: origin (step, previous, fixed), step, and the type and id that stand in"
    )
    stage: str = Field(description="to which a policy is promoted; empty for other kinds")
    share: int = Field(description="of labeling: percent of the pairs that must have their votes")
    hours: int | None = Field(
        description="of labeling: after which the round continues; null: never"
    )
    pairs: int | None = Field(
        description="of labeling: fresh accepted pairs to wait for where nothing is generated"
    )
    plan: dict[str, Any] = Field(description="of a selection")


class PipelineOut(RulesSchema):
    id: str
    name: str
    version: int
    created_at: datetime
    fresh_pairs: int = Field(description="accepted since its last dataset was frozen")
    disarmed: list[str] = Field(description="triggers that hold since they started a round")
    next_due: datetime | None = Field(description="by its schedule")
    live_round: int | None = Field(description="the number of the round that has not ended")
    steps: list[PipelineStepOut]


class PipelineIn(RulesSchema):
    run: str = Field(description="a finished run: the pipeline repeats what led to it")
    name: str
    as_round: bool = Field(False, description="show those runs as the first round")


class PipelineTemplateIn(RulesSchema):
    template: str = Field(description="reward, dpo or ppo")
    size: str = Field(description="lora (pretrained, on a GPU) or demo (small, on processors)")
    policy: str = Field(description="the model that training starts from")
    prompts: str = Field(description="a dataset with prompts")
    generates: bool = Field(False, description="people label fresh pairs of the policy first")
    name: str


class StepChangeIn(Schema):
    enabled: bool | None = None
    copied_from: str | None = Field(None, description="a finished run whose settings it takes")
    previous: bool | None = Field(
        None, description="whether its input `sft` is what the round before trained"
    )
    share: int | None = None
    hours: int | None = Field(None, description="0: no limit")
    pairs: int | None = None
    plan: dict[str, Any] | None = None


class PipelineChangeIn(RulesSchema):
    """What is left out stays as it is."""

    seen_version: int = Field(ge=1, description="the version that you looked at")
    name: str | None = None
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
    trigger: str = Field(description="hand, api, pairs, age, drift, schedule, past")
    started_by: str | None
    fresh_pairs: int = Field(description="when it started")
    created_at: datetime
    ended_at: datetime | None
    reason: str = Field(description="why it was stopped")
    machine_seconds: float = Field(description="wall time of its freezes and runs")
    votes: int = Field(description="that count against its budget")
    gpu_hours: float
    money: float | None = Field(description="by the prices of its version; null without any")
    waits_for: RoundWaitOut | None
    accuracy: RoundRateOut | None = Field(description="of the reward model on held-out rows")
    win_rate: RoundRateOut | None = Field(description="against its baseline, by the judge")
    compared_with: int | None = Field(
        description="the newest earlier round evaluated under the same protocol"
    )
    change: RoundRateOut | None = Field(
        description="of the win rate since that round, paired by prompts, −1 to 1"
    )
    new_people: RoundRateOut | None = Field(
        description="accuracy of the reward model on votes of people it never met"
    )
    by_people: RoundRateOut | None = Field(
        description="win rate of the policy in the newest head-to-head that ended"
    )
    kl: float | None = Field(description="nats from the baseline per answer")
    length: float | None = Field(description="mean tokens of the policy's answers")
    baseline_length: float | None
    agreement: RoundRateOut | None = Field(
        description="of two votes on one of the pairs that the round generated"
    )
    equal: RoundRateOut | None = Field(description="of those votes, for neither answer")
    simulated: int = Field(description="of those votes")
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
    rules = rules_of(version)
    return PipelineOut(
        id=row.pk,
        name=row.name,
        version=version.number,
        created_at=row.created_at,
        fresh_pairs=selectors.fresh_pairs(row),
        disarmed=row.disarmed,
        next_due=next_due(version, rules, timezone.now()),
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
                share=step.share,
                hours=step.hours,
                pairs=step.pairs,
                plan=dict(step.plan),
            )
            for step in selectors.steps_of(version)
        ],
        **asdict(rules),
    )


def _rate(found: Rate | None) -> RoundRateOut | None:
    if found is None:
        return None
    return RoundRateOut(value=found.value, low=found.low, high=found.high, n=found.n, of=found.of)


def _round_out(row: Round, figures: RoundFigures) -> PipelineRoundOut:
    steps = selectors.round_steps(row)
    wait, spent = selectors.wait_of(row, steps), spent_of(row, steps)
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
        machine_seconds=round(spent.seconds, 1),
        votes=spent.votes,
        gpu_hours=round(spent.gpu_hours, 3),
        money=spent.money,
        waits_for=wait
        and RoundWaitOut(step=wait.step, words=wait.words, who=wait.who, url=wait.url),
        accuracy=_rate(figures.accuracy),
        win_rate=_rate(figures.win_rate),
        compared_with=figures.before[0] if figures.before else None,
        change=_rate(figures.change),
        new_people=_rate(figures.new_people),
        by_people=_rate(figures.by_people),
        kl=figures.kl,
        length=figures.length,
        baseline_length=figures.baseline_length,
        agreement=_rate(figures.agreement),
        equal=_rate(figures.equal),
        simulated=figures.simulated,
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
    return _round_out(row, figures_by_round(list(earlier), {row.number})[row.number])


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
    made = pipeline_make(
        project=project,
        run=run_get(project=project, run_id=payload.run),
        name=payload.name,
        user=request.user,
        rules=_rules(payload),
        as_round=payload.as_round,
    )
    return Status(201, _out(made))


def _rules(payload: RulesSchema) -> Rules:
    return Rules(**payload.dict(include=set(RULE_NAMES)))


@router.post(
    f"{ALL}/from-template",
    auth=needs("train"),
    response={201: PipelineOut},
    summary="Make a pipeline of a template",
)
def pipeline_create_from_template(
    request: HttpRequest, slug: str, payload: PipelineTemplateIn
) -> Status:
    """For a project that has trained nothing yet. 409 for a name that another pipeline has
    (name_taken)."""
    project, _ = project_for(request.user, slug, STAFF)
    made = pipeline_from_template(
        project=project,
        template=payload.template,
        size=payload.size,
        policy=checkpoint_get(project=project, checkpoint_id=payload.policy),
        prompts=snapshot_get(project=project, snapshot_id=payload.prompts),
        generates=payload.generates,
        name=payload.name,
        user=request.user,
        rules=_rules(payload),
    )
    return Status(201, _out(made))


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
    given = payload.dict(exclude_unset=True, include=set(RULE_NAMES))
    pipeline_change(
        pipeline=found,
        user=request.user,
        seen_version=payload.seen_version,
        name=payload.name if payload.name is not None else found.name,
        rules=replace(rules_of(version), **given),
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
    shown = every[offset : offset + limit]
    figures = figures_by_round(every, {row.number for row in shown})
    return [_round_out(row, figures[row.number]) for row in shown]


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
