"""The API of rating tasks: import, ask for the next, rate, read how the ratings lie."""

from dataclasses import asdict
from typing import Any

from django.http import HttpRequest
from ninja import Field, Path, Query, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.permissions import READERS, STAFF, project_for
from apps.common.errors import Missing
from apps.labeling.api.schemas import (
    MOST_ROWS,
    ImportReportOut,
    NothingOut,
    SkipIn,
    TaskOut,
    task_out,
)
from apps.labeling.models import RATED, Answer, Slot, Task
from apps.labeling.selectors.ratings import pair_counts, results_of, tasks_list
from apps.labeling.services import LABELERS, slot_lease_next, slot_skip, vote_cast, vote_revise
from apps.labeling.services.kinds import KINDS
from apps.labeling.services.pairs_of_answers import pairs_make
from apps.labeling.services.results import Lease, NothingReason, VoteResult
from apps.labeling.services.task_rows import tasks_import

router = Router(tags=["ratings"])
_LARGEST_KEY = 2**63 - 1
Key = Path(ge=1, le=_LARGEST_KEY)
KINDS_SHOWN = tuple(KINDS)
OLD_STATES = {Task.State.DECIDED.value: "rated"}


class RatingsIn(Schema):
    rows: list[dict[str, Any]] = Field(max_length=MOST_ROWS, description="see docs/labeling.md")


class NextTaskOut(Schema):
    """Either a task or the reason why there is none."""

    task: TaskOut | None = None
    nothing: NothingOut | None = None


class RatingIn(Schema):
    values: list[int] = Field(max_length=9, description="one for each response, as they are shown")
    idempotency_key: str = Field(max_length=120, description="the task's key, or one of your own")
    note: str = ""
    active_ms: int | None = None
    wall_ms: int | None = None

    def answer(self) -> dict[str, Any]:
        """What the services take."""
        given = self.dict()
        note = given.pop("note")
        return given | {"rationale": note}


class RatedOut(NextTaskOut):
    rating: int
    revision: int
    replayed: bool


class RatedPairOut(Schema):
    """Of all ratings, how many put a or b first; places in the stored order, from 1."""

    a: int
    b: int
    n_a: int
    n_b: int
    n_tie: int


class ResultOut(Schema):
    """How the ratings of a task lie: grades in points of its scale, ranks in shares beaten."""

    task: int
    external_id: str
    kind: str
    state: str
    n_ratings: int
    mean: float | None
    means: list[float] = Field(description="of each response, in the stored order")
    between_responses: float | None = Field(description="standard deviation of the means")
    between_raters: float | None = Field(description="pooled standard deviation around the means")
    pairs: list[RatedPairOut]


class ResultsOut(Schema):
    items: list[ResultOut]
    before: int | None = Field(description="ask for the next page with it; null: no more")


@router.post(
    "/projects/{slug}/ratings/import",
    auth=needs("write"),
    response={201: ImportReportOut},
    summary="Import rating tasks",
)
def ratings_import(request: HttpRequest, slug: str, payload: RatingsIn) -> Status:
    """All rows or none; the same rows again change nothing."""
    project, _ = project_for(request.user, slug, STAFF)
    return Status(201, tasks_import(project=project, rows=payload.rows).as_dict())


class PairsReportOut(Schema):
    n_tasks: int
    n_created: int
    n_changed: int
    n_undecided: int = Field(description="pairs on which people do not agree")


@router.post(
    "/projects/{slug}/ratings/pairs",
    auth=needs("write"),
    response={201: PairsReportOut},
    summary="Make pairs for datasets of finished gradings and rankings",
)
def ratings_pairs(request: HttpRequest, slug: str) -> Status:
    """Again is harmless: pairs that are there are brought up to date."""
    project, _ = project_for(request.user, slug, STAFF)
    return Status(201, asdict(pairs_make(project=project, by=request.user)))


