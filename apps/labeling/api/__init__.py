"""The API of labeling: import, ask for pairs, vote, read decisions and guidelines."""

from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import Field, Path, Query, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.models import Project, User
from apps.accounts.permissions import ADMIN, READERS, STAFF, project_for
from apps.common.errors import Missing
from apps.common.row_files import FILE_SENT, download_response
from apps.common.turns import voted
from apps.labeling import exports, selectors, services
from apps.labeling.api.finding import ComparisonFilters
from apps.labeling.api.schemas import (
    AsksOut,
    ComparisonsIn,
    DecisionsOut,
    ImportReportOut,
    LabelingSettingsIn,
    LabelingSettingsOut,
    NextOut,
    NothingOut,
    PairOut,
    RevisionOut,
    SkipIn,
    VoteIn,
    VoteOut,
    VotesIn,
    VotesReportOut,
    task_out,
)
from apps.labeling.models import RATED, Vote
from apps.labeling.services import LABELERS, Lease, NothingReason, Questions

router = Router(tags=["labeling"])
ADMINS = frozenset({ADMIN})
LARGEST_KEY = 2**63 - 1

PAIRS = ("pair",)
Kind = Literal["pair", "grade", "rank"]
KINDS_ASKED = Query(list(PAIRS), description="what you can show: pair, grade, rank")
Key = Path(ge=1, le=LARGEST_KEY)


@lru_cache(maxsize=256)
def _asks(questions: Questions) -> AsksOut:
    """The same for every pair of a project until its settings change."""
    return AsksOut.from_orm(questions)


