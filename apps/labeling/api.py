"""The API of labeling: import, ask for pairs, vote, read decisions."""

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Path, Query, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.permissions import ADMIN, READERS, STAFF, project_for
from apps.labeling import selectors, services
from apps.labeling.models import Vote
from apps.labeling.services import LABELERS, Lease, NothingReason

router = Router(tags=["labeling"])
ADMINS = frozenset({ADMIN})
LARGEST_KEY = 2**63 - 1
MOST_ROWS = 50_000  # of one import request; a longer file goes in several

Key = Path(ge=1, le=LARGEST_KEY)


class MessageOut(Schema):
    role: str
    content: str


class PairOut(Schema):
    """A pair in your hands. Nothing in it tells where an answer came from."""

    slot: int
    comparison: int
    key: str = Field(description="send it as idempotency_key with the vote")
    prompt: list[MessageOut]
    left: list[MessageOut]
    right: list[MessageOut]
    leased_until: datetime


class NothingOut(Schema):
    code: str = Field(description="empty, paused, held, yours_done or all_done")
    message: str
    back_at: datetime | None = Field(None, description="for held: when the first comes back")


class NextOut(Schema):
    """Either a pair or the reason why there is none."""

    pair: PairOut | None = None
    nothing: NothingOut | None = None


class VoteIn(Schema):
    """`side` as the pair was shown, or `choice` in stored terms; one of the two."""

    side: str = Field("", description="left, right, tie, both_bad")
    choice: str = Field("", description="a, b, tie, both_bad")
    idempotency_key: str = Field(max_length=80, description="the pair's key, or one of your own")
    strength: int | None = Field(None, description="1 slightly, 2 much; with A or B only")
    rationale: str = ""
    flags: list[str] = []
    active_ms: int | None = None
    wall_ms: int | None = None

    def answer(self) -> dict[str, Any]:
        return self.dict(exclude={"idempotency_key"})


class VoteOut(NextOut):
    vote: int
    replayed: bool = Field(description="this submit had been stored before")


class RevisionOut(Schema):
    vote: int
    revision: int
    replayed: bool


class SkipIn(Schema):
    reason: str = Field("", max_length=300)


class ComparisonsIn(Schema):
    rows: list[Any] = Field(
        max_length=MOST_ROWS,
        description="objects with prompt, response_a, response_b and optionally id, group, topic, "
        "language, source, licence, gold, origin(_a/_b), origin_ref_a/_b, model_a/_b, stratum, "
        "priority, overlap, metadata",
    )
    batch: str = Field("", max_length=80)
    seed: int = 0
    on_error: Literal["refuse", "skip"] = "refuse"
    identical_answers: Literal["refuse", "warn"] = "refuse"


class VotesIn(Schema):
    rows: list[Any] = Field(
        max_length=MOST_ROWS,
        description="objects with comparison (its id), annotator, choice and optionally cast_at, "
        "strength, rationale",
    )
    on_error: Literal["refuse", "skip"] = "refuse"


class RowOut(Schema):
    row: int
    field: str
    message: str


class VotesReportOut(Schema):
    n_rows: int
    n_created: int
    n_unchanged: int
    n_refused: int
    n_people: int
    seconds: float
    problems: list[RowOut]


class ImportReportOut(Schema):
    n_rows: int
    n_created: int
    n_unchanged: int
    n_refused: int
    n_prompts: int
    n_responses: int
    n_slots: int
    seconds: float
    problems: list[RowOut]
    warnings: list[RowOut]


class DecisionOut(Schema):
    comparison: int
    external_id: str
    state: str
    outcome: str
    winner: str | None = Field(description="a, b, tie, both_bad; null while there is none")
    n_a: int
    n_b: int
    n_tie: int
    n_both_bad: int
    share: float
    gold: str | None
    reason: str
    decided_at: datetime


class DecisionsOut(Schema):
    items: list[DecisionOut]
    after: int | None = Field(description="send it as `after` for the next page; null at the end")


class LabelingSettingsOut(Schema):
    overlap: int
    max_overlap: int
    least_votes: int
    least_agreeing: int
    least_share: float
    lease_seconds: int
    random_share: float
    show_tie: bool
    show_both_bad: bool
    show_strength: bool
    show_rationale: bool


class LabelingSettingsIn(Schema):
    """What is left out stays."""

    overlap: int | None = None
    max_overlap: int | None = None
    least_votes: int | None = None
    least_agreeing: int | None = None
    least_share: float | None = None
    lease_seconds: int | None = None
    random_share: float | None = None
    show_tie: bool | None = None
    show_both_bad: bool | None = None
    show_strength: bool | None = None
    show_rationale: bool | None = None


def _next(got: Lease | NothingReason | None) -> dict[str, Any]:
    if isinstance(got, NothingReason):
        return {"nothing": NothingOut(code=got.code, message=got.text, back_at=got.back_at)}
    if got is None:
        return {}
    return {
        "pair": PairOut(
            slot=got.slot,
            comparison=got.comparison,
            key=got.key,
            prompt=got.prompt,
            left=got.left,
            right=got.right,
            leased_until=got.leased_until,
        )
    }