@router.post(
    "/projects/{slug}/ratings/next",
    auth=needs("label"),
    response=NextTaskOut,
    summary="The rating task you hold, else the next one",
)
def task_next(request: HttpRequest, slug: str) -> dict[str, Any]:
    """Asking again returns the same task in the same order and prolongs your lease."""
    project, _ = project_for(request.user, slug, LABELERS)
    return _next(slot_lease_next(project=project, annotator=request.user, kinds=KINDS_SHOWN))


@router.post(
    "/rating-slots/{slot}/rating",
    auth=needs("label"),
    response=RatedOut,
    summary="Rate a task you hold; the answer carries the next one",
)
def task_rate(request: HttpRequest, payload: RatingIn, slot: int = Key) -> dict[str, Any]:
    """Sending the same rating again is harmless: it is stored once."""
    _slot_check(slot)
    result = vote_cast(
        slot=slot,
        annotator=request.user,
        source=Answer.Source.API,
        kinds=KINDS_SHOWN,
        **payload.answer(),
    )
    return _rated(result) | _next(result.next)


@router.post(
    "/rating-slots/{slot}/skip",
    auth=needs("label"),
    response=NextTaskOut,
    summary="Pass on a rating task; it goes to others",
)
def task_skip(request: HttpRequest, payload: SkipIn, slot: int = Key) -> dict[str, Any]:
    _slot_check(slot)
    got = slot_skip(slot=slot, annotator=request.user, reason=payload.reason, kinds=KINDS_SHOWN)
    return _next(got)


@router.post(
    "/ratings/{rating}/revise",
    auth=needs("label"),
    response=RatedOut,
    summary="Change a rating of yours; the old one stays in the history",
)
def task_revise(request: HttpRequest, payload: RatingIn, rating: int = Key) -> dict[str, Any]:
    mine = Answer.objects.filter(pk=rating, annotator=request.user)
    if not mine.filter(kind__in=RATED).exists():
        raise Missing("There is no such rating of yours.", field="rating")
    result = vote_revise(
        vote=rating, annotator=request.user, source=Answer.Source.API, **payload.answer()
    )
    return _rated(result)


@router.get(
    "/projects/{slug}/ratings",
    auth=needs("read"),
    response=ResultsOut,
    summary="Mean, spread and pairs of each rating task",
)
def ratings_results(
    request: HttpRequest,
    slug: str,
    before: int = Query(_LARGEST_KEY, ge=1, le=_LARGEST_KEY),
    limit: int = Query(200, ge=1, le=1000),
) -> dict[str, Any]:
    """Newest first, by task ids, so that a page never repeats or misses a task."""
    project, _ = project_for(request.user, slug, READERS)
    results = results_of(tasks_list(project=project).filter(pk__lt=before)[:limit])
    pairs = pair_counts([result.task for result in results])
    return {
        "items": [
            {
                "task": result.task.pk,
                "external_id": result.task.external_id,
                "kind": KINDS[result.task.kind].old_name,
                "state": OLD_STATES.get(result.task.state, result.task.state),
                "n_ratings": result.spread.n_ratings,
                "mean": result.spread.mean,
                "means": list(result.spread.means),
                "between_responses": result.spread.between_responses,
                "between_raters": result.spread.between_raters,
                "pairs": pairs[result.task.pk],
            }
            for result in results
        ],
        "before": results[-1].task.pk if len(results) == limit else None,
    }


def _slot_check(slot: int) -> None:
    """To this address a slot of a pair is as unknown as one that there is not."""
    if not Slot.objects.filter(pk=slot, task__kind__in=RATED).exists():
        raise Missing("There is no such rating task.", field="slot")


def _rated(result: VoteResult) -> dict[str, Any]:
    stored = result.vote
    return {"rating": stored.pk, "revision": stored.revision, "replayed": result.replayed}


def _next(got: Lease | NothingReason | None) -> dict[str, Any]:
    if isinstance(got, NothingReason):
        return {"nothing": NothingOut(code=got.code, message=got.text, back_at=got.back_at)}
    if got is None:
        return {}
    return {"task": task_out(got)}
