"""The API of people at work: their votes listed, discarded and asked of others; hours and codes."""

from datetime import date, datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Path, Query, Router, Schema
from pydantic import Field

from apps.accounts.api_auth import needs
from apps.accounts.models import User
from apps.accounts.permissions import ADMIN, project_for
from apps.common.errors import Missing
from apps.labeling import services
from apps.labeling.models import Discard, Vote
from apps.labeling.selectors.hours import (
    Completion,
    Month,
    completion_check,
    completion_of,
    hours_of,
)
from apps.labeling.selectors.person_votes import VoteFilter, discards_of, person_of, person_votes
from apps.labeling.services import LABELERS

router = Router(tags=["labeling"])
ADMINS = frozenset({ADMIN})
LISTED = 200
Key = Path(ge=1, le=2**63 - 1)


class VoteFilterIn(Schema):
    """Which votes; what is left out narrows nothing."""

    choice: Literal["", "a", "b", "tie", "both_bad"] = ""
    state: Literal["", "open", "decided", "contested", "review", "dropped"] = Field(
        "", description="of the comparison"
    )
    decision: Literal["", "with", "against"] = Field("", description="compared with the decision")
    pace: Literal["", "fast"] = Field("", description="fast: under the project's limit")
    status: Literal["", "counted", "discarded"] = ""
    since: date | None = Field(None, description="day, UTC")
    until: date | None = Field(None, description="day, UTC, included")

    def wanted(self) -> VoteFilter:
        names = VoteFilter.__dataclass_fields__
        return VoteFilter(**{name: getattr(self, name) for name in names})


class PersonVoteOut(Schema):
    id: int
    comparison: int
    external_id: str
    choice: str
    purpose: str = Field(description="regular and gold count; also repeat, audit, former, discard")
    state: str
    winner: str | None
    active_ms: int | None
    cast_at: datetime

    @staticmethod
    def of(vote: Vote) -> "PersonVoteOut":
        comparison = vote.comparison
        decision = getattr(comparison, "decision", None)
        return PersonVoteOut(
            id=vote.pk,
            comparison=comparison.pk,
            external_id=comparison.external_id,
            choice=vote.choice,
            purpose=vote.slot.kind,
            state=comparison.state,
            winner=decision.winner or None if decision else None,
            active_ms=vote.active_ms,
            cast_at=vote.cast_at,
        )


class PersonVotesOut(Schema):
    count: int
    votes: list[PersonVoteOut]


class DiscardIn(VoteFilterIn):
    reason: str = Field("", description="needed unless it is a dry run")
    expected: int | None = Field(None, description="refuse (409) if they are another number")
    pause: bool = Field(False, description="give the person no more pairs")
    dry_run: bool = Field(False, description="say what would happen and change nothing")


class DecisionChangeOut(Schema):
    before: str = Field(description="state, and winner where there is one: “decided: a”")
    after: str
    comparisons: int


class DiscardedOut(Schema):
    discard: int | None = Field(description="its id; null for a dry run")
    n_votes: int
    n_comparisons: int
    n_asked: int = Field(description="votes that others are asked for")
    changed: list[DecisionChangeOut]


class DiscardOut(Schema):
    id: int
    annotator: int = Field(alias="annotator_id")
    by: int | None = Field(alias="by_id")
    reason: str
    filters: dict[str, str]
    n_votes: int
    n_comparisons: int
    created_at: datetime
    undone_at: datetime | None


@router.get(
    "/projects/{slug}/annotators/{user}/votes",
    auth=needs("read"),
    response=PersonVotesOut,
    summary="All votes of a person, newest first",
)
def votes(
    request: HttpRequest,
    slug: str,
    filters: Query[VoteFilterIn],
    user: int = Key,
    after: int = Query(0, ge=0, le=2**31, description="how many to pass over"),
) -> PersonVotesOut:
    """At most 200 an answer."""
    project, _ = project_for(request.user, slug, ADMINS)
    found = person_votes(project=project, annotator=_person(project, user), wanted=filters.wanted())
    about = found.select_related("slot", "comparison__decision")
    return PersonVotesOut(
        count=found.count(),
        votes=[PersonVoteOut.of(vote) for vote in about[after : after + LISTED]],
    )


