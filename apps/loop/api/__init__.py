"""The API of a project's overview, of what the bell tells, and of the pairs that a run wrote."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema
from pydantic import ConfigDict

from apps.accounts import selectors as accounts
from apps.accounts.api_auth import needs
from apps.accounts.identity import membership_get
from apps.accounts.models import Membership, Role
from apps.accounts.permissions import STAFF, project_for
from apps.accounts.screens import AuditLine
from apps.labeling.models import Choice, Vote
from apps.labeling.services import HIGHEST_PRIORITY, LABELERS
from apps.labeling.texts import excerpt
from apps.loop import screens, services
from apps.loop.plan import SelectionPlan
from apps.loop.services.selecting import pairs_select
from apps.training.models import Run
from apps.training.selectors import run_get

router = Router(tags=["overview"])


class NeedOut(Schema):
    key: str
    n: int
    words: str
    url: str = Field(description="of the page that lists them")


class BehindOut(Schema):
    username: str
    n: int = Field(description="votes cast")
    behind: int = Field(description="votes they lack for their share")


class ProgressOut(Schema):
    """Votes wanted and cast, and when they are all in at the pace of the last days."""

    votes: int
    to_go: int
    comparisons: dict[str, int] = Field(description="by state")
    per_day: float | None
    finish: datetime | None
    no_forecast: str = Field(description="why there is no date")
    people: int
    share: int = Field(description="votes of each of them, past and to come")
    behind: list[BehindOut] = Field(description="furthest first; for admins")


class OwnOut(Schema):
    """Your own labeling."""

    today: int
    goal: int
    answers: int
    share: int
    left: int
    minutes_per_ten: float | None
    agreement: float | None = Field(description="with others, of votes a day old or older")
    agreement_low: float | None
    agreement_high: float | None
    agreement_pairs: int


class AttemptOut(Schema):
    """A finished attempt at the qualification."""

    number: int
    state: str = Field(description="passed, failed")
    right: int
    pairs: int
    finished_at: datetime | None


class GoldOut(Schema):
    """A pair of your queue whose answer is known. Sides as the pair was shown to you."""

    vote: int
    at: datetime
    prompt: str = Field(description="how it begins")
    yours: str = Field(description="left, right, tie, both_bad")
    known: str = Field(description="left, right, tie, both_bad")
    explanation: str = Field(description="Markdown")


class OwnResultsOut(Schema):
    """Your labeling, your practice, and your gold pairs where the project shows them."""

    own: OwnOut
    attempts: list[AttemptOut] = Field(description="newest first")
    shows_gold: bool
    gold_right: int
    gold_count: int
    gold: list[GoldOut] = Field(description="a day old or older, newest first")
    after: int | None = Field(description="send it as `after` for the next page; null at the end")


class LiveRunOut(Schema):
    id: str
    name: str
    state: str
    seconds_left: float | None
    waits: str


class NewModelOut(Schema):
    id: str
    run: str
    step: int
    status: str
    use: str


class EngineeringOut(Schema):
    runs: list[LiveRunOut]
    models: list[NewModelOut]
    incidents: list[str]
    fresh_votes: dict[str, int] = Field(
        description="since the last dataset, and since what the last reward model was trained on"
    )


class OverviewEventOut(Schema):
    at: datetime
    action: str
    sentence: str


class OverviewOut(Schema):
    """What your role needs; a part is null for roles that do not have it."""

    role: str
    needs: list[NeedOut]
    progress: ProgressOut | None
    own: OwnOut | None
    engineering: EngineeringOut | None
    events: list[OverviewEventOut]


class NoticeOut(Schema):
    id: int
    at: datetime
    kind: str
    text: str
    path: str
    seen: bool


def _membership(request: HttpRequest, slug: str) -> Membership:
    project_for(request.user, slug)
    found = membership_get(user=request.user, slug=slug)
    assert found is not None  # noqa: S101 - as project_for has found it
    return found


@router.get(
    "/projects/{slug}/overview",
    auth=needs("read"),
    response=OverviewOut,
    summary="What needs you, and how far the project is",
)
def overview(request: HttpRequest, slug: str) -> OverviewOut:
    found = screens.overview_of(_membership(request, slug))
    return OverviewOut(
        role=found.role,
        needs=[NeedOut(key=one.key, n=one.n, words=one.words, url=one.url) for one in found.needs],
        progress=_progress(found.progress, found.role) if found.progress else None,
        own=_own(found.own) if found.own else None,
        engineering=_engineering(found.engineering) if found.engineering else None,
        events=[_event(line) for line in found.events],
    )


def _progress(shown: screens.Progress, role: str) -> ProgressOut:
    work = shown.work
    return ProgressOut(
        votes=work.done,
        to_go=work.to_go,
        comparisons=dict(work.states),
        per_day=shown.forecast.per_day,
        finish=shown.finish,
        no_forecast=shown.no_forecast,
        people=work.people,
        share=work.share,
        behind=[BehindOut(username=one.username, n=one.n, behind=one.behind) for one in work.behind]
        if role == Role.ADMIN
        else [],
    )


def _own(own: screens.Own) -> OwnOut:
    return OwnOut(
        today=own.place.n_today,
        goal=own.goal,
        answers=own.n,
        share=own.share,
        left=own.place.n_left,
        minutes_per_ten=own.minutes,
        agreement=own.agreement.value,
        agreement_low=own.agreement.low,
        agreement_high=own.agreement.high,
        agreement_pairs=own.agreement.n,
    )


@router.get(
    "/projects/{slug}/progress",
    auth=needs("read"),
    response=OwnResultsOut,
    summary="How you do yourself: pace, agreement, practice, gold",
    tags=["labeling"],
)
def progress(
    request: HttpRequest,
    slug: str,
    after: int = Query(0, ge=0, le=2**31, description="how many gold pairs to pass over"),
    limit: int = Query(50, ge=1, le=500),
) -> OwnResultsOut:
    """For whoever labels. Gold only where the project's setting `show_gold` is on."""
    project_for(request.user, slug, LABELERS)
    found = screens.results_of(_membership(request, slug))
    gold = found.gold
    count = 0 if gold is None else gold.count()
    shown = [] if gold is None else [_gold(vote) for vote in gold[after : after + limit]]
    return OwnResultsOut(
        own=_own(found.own),
        attempts=[
            AttemptOut(
                number=one.number,
                state=one.state,
                right=one.n_right,
                pairs=one.n_pairs,
                finished_at=one.finished_at,
            )
            for one in found.attempts
        ],
        shows_gold=gold is not None,
        gold_right=found.n_right,
        gold_count=count,
        gold=shown,
        after=after + limit if after + limit < count else None,
    )


