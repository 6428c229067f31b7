"""The API of disputes: what votes did not settle, and rulings on it."""

from datetime import datetime
from typing import Literal

from django.http import HttpRequest
from ninja import Field, Path, Query, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.permissions import JUDGES, READERS, project_for
from apps.agreement.forms import ACTIONS
from apps.agreement.models import Ruling
from apps.agreement.screens.disputes import decision_counts
from apps.agreement.selectors import disputes as reads
from apps.agreement.services import rulings
from apps.labeling.api.schemas import MessageOut
from apps.labeling.models import Choice, Comparison
from apps.labeling.selectors import settings_get

router = Router(tags=["disputes"])
LARGEST_KEY = 2**63 - 1
Key = Path(ge=1, le=LARGEST_KEY)


class RulingOut(Schema):
    """One act on a dispute; the newest counts."""

    id: int
    action: str = Field(description=", ".join(Ruling.Action.values))
    cause: str = Field(description=", ".join(Ruling.Cause.values) + ", or empty")
    choice: str
    comment: str
    guideline: int | None = Field(description="version under which it is judged again")
    votes_before: dict[str, int] = Field(description="{choice: votes} when it was ruled on")
    saw_votes: bool | None = Field(description="had its author seen the votes")
    at: datetime


class DisputeRowOut(Schema):
    comparison: int
    external_id: str
    state: str
    prompt: str = Field(description="its first words")
    votes: dict[str, int] | None = Field(
        description="{choice: votes that decide}; null where you are to judge first"
    )
    entropy: float | None = Field(description="of the votes, in bits; null without votes")
    ruled: bool


class DisputesOut(Schema):
    """The most undecided votes first."""

    items: list[DisputeRowOut]
    total: int


class DisputeOut(Schema):
    comparison: int
    external_id: str
    state: str
    outcome: str
    prompt: list[MessageOut]
    response_a: list[MessageOut]
    response_b: list[MessageOut]
    votes: dict[str, int] | None = Field(
        description="{choice: votes that decide}; null where you are to judge first"
    )
    rulings: list[RulingOut] | None = Field(description="newest first; null as `votes` is")
    seen: int = Field(description="the newest ruling's id, 0 for none: send it with yours")


class RulingIn(Schema):
    """Adjudicating and making gold need a choice and a cause, making gold a comment too, sending
    again a cause and the newest version of the guidelines."""

    action: Literal[ACTIONS] = "adjudicate"  # type: ignore[valid-type]
    choice: Literal["", *Choice.values] = ""  # type: ignore[valid-type]
    cause: Literal["", *Ruling.Cause.values] = ""  # type: ignore[valid-type]
    comment: str = Field("", max_length=rulings.LONGEST_NOTE)
    version: int | None = Field(None, ge=1, le=1_000_000)
    seen: int = Field(
        0, ge=0, le=LARGEST_KEY, description="of the dispute as you read it; 409 if older"
    )


class DisputeFilters(Schema):
    show: Literal[tuple(reads.SHOWN)] = "unsettled"  # type: ignore[valid-type]
    topic: str = Field("", max_length=200)
    cause: Literal["", *Ruling.Cause.values] = ""  # type: ignore[valid-type]
    ruled: Literal["", "yes", "no"] = ""
    search: str = Field("", max_length=200, description="in prompts, or a whole id")


@router.get(
    "/projects/{slug}/disputes",
    auth=needs("read"),
    response=DisputesOut,
    summary="What votes did not settle",
)
def disputes(
    request: HttpRequest,
    slug: str,
    filters: Query[DisputeFilters],
    offset: int = Query(0, ge=0, le=LARGEST_KEY),
    limit: int = Query(50, ge=1, le=500),
) -> DisputesOut:
    project, role = project_for(request.user, slug, READERS)
    ranked = reads.disputes(project=project, filters=reads.Filters(**filters.dict()))
    rows = reads.dispute_rows(ids=ranked.ids[offset : offset + limit], entropy=ranked.entropy)
    hidden = role in JUDGES and settings_get(project=project).judge_first
    return DisputesOut(
        items=[
            DisputeRowOut(
                comparison=row.comparison.pk,
                external_id=row.comparison.external_id,
                state=row.comparison.state,
                prompt=row.prompt,
                votes=None if hidden else decision_counts(row.decision),
                entropy=None if hidden else row.entropy,
                ruled=row.ruling is not None,
            )
            for row in rows
        ],
        total=len(ranked.ids),
    )


@router.get(
    "/projects/{slug}/disputes/{comparison}",
    auth=needs("read"),
    response=DisputeOut,
    summary="A comparison, its votes and rulings",
)
def dispute(request: HttpRequest, slug: str, comparison: int = Key) -> DisputeOut:
    project, role = project_for(request.user, slug, READERS)
    return _dispute(request, reads.comparison_of(project=project, comparison=comparison), role)


@router.post(
    "/projects/{slug}/disputes/{comparison}/votes",
    auth=needs("write"),
    response=DisputeOut,
    summary="Have the votes shown before ruling, which is recorded",
)
def dispute_votes(request: HttpRequest, slug: str, comparison: int = Key) -> DisputeOut:
    project, role = project_for(request.user, slug, JUDGES)
    found = reads.comparison_of(project=project, comparison=comparison)
    rulings.dispute_votes_show(comparison=found, by=request.user)
    return _dispute(request, found, role)


@router.post(
    "/projects/{slug}/disputes/{comparison}/rulings",
    auth=needs("write"),
    response={201: RulingOut},
    summary="Rule on a dispute",
)
def dispute_rule(
    request: HttpRequest, slug: str, payload: RulingIn, comparison: int = Key
) -> Status[RulingOut]:
    """409 `ruled_meanwhile` where somebody has ruled since `seen`: nothing is done then."""
    project, _role = project_for(request.user, slug, JUDGES)
    given = payload.dict()
    done = rulings.dispute_rule(
        comparison=reads.comparison_of(project=project, comparison=comparison),
        note=given.pop("comment"),
        by=request.user,
        **given,
    )
    return Status(201, _ruling(done))


def _dispute(request: HttpRequest, found: Comparison, role: str) -> DisputeOut:
    decision = getattr(found, "decision", None)
    history = reads.rulings_of(comparison=found)
    hidden = role in JUDGES and reads.votes_hidden(comparison=found, user=request.user)
    return DisputeOut(
        comparison=found.pk,
        external_id=found.external_id,
        state=found.state,
        outcome=decision.outcome if decision else "",
        prompt=found.prompt.messages,
        response_a=found.response_a.messages,
        response_b=found.response_b.messages,
        votes=None if hidden else decision_counts(decision),
        rulings=None if hidden else [_ruling(row) for row in history],
        seen=history[0].pk if history else 0,
    )


def _ruling(row: Ruling) -> RulingOut:
    return RulingOut(
        id=row.pk,
        action=row.action,
        cause=row.cause,
        choice=row.choice,
        comment=row.note,
        guideline=row.guideline.version if row.guideline else None,
        votes_before={name: n for name, n in row.votes_before.items() if isinstance(n, int)},
        saw_votes=row.saw_votes,
        at=row.at,
    )