@router.post(
    "/projects/{slug}/annotators/{user}/votes/discard",
    auth=needs("write"),
    response=DiscardedOut,
    summary="Discard votes of a person and ask others",
)
def discard(request: HttpRequest, slug: str, payload: DiscardIn, user: int = Key) -> DiscardedOut:
    """No vote is deleted; frozen datasets keep them. With `dry_run` nothing changes."""
    project, _ = project_for(request.user, slug, ADMINS)
    done = services.votes_discard(
        project=project,
        annotator=_person(project, user),
        by=request.user,
        wanted=payload.wanted(),
        reason=payload.reason,
        expected=payload.expected,
        pause=payload.pause,
        dry_run=payload.dry_run,
    )
    return _discarded(done, dry_run=payload.dry_run)


@router.get(
    "/projects/{slug}/discards",
    auth=needs("read"),
    response=list[DiscardOut],
    summary="Votes that were discarded, newest first",
)
def discards(request: HttpRequest, slug: str) -> list[Discard]:
    project, _ = project_for(request.user, slug, ADMINS)
    return list(discards_of(project=project)[:LISTED])


@router.post(
    "/projects/{slug}/discards/{discard}/undo",
    auth=needs("write"),
    response=DiscardedOut,
    summary="Count discarded votes again",
)
def discard_undo(request: HttpRequest, slug: str, discard: int = Key) -> DiscardedOut:
    """Votes that were cast meanwhile stay."""
    project, _ = project_for(request.user, slug, ADMINS)
    done = services.discard_undo(project=project, discard=discard, by=request.user)
    return _discarded(done)


def _discarded(done: services.Discarded, *, dry_run: bool = False) -> DiscardedOut:
    return DiscardedOut(
        discard=None if dry_run else done.discard,
        n_votes=done.n_votes,
        n_comparisons=done.n_comparisons,
        n_asked=done.n_asked,
        changed=[
            DecisionChangeOut(before=before, after=after, comparisons=n)
            for (before, after), n in done.changed.items()
        ],
    )


def _person(project: Any, user: int) -> User:
    person = person_of(project=project, user_id=user)
    if person is None:
        raise Missing("There is no such person in this project.", field="user")
    return person


# Hours for pay, and completion codes: everybody's for admins, one's own for others.


class MonthOut(Schema):
    month: date = Field(description="its first day")
    user: int
    username: str
    name: str
    votes: int
    ratings: int
    texts: int
    hours: float
    untimed: int = Field(description="answers whose time is not known")
    discarded: int
    amount: float | None = Field(description="votes by the price of a vote; null: none is stated")
    currency: str


class CompletionOut(Schema):
    wanted: int = Field(description="answers that earn the code; 0: the project has none")
    answers: int
    code: str = Field(description="empty until earned")


class CompletedOut(Schema):
    user: int
    username: str
    answers: int
    discarded: int
    wanted: int


@router.get(
    "/projects/{slug}/hours",
    auth=needs("read"),
    response=list[MonthOut],
    summary="Votes and active hours by person and month",
)
def hours(
    request: HttpRequest,
    slug: str,
    month: str = Query("", pattern=r"^(\d{4}-(0[1-9]|1[0-2]))?$", description="2026-11"),
) -> list[Month]:
    """Everybody's for admins, one's own for others."""
    project, role = project_for(request.user, slug, LABELERS)
    first = date.fromisoformat(f"{month}-01") if month else None
    return hours_of(project=project, user=None if role == ADMIN else request.user, month=first)


@router.get(
    "/projects/{slug}/completion",
    auth=needs("read"),
    response=CompletionOut,
    summary="Your own completion code",
)
def completion(request: HttpRequest, slug: str) -> Completion:
    project, _ = project_for(request.user, slug, LABELERS)
    return completion_of(project=project, user=request.user)


@router.get(
    "/projects/{slug}/completion/{code}",
    auth=needs("read"),
    response=CompletedOut,
    summary="Whose completion code this is",
)
def completed(request: HttpRequest, slug: str, code: str) -> CompletedOut:
    """404 where it is nobody's who has answered here."""
    project, _ = project_for(request.user, slug, ADMINS)
    found = completion_check(project=project, code=code)
    if found is None:
        raise Missing("This is nobody's code in this project.", field="code")
    return CompletedOut(
        user=found.user.pk,
        username=found.user.username,
        answers=found.answers,
        discarded=found.discarded,
        wanted=found.wanted,
    )