_SIDES = {Choice.A: "left", Choice.B: "right"}


def _gold(vote: Vote) -> GoldOut:
    asked = vote.comparison
    yours, known = (Choice.as_seen(choice, vote.left_is) for choice in (vote.choice, asked.gold))
    return GoldOut(
        vote=vote.pk,
        at=vote.cast_at,
        prompt=excerpt(asked.prompt.brief),
        yours=_SIDES.get(yours, str(yours)),
        known=_SIDES.get(known, str(known)),
        explanation=asked.gold_explanation,
    )


def _engineering(made: screens.Engineering) -> EngineeringOut:
    return EngineeringOut(
        runs=[
            LiveRunOut(
                id=one.run.pk,
                name=one.run.name,
                state=one.run.state,
                seconds_left=one.progress.eta_s,
                waits=one.waits,
            )
            for one in made.live
        ],
        models=[
            NewModelOut(
                id=one.model.pk,
                run=one.model.run.name,
                step=one.model.step,
                status=one.model.status,
                use=one.use,
            )
            for one in made.models
        ],
        incidents=[one.pk for one in made.incidents],
        fresh_votes=made.fresh,
    )


def _event(line: AuditLine) -> OverviewEventOut:
    return OverviewEventOut(at=line.at, action=line.action, sentence=line.words)


@router.get(
    "/projects/{slug}/notifications",
    auth=needs("read"),
    response=list[NoticeOut],
    summary="What you were told, newest first",
)
def notifications(
    request: HttpRequest,
    slug: str,
    before: int | None = Query(None, description="the id of the last one you have"),
    limit: int = Query(50, ge=1, le=500),
) -> list[NoticeOut]:
    """Reading them here leaves them unseen on the page."""
    membership = _membership(request, slug)
    rows = accounts.notices_of(membership)
    seen = accounts.notices_seen_by(membership).notice
    shown: Any = (rows.filter(pk__lt=before) if before else rows)[:limit]
    return [
        NoticeOut(
            id=row.pk,
            at=row.at,
            kind=row.kind,
            text=row.sentence,
            path=row.path,
            seen=row.pk <= seen,
        )
        for row in shown
    ]