def _next(got: Lease | NothingReason | None) -> dict[str, Any]:
    if isinstance(got, NothingReason):
        return {"nothing": NothingOut(code=got.code, message=got.text, back_at=got.back_at)}
    if got is None:
        return {}
    if got.kind in RATED:
        return {"task": task_out(got)}
    prompt, left, right = selectors.with_whole_results(got.project, got.prompt, got.left, got.right)
    return {
        "pair": PairOut(
            slot=got.slot,
            comparison=got.comparison,
            key=got.key,
            prompt=prompt,
            left=left,
            right=right,
            leased_until=got.leased_until,
            warning=got.warning,
            asks=_asks(got.questions),
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
    summary="What you hold, else the next one",
)
def next_pair(
    request: HttpRequest,
    slug: str,
    kinds: list[Kind] = KINDS_ASKED,
) -> dict[str, Any]:
    """Asking again returns the same task in the same order and prolongs your lease."""
    project, _ = project_for(request.user, slug, LABELERS)
    return _next(services.slot_lease_next(project=project, annotator=request.user, kinds=kinds))


@router.post(
    "/slots/{slot}/vote",
    auth=needs("label"),
    response=VoteOut,
    summary="Answer what you hold; the reply carries the next one",
)
def slot_vote(
    request: HttpRequest, payload: VoteIn, slot: int = Key, kinds: list[Kind] = KINDS_ASKED
) -> dict[str, Any]:
    """Sending the same vote again is harmless: it is stored once."""
    result = services.vote_cast(
        kinds=kinds,
        slot=slot,
        annotator=request.user,
        idempotency_key=payload.idempotency_key,
        source=Vote.Source.API,
        **payload.answer(),
    )
    voted(result.vote.project_id)
    return {"vote": result.vote.pk, "replayed": result.replayed} | _next(result.next)


@router.post(
    "/slots/{slot}/skip",
    auth=needs("label"),
    response=NextOut,
    summary="Pass on what you hold; it goes to others",
)
def slot_skip(
    request: HttpRequest, payload: SkipIn, slot: int = Key, kinds: list[Kind] = KINDS_ASKED
) -> dict[str, Any]:
    user, reason = request.user, payload.reason
    return _next(services.slot_skip(slot=slot, annotator=user, reason=reason, kinds=kinds))


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


FileFormat = Literal["jsonl", "parquet", "csv"]
SCRUB = Query(False, description="with what looks like personal data in texts taken out")


@router.get(
    "/projects/{slug}/results",
    auth=needs("read"),
    summary="Every comparison with its decision and its own columns, as a file",
    openapi_extra=FILE_SENT,
)
def results(
    request: HttpRequest,
    slug: str,
    filters: Query[ComparisonFilters],
    format: FileFormat = "jsonl",
    scrub: bool = SCRUB,
) -> HttpResponseBase:
    """In the order of comparison ids; read as it is sent, so its length does not matter."""
    project, _ = project_for(request.user, slug, READERS)
    sent = exports.results_export(
        project=project, form=format, wanted=filters.wanted(), scrub=scrub
    )
    return download_response(sent)


@router.get(
    "/projects/{slug}/results/votes",
    auth=needs("read"),
    summary="Every vote, as a file",
    openapi_extra=FILE_SENT,
)
def votes(
    request: HttpRequest,
    slug: str,
    filters: Query[ComparisonFilters],
    format: FileFormat = "jsonl",
    remarks: bool = Query(True, description="what annotators wrote, under the project's licence"),
    scrub: bool = SCRUB,
) -> HttpResponseBase:
    """A row a vote, revisions and repeats too: `is_current` and `purpose` tell which ones count.
    Admins get annotators' names, others pseudonyms of this project's votes."""
    project, role = project_for(request.user, slug, READERS)
    sent = exports.votes_export(
        project=project,
        form=format,
        wanted=filters.wanted(),
        with_names=role == ADMIN,
        remarks=remarks,
        scrub=scrub,
    )
    return download_response(sent)


@router.get(
    "/projects/{slug}/results/trajectories",
    auth=needs("read"),
    summary="Every run of an agent that is compared, as JSON Lines",
    openapi_extra=FILE_SENT,
)
def trajectories(
    request: HttpRequest,
    slug: str,
    filters: Query[ComparisonFilters],
    format: Literal["atif", "openai", "anthropic", "opentelemetry"] = "atif",
) -> HttpResponseBase:
    """Two lines a comparison, in ATIF 1.7, as messages of OpenAI's or Anthropic's API, or as spans
    of OpenTelemetry; its number, the side and the decision stand beside the run."""
    project, _ = project_for(request.user, slug, READERS)
    sent = exports.trajectories_export(project=project, wanted=filters.wanted(), form=format)
    return download_response(sent)


@router.get(
    "/projects/{slug}/results/steps",
    auth=needs("read"),
    summary="The runs whose first wrong step people told, as rows of steps, as JSON Lines",
    openapi_extra=FILE_SENT,
)
def steps(request: HttpRequest, slug: str, filters: Query[ComparisonFilters]) -> HttpResponseBase:
    """Where more than half of the answers name one step, or none. A file of these rows is imported
    as a dataset of steps, on which process reward models are trained."""
    project, _ = project_for(request.user, slug, READERS)
    return download_response(exports.steps_export(project=project, wanted=filters.wanted()))


def _decision(row: selectors.Decision) -> dict[str, Any]:
    return {
        "comparison": row.comparison_id,
        "external_id": row.comparison.external_id,
        "state": row.comparison.state,
        "gold": row.comparison.gold or None,
        "slice": row.comparison.slice,
        "inclusion_probability": row.comparison.inclusion_probability,
        "winner": row.winner or None,
        "posteriors": row.by_choice,
        "decided_at": row.updated_at,
    } | {
        name: getattr(row, name)
        for name in (
            "outcome",
            "n_a",
            "n_b",
            "n_tie",
            "n_both_bad",
            "share",
            "decided_by",
            "reason",
        )
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


# The API of guidelines: read them, and say that one has.


class GuidelineOut(Schema):
    version: int
    body: str = Field(description="Markdown")
    is_major: bool
    published_at: datetime
    acknowledged_version: int = Field(
        description="the last version you said you have read; 0: none"
    )
    must_acknowledge: bool = Field(description="`next` gives nothing until you acknowledge it")


class AcknowledgeIn(Schema):
    version: int = Field(ge=1, le=2**31 - 1, description="the version you have read")


class ConsentOut(Schema):
    version: int = Field(description="of the statement; 0: there never was one")
    statement: str = Field(description="what answers are used for; empty: nobody is asked")
    consented_version: int = Field(description="the version you agreed to; 0: none")


class ConsentIn(Schema):
    version: int = Field(ge=1, le=2**31 - 1, description="the version you agree to")


@router.get(
    "/projects/{slug}/consent",
    auth=needs("read"),
    response=ConsentOut,
    summary="What answers are used for, and whether you agreed",
)
def consent_get(request: HttpRequest, slug: str) -> dict[str, Any]:
    project, _ = project_for(request.user, slug)
    return selectors.consent_of(project=project, user=request.user)


@router.post(
    "/projects/{slug}/consent",
    auth=needs("label"),
    response=ConsentOut,
    summary="Agree to what your answers are used for",
)
def consent_give(request: HttpRequest, slug: str, payload: ConsentIn) -> dict[str, Any]:
    """Another version than the one that holds is refused; saying it again is harmless."""
    project, _ = project_for(request.user, slug, LABELERS)
    services.consent_give(project=project, user=request.user, version=payload.version)
    return selectors.consent_of(project=project, user=request.user)


@router.get(
    "/projects/{slug}/guidelines",
    auth=needs("read"),
    response=GuidelineOut,
    summary="The current guidelines",
)
def guidelines_get(request: HttpRequest, slug: str) -> dict[str, Any]:
    project, role = project_for(request.user, slug)
    return _shown(project, request.user, role)


@router.post(
    "/projects/{slug}/guidelines/acknowledge",
    auth=needs("label"),
    response=GuidelineOut,
    summary="Say that you have read the guidelines",
)
def guidelines_acknowledge(
    request: HttpRequest, slug: str, payload: AcknowledgeIn
) -> dict[str, Any]:
    """Saying it again is harmless; a version that a newer major one replaced is refused."""
    project, role = project_for(request.user, slug, LABELERS)
    services.guideline_acknowledge(project=project, user=request.user, version=payload.version)
    return _shown(project, request.user, role)


class GuidelineIn(Schema):
    body: str = Field(description="Markdown")
    is_major: bool = Field(False, description="whoever labels has to read it before they go on")


@router.post(
    "/projects/{slug}/guidelines",
    auth=needs("admin"),
    response=GuidelineOut,
    summary="Publish the next version of the guidelines",
)
def guidelines_publish(request: HttpRequest, slug: str, payload: GuidelineIn) -> dict[str, Any]:
    """Earlier versions stay readable. The current text again changes nothing."""
    project, role = project_for(request.user, slug, ADMINS)
    services.guideline_publish(project=project, by=request.user, **payload.dict())
    return _shown(project, request.user, role)


class OptOuts(Schema):
    """What you do not want to get."""

    avoids_topics: list[str] = Field([], max_length=1_000)
    avoids_sensitive: bool = Field(False, description="no pairs with a content warning")


@router.get(
    "/projects/{slug}/opt-outs",
    auth=needs("label"),
    response=OptOuts,
    summary="What you chose not to get",
)
def opt_outs_get(request: HttpRequest, slug: str) -> Any:
    project, _ = project_for(request.user, slug, LABELERS)
    return selectors.annotator_of(project=project, user=request.user)


@router.put(
    "/projects/{slug}/opt-outs",
    auth=needs("label"),
    response=OptOuts,
    summary="Choose what you do not want to get",
)
def opt_outs_set(request: HttpRequest, slug: str, payload: OptOuts) -> Any:
    """From your next pair on; the one in your hands stays yours."""
    project, _ = project_for(request.user, slug, LABELERS)
    return services.annotator_opt_out(project=project, user=request.user, **payload.dict())


def _shown(project: Project, user: User, role: str) -> dict[str, Any]:
    current = selectors.guideline_current(project=project)
    if current is None:
        raise Missing("This project has no guidelines yet.", field="version")
    read = selectors.guideline_read(project=project, user=user)
    due = False
    if role in LABELERS:
        eligibility = services.labeling_status(project=project, annotator=user).eligibility
        due = eligibility.guideline_due is not None
    return {
        "version": current.version,
        "body": current.body,
        "is_major": current.is_major,
        "published_at": current.created_at,
        "acknowledged_version": read.version if read else 0,
        "must_acknowledge": due,
    }
