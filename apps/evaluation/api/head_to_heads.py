"""The API of head-to-heads: two systems or more compared by people."""

from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from ninja import Field, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.permissions import READERS, STAFF, project_for
from apps.common.errors import DomainError, Missing
from apps.evaluation.models import HeadToHead
from apps.evaluation.screens.head_to_head import said
from apps.evaluation.selectors.head_to_head import (
    evaluations,
    head_to_head_get,
    head_to_heads,
    progress_of,
    result_now,
)
from apps.evaluation.services.head_to_head import (
    Asked,
    head_to_head_end,
    head_to_head_look,
    head_to_head_open,
    head_to_head_share,
    head_to_head_unshare,
)
from measures.head_to_head import Result, Several, Stopping, Verdict

router = Router(tags=["head-to-heads"])
_ALL = "/projects/{slug}/head-to-heads"
_ONE = f"{_ALL}/{{head_to_head}}"
_DEFAULTS = Asked(name="", first_name="", second_name="")


class AnswersIn(Schema):
    prompt: str | list[dict[str, Any]] = Field(description="a text, or a list of messages")
    response_a: str = Field(description="the first system's answer")
    response_b: str = Field(description="the second system's")
    response_c: str = Field("", description="that of a further one, and so on to the eighth")
    response_d: str = ""
    response_e: str = ""
    response_f: str = ""
    response_g: str = ""
    response_h: str = ""
    group: str = ""


class HeadToHeadIn(Schema):
    name: str
    first_name: str = Field(description="the system that is hoped to be better")
    second_name: str = Field(description="the baseline")
    more_names: list[str] = Field(
        [], description="of further systems, at most 6, in the order of response_c, response_d …"
    )
    pairs_each: int = Field(
        _DEFAULTS.pairs_each, description="pairs of systems on a prompt, with further systems"
    )
    source: str | None = Field(
        None, description="a finished evaluation: its policy against its baseline; else `rows`"
    )
    more_sources: list[str] = Field(
        [],
        description="with `source`: evaluations by the same protocol, whose policies are further "
        "systems; `more_names` in their order, or none for the names of their runs",
    )
    rows: list[AnswersIn] = Field([], description="answers of two systems from elsewhere")
    prompts: int = Field(_DEFAULTS.prompts, description="at most so many, drawn at random")
    people: int = Field(_DEFAULTS.people, description="how many are to share the votes")
    votes_each: int = Field(_DEFAULTS.votes_each, description="votes on a prompt")
    margin: float = Field(_DEFAULTS.margin, description="a smaller distance from ½ is none")
    stopping: Literal["any_time", "at_the_end"] = Field(
        "any_time", description="when the result may be looked at"
    )
    repeat_days: int | None = Field(None, description="to be done again after so many days")
    priority: float = Field(_DEFAULTS.priority, description="over 0: before all other pairs")


class StandingOut(Schema):
    name: str
    value: float = Field(description="probability to beat the second system, the baseline")
    low: float | None = Field(description="of the interval that the plan allows for all together")
    high: float | None
    controlled: float | None = Field(description="the same at equal length and side")
    controlled_low: float | None
    controlled_high: float | None
    best_place: int
    worst_place: int
    votes: int


class DifferenceOut(Schema):
    first: str
    second: str
    value: float | None = Field(description="probability that the first beats the second")
    low: float | None
    high: float | None
    p: float | None = Field(description="that holds at every look the plan allows, before Holm")
    told: bool = Field(description="after Holm over all differences")
    wins: int
    losses: int
    ties: int
    both_bad: int


class HabitOut(Schema):
    name: str = Field(description="side: of the left answer; length: for each factor e")
    value: float = Field(description="log odds")
    low: float
    high: float


class SeveralOut(Schema):
    standings: list[StandingOut] = Field(description="best first; empty where none is possible")
    differences: list[DifferenceOut]
    habits: list[HabitOut]
    reason: str = Field(description="why there is no order: not_connected, separated, no_votes")
    groups: list[list[str]] = Field(description="systems by what votes connect, where not all are")


class HeadToHeadOut(Schema):
    id: str
    name: str
    first_name: str
    second_name: str
    more_names: list[str]
    first: str | None = Field(description="the first system's model")
    second: str | None
    source: str | None
    verdict: str = Field(description="one of " + ", ".join(Verdict))
    says: str
    value: float | None = Field(description="share won by the first system, ties as half")
    low: float | None = Field(description="of the interval that the plan allows; null: too few")
    high: float | None
    votes: int
    planned: int
    people: int
    simulated: int = Field(description="votes that no person gave; they are evidence of nothing")
    outcomes: dict[str, int] | None = Field(description="null until it may be looked at")
    people_needed: int | None
    flips: int | None = Field(description="votes of one person that it hangs on")
    several: SeveralOut | None = Field(description="of more than two systems, when it is told")
    running: bool
    stopping: str
    margin: float
    protocol: dict[str, Any]
    protocol_sha256: str
    created_at: datetime
    ended_at: datetime | None
    due_at: datetime | None = Field(description="when it is to be done again")


class ReadLinkIn(Schema):
    days: int = Field(14, description="until the link expires, 1 to 365")


class ReadLinkOut(Schema):
    path: str = Field(description="of the page to read, on this site; empty: no link")
    shared_until: datetime | None