RUN_PAIRS = "/projects/{slug}/runs/{run_id}/pairs"


class RunPairsOut(Schema):
    """Pairs that a generation wrote, and those of them that are in the label queue."""

    written: int
    missing: str = Field(description="why there are none")
    queued: int
    voted: int = Field(description="pairs that somebody has voted on")
    votes: int = Field(description="votes cast on them")
    asked: int = Field(description="votes asked for")


class PairsIn(Schema):
    """What is left out is the run's own, else the project's."""

    votes: int | None = Field(None, ge=1, description="for each pair")
    priority: float | None = Field(
        None, ge=0, le=HIGHEST_PRIORITY, description="over 0: before all others"
    )


def _generation(request: HttpRequest, slug: str, run_id: str) -> Run:
    project, _ = project_for(request.user, slug, STAFF)
    return run_get(project=project, run_id=run_id)


def _pairs(run: Run) -> RunPairsOut:
    found = screens.pairs_of(run)
    return RunPairsOut(
        written=len(found.rows),
        missing=found.missing,
        queued=found.sent.n,
        voted=found.sent.voted,
        votes=found.sent.votes,
        asked=found.sent.asked,
    )


@router.get(
    RUN_PAIRS,
    auth=needs("read"),
    response=RunPairsOut,
    summary="How many pairs a generation wrote, and what became of them",
    tags=["runs"],
)
def run_pairs(request: HttpRequest, slug: str, run_id: str) -> RunPairsOut:
    return _pairs(_generation(request, slug, run_id))


@router.post(
    RUN_PAIRS,
    auth=needs("train"),
    response=RunPairsOut,
    summary="Put the pairs of a generation into the label queue",
    tags=["runs"],
)
def run_pairs_send(
    request: HttpRequest, slug: str, run_id: str, payload: PairsIn | None = None
) -> RunPairsOut:
    """Those that are there already stay as they are."""
    run = _generation(request, slug, run_id)
    given = payload.dict() if payload else {}
    services.fresh_pairs_queue(run=run, by=request.user, **given)
    return _pairs(run)


class PlanIn(Schema):
    """`apps.loop.plan.SelectionPlan`."""

    model_config = ConfigDict(extra="forbid")  # a misspelt field would choose by defaults

    pairs: int = Field(description="in all, as far as there are so many")
    measuring: float = Field(
        0.2, description="share drawn at random from all pairs, to measure on: 0 to 1"
    )
    measuring_votes: int = Field(3, description="for each of these, 3 to 5; all others get one")
    selected: float = Field(0.0, description="share that a model chooses: 0 to 0.5")
    strategy: str = Field("d_optimal", description="d_optimal, entropy or disagreement")
    most_per_prompt: int = Field(2, description="of one prompt among the selected, 1 to 50")
    seed: int = 0


class PairsSelectedOut(Schema):
    plan: dict[str, Any]
    candidates: int = Field(description="pairs that could be compared")
    measuring: int
    training: int
    selected: int
    left: int = Field(description="candidates that were not queued")
    refused: int = Field(description="pairs of the run that could not be compared")
    queued: int = Field(description="by this call")
    known: int = Field(description="that an earlier call with the same plan had queued")


@router.post(
    f"{RUN_PAIRS}/selection",
    auth=needs("train"),
    response=PairsSelectedOut,
    summary="Put only some of the pairs of a generation into the label queue, by a plan",
    tags=["runs"],
)
def run_pairs_select(
    request: HttpRequest, slug: str, run_id: str, payload: PlanIn
) -> dict[str, Any]:
    """The same plan again changes nothing; 409 where pairs are queued by another one, or all."""
    run = _generation(request, slug, run_id)
    plan = SelectionPlan.from_json(payload.dict())
    found = pairs_select(run=run, plan=plan, by=request.user)
    return asdict(found) | {"plan": plan.to_json()}


@router.delete(
    RUN_PAIRS,
    auth=needs("train"),
    response=RunPairsOut,
    summary="Take the pairs of a generation out of the label queue",
    tags=["runs"],
)
def run_pairs_take_back(request: HttpRequest, slug: str, run_id: str) -> RunPairsOut:
    """409 once somebody has voted on one of them."""
    run = _generation(request, slug, run_id)
    services.fresh_pairs_take_back(run=run, by=request.user)
    return _pairs(run)