@router.post(
    "/projects/{slug}/comparisons/import",
    auth=needs("write"),
    response={201: ImportReportOut},
    summary="Import comparisons",
)
def comparisons_import(request: HttpRequest, slug: str, payload: ComparisonsIn) -> Status:
    """All rows or none, unless `on_error` is `skip`; the same rows again change nothing."""
    project, _ = project_for(request.user, slug, STAFF)
    report = services.comparisons_import(project=project, **payload.dict())
    return Status(201, report.as_dict())


@router.post(
    "/projects/{slug}/votes/import",
    auth=needs("write"),
    response={201: VotesReportOut},
    summary="Import votes cast elsewhere",
)
def votes_import(request: HttpRequest, slug: str, payload: VotesIn) -> Status:
    """Annotators become imported people of the project; the same rows again change nothing."""
    project, _ = project_for(request.user, slug, ADMINS)
    report = services.votes_import(project=project, **payload.dict())
    return Status(201, report.as_dict())


@router.post(
    "/projects/{slug}/next",
    auth=needs("label"),
    response=NextOut,
    summary="The pair you hold, else the next one",
)
def next_pair(request: HttpRequest, slug: str) -> dict[str, Any]:
    """Asking again returns the same pair on the same sides and prolongs your lease."""
    project, _ = project_for(request.user, slug, LABELERS)
    return _next(services.slot_lease_next(project=project, annotator=request.user))


@router.post(
    "/slots/{slot}/vote",
    auth=needs("label"),
    response=VoteOut,
    summary="Vote on a pair you hold; the answer carries the next one",
)
def slot_vote(request: HttpRequest, payload: VoteIn, slot: int = Key) -> dict[str, Any]:
    """Sending the same vote again is harmless: it is stored once."""
    result = services.vote_cast(
        slot=slot,
        annotator=request.user,
        idempotency_key=payload.idempotency_key,
        source=Vote.Source.API,
        **payload.answer(),
    )
    return {"vote": result.vote.pk, "replayed": result.replayed} | _next(result.next)


@router.post(
    "/slots/{slot}/skip",
    auth=needs("label"),
    response=NextOut,
    summary="Pass on a pair; it goes to others",
)
def slot_skip(request: HttpRequest, payload: SkipIn, slot: int = Key) -> dict[str, Any]:
    return _next(services.slot_skip(slot=slot, annotator=request.user, reason=payload.reason))


@router.post(
    "/votes/{vote}/revise",
    auth=needs("label"),
    response=RevisionOut,
    summary="Change a vote of yours; the old one stays in the history",
)
def vote_revise(request: HttpRequest, payload: VoteIn, vote: int = Key) -> dict[str, Any]:
    result = services.vote_revise(
        vote=vote,
        annotator=request.user,
        idempotency_key=payload.idempotency_key,
        source=Vote.Source.API,
        **payload.answer(),
    )
    return {
        "vote": result.vote.pk,
        "revision": result.vote.revision,
        "replayed": result.replayed,
    }


@router.get(
    "/projects/{slug}/decisions",
    auth=needs("read"),
    response=DecisionsOut,
    summary="What the votes amount to, by comparison",
)
def decisions(
    request: HttpRequest,
    slug: str,
    after: int = Query(0, ge=0, le=LARGEST_KEY),
    limit: int = Query(500, ge=1, le=5000),
    outcome: str = "",
) -> dict[str, Any]:
    """In the order of comparison ids, so that a page never repeats or misses a row."""
    project, _ = project_for(request.user, slug, READERS)
    rows = selectors.decisions_page(project=project, after=after, limit=limit, outcome=outcome)
    return {
        "items": [_decision(row) for row in rows],
        "after": rows[-1].comparison_id if len(rows) == limit else None,
    }


def _decision(row: selectors.Decision) -> dict[str, Any]:
    return {
        "comparison": row.comparison_id,
        "external_id": row.comparison.external_id,
        "state": row.comparison.state,
        "gold": row.comparison.gold or None,
        "winner": row.winner or None,
        "decided_at": row.updated_at,
    } | {
        name: getattr(row, name)
        for name in ("outcome", "n_a", "n_b", "n_tie", "n_both_bad", "share", "reason")
    }


@router.get(
    "/projects/{slug}/labeling",
    auth=needs("read"),
    response=LabelingSettingsOut,
    summary="How the project labels and decides",
)
def labeling_get(request: HttpRequest, slug: str) -> Any:
    project, _ = project_for(request.user, slug, READERS)
    return selectors.settings_get(project=project)


@router.patch(
    "/projects/{slug}/labeling",
    auth=needs("admin"),
    response=LabelingSettingsOut,
    summary="Change how the project labels and decides",
)
def labeling_update(request: HttpRequest, slug: str, payload: LabelingSettingsIn) -> Any:
    project, _ = project_for(request.user, slug, ADMINS)
    changes = payload.dict(exclude_none=True)
    return services.labeling_settings_update(project=project, by=request.user, **changes)