def _told(found: HeadToHead, result: Result | None = None) -> HeadToHeadOut:
    result, progress = result or result_now(found), progress_of(found)
    told = result.verdict != Verdict.WAITING
    estimate = result.estimate if told else None
    words = said(found, result, progress)
    return HeadToHeadOut(
        id=found.pk,
        name=found.name,
        first_name=found.first_name,
        second_name=found.second_name,
        more_names=found.more_names,
        first=found.first_id,
        second=found.second_id,
        source=found.source_id,
        verdict=result.verdict.value,
        says=" ".join(filter(None, (f"{words.title}.", words.text, words.then))),
        value=estimate.value if estimate else None,
        low=estimate.low if estimate else None,
        high=estimate.high if estimate else None,
        votes=result.n,
        planned=progress.planned,
        people=result.n_people,
        simulated=progress.n_simulated,
        outcomes=result.outcomes if told else None,
        people_needed=result.people_needed if told else None,
        flips=result.flips if told else None,
        several=_several(found, result.several) if told and result.several else None,
        running=found.ended_at is None,
        stopping=found.stopping,
        margin=found.margin,
        protocol=found.protocol,
        protocol_sha256=found.protocol_sha256,
        created_at=found.created_at,
        ended_at=found.ended_at,
        due_at=found.due_at,
    )


def _several(found: HeadToHead, several: Several) -> SeveralOut:
    names = found.systems
    return SeveralOut(
        standings=[
            StandingOut(
                name=names[one.system],
                value=one.value,
                low=one.low,
                high=one.high,
                controlled=one.controlled,
                controlled_low=one.controlled_low,
                controlled_high=one.controlled_high,
                best_place=one.best,
                worst_place=one.worst,
                votes=one.n,
            )
            for one in several.standings
        ],
        differences=[
            DifferenceOut(**asdict(one) | {"first": names[one.first], "second": names[one.second]})
            for one in several.differences
        ],
        habits=[HabitOut(**asdict(one)) for one in several.habits],
        reason=several.reason,
        groups=[[names[place] for place in group] for group in several.groups],
    )


def _shared(found: HeadToHead) -> ReadLinkOut:
    live = found.shared_until is not None and found.shared_until > timezone.now()
    path = reverse("evaluation:shared", args=[found.share_key]) if live else ""
    return ReadLinkOut(path=path, shared_until=found.shared_until)


@router.get(_ALL, auth=needs("read"), response=list[HeadToHeadOut], summary="All head-to-heads")
def head_to_heads_list(request: HttpRequest, slug: str) -> list[HeadToHeadOut]:
    """Newest first. A list is no look: figures of those that run are of their votes now."""
    project, _ = project_for(request.user, slug, READERS)
    return [_told(one) for one in head_to_heads(project=project).select_related("pairs")]


@router.post(
    _ALL,
    auth=needs("train"),
    response={201: HeadToHeadOut},
    summary="Have people compare systems",
)
def head_to_head_create(request: HttpRequest, slug: str, payload: HeadToHeadIn) -> Status:
    """The plan is fixed from then on. 400 naming the field; then nobody is asked."""
    project, _ = project_for(request.user, slug, STAFF)
    given = payload.dict()
    key, more, rows = (given.pop(name) for name in ("source", "more_sources", "rows"))
    known = {run.pk: run for run in evaluations(project=project)} if key or more else {}
    for field, keys in (("source", [key] if key is not None else []), ("more_sources", more)):
        if any(one not in known for one in keys):
            raise Missing("There is no such finished evaluation with answers.", field=field)
    if more and key is None:
        raise DomainError("Name the evaluation that further ones are set beside.", field="source")
    run = known.get(key)
    asked = Asked(**given | {"stopping": Stopping(given["stopping"])})
    rows = [{name: value for name, value in row.items() if value != ""} for row in rows]
    made = head_to_head_open(
        project=project,
        user=request.user,
        asked=asked,
        source=run,
        more_sources=[known[one] for one in more],
        rows=rows,
    )
    return Status(201, _told(made))


@router.get(_ONE, auth=needs("read"), response=HeadToHeadOut, summary="What people say so far")
def head_to_head_one(request: HttpRequest, slug: str, head_to_head: str) -> HeadToHeadOut:
    """A look: it is kept who saw which figures, and a comparison that is decided ends with it."""
    project, _ = project_for(request.user, slug, READERS)
    found = head_to_head_get(project=project, head_to_head=head_to_head)
    if found.ended_at is None:
        result = head_to_head_look(head_to_head=found, by=request.user)
        found.refresh_from_db()
        return _told(found, result)
    return _told(found)


@router.post(
    f"{_ONE}/end", auth=needs("train"), response=HeadToHeadOut, summary="Ask nobody any more"
)
def head_to_head_stop(request: HttpRequest, slug: str, head_to_head: str) -> HeadToHeadOut:
    """Every figure is kept as it is. Ending again changes nothing."""
    project, _ = project_for(request.user, slug, STAFF)
    found = head_to_head_get(project=project, head_to_head=head_to_head)
    return _told(head_to_head_end(head_to_head=found, by=request.user))


@router.post(
    f"{_ONE}/link",
    auth=needs("train"),
    response=ReadLinkOut,
    summary="Make a link for somebody outside",
)
def head_to_head_link(
    request: HttpRequest, slug: str, head_to_head: str, payload: ReadLinkIn | None = None
) -> ReadLinkOut:
    """The link before, if there was one, ends."""
    project, _ = project_for(request.user, slug, STAFF)
    found = head_to_head_get(project=project, head_to_head=head_to_head)
    days = (payload or ReadLinkIn()).days
    return _shared(head_to_head_share(head_to_head=found, by=request.user, days=days))


@router.delete(f"{_ONE}/link", auth=needs("train"), response=ReadLinkOut, summary="End the link")
def head_to_head_unlink(request: HttpRequest, slug: str, head_to_head: str) -> ReadLinkOut:
    project, _ = project_for(request.user, slug, STAFF)
    found = head_to_head_get(project=project, head_to_head=head_to_head)
    return _shared(head_to_head_unshare(head_to_head=found, by=request.user))
