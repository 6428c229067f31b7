"""The API of live dialogues: campaigns, their results, and every conversation as JSON Lines."""

import json
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import Field, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.permissions import STAFF, project_for
from apps.common.row_files import FILE_SENT, MEDIA, Export, download_response
from apps.evaluation.models import DialogueCampaign
from apps.evaluation.screens import dialogues as screen
from apps.evaluation.selectors.dialogues import (
    conversations_rows,
    dialogue_get,
    dialogues,
    progress_of,
)
from apps.evaluation.services.dialogues import CampaignAsked, dialogue_open, dialogue_set_open

router = Router(tags=["dialogues"])
_ALL = "/projects/{slug}/dialogues"
_ONE = f"{_ALL}/{{dialogue}}"
_DEFAULTS = CampaignAsked(name="", models=())


class DialogueIn(Schema):
    name: str = Field(description="annotators read it")
    models: list[str] = Field(description="ids of two to eight models that answer")
    system_prompt: str = ""
    topics: list[str] = Field([], description="suggested openings")
    temperature: float = _DEFAULTS.temperature
    top_p: float = _DEFAULTS.top_p
    max_new_tokens: int = _DEFAULTS.max_new_tokens
    answer_seconds: int = Field(
        _DEFAULTS.answer_seconds, description="what takes longer did not come"
    )
    least_turns: int = _DEFAULTS.least_turns
    most_turns: int = _DEFAULTS.most_turns
    per_person: int = Field(_DEFAULTS.per_person, description="conversations of one person")
    in_all: int = Field(_DEFAULTS.in_all, description="conversations of everybody")
    in_datasets: bool = Field(
        _DEFAULTS.in_datasets, description="whether judged turns are pairs that datasets may hold"
    )
    others: int = Field(_DEFAULTS.others, description="further people asked about each pair")


class DialogueSystemOut(Schema):
    model: str
    name: str


class WinShareOut(Schema):
    """Ties count half, both bad is left out; the interval allows for conversations and people."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    n: int = Field(description="votes")
    n_conversations: int
    n_people: int
    reason: str = Field(description="why there is no interval, or no share")


class SystemsMetOut(Schema):
    """The win share is of the first."""

    first: str
    second: str
    value: float | None
    low: float | None
    high: float | None
    wins: int
    losses: int
    ties: int
    both_bad: int
    reason: str


class DialogueProgressOut(Schema):
    conversations: int
    people: int
    turns: int
    judged: int
    passed: int = Field(description="gone on without comparing")
    unanswered: int
    drawn: int = Field(description="turns whose continuation was drawn")
    named: int = Field(description="turns with an answer that names its model")
    problems: int = Field(description="conversations with a report")
    short: int = Field(description="ended with fewer turns than wanted")


class DialogueOut(Schema):
    id: str
    name: str
    open: bool
    systems: list[DialogueSystemOut]
    batch: str = Field(description="of its pairs")
    progress: DialogueProgressOut
    rates: list[WinShareOut] = Field(description="of each system against whatever it met")
    meetings: list[SystemsMetOut]
    protocol: dict[str, Any]
    protocol_sha256: str
    created_at: datetime


def _told(found: DialogueCampaign) -> DialogueOut:
    result = screen.result(found)
    return DialogueOut(
        id=found.pk,
        name=found.name,
        open=found.is_open,
        systems=[
            DialogueSystemOut(model=one.checkpoint_id, name=one.name) for one in found.systems.all()
        ],
        batch=found.batch,
        progress=DialogueProgressOut(**asdict(progress_of(found))),
        rates=[WinShareOut(**row) for row in result["rates"]],
        meetings=[SystemsMetOut(**row) for row in result["meetings"]],
        protocol=found.protocol,
        protocol_sha256=found.protocol_sha256,
        created_at=found.created_at,
    )


def _campaign(request: HttpRequest, slug: str, dialogue: str) -> DialogueCampaign:
    project, _ = project_for(request.user, slug, STAFF)
    return dialogue_get(project=project, dialogue=dialogue)


@router.get(_ALL, auth=needs("read"), response=list[DialogueOut], summary="All dialogue campaigns")
def dialogues_list(request: HttpRequest, slug: str) -> list[DialogueOut]:
    """Newest first, each with its result so far."""
    project, _ = project_for(request.user, slug, STAFF)
    return [_told(one) for one in dialogues(project=project)]


@router.post(
    _ALL, auth=needs("train"), response={201: DialogueOut}, summary="Have people talk with models"
)
def dialogue_create(request: HttpRequest, slug: str, payload: DialogueIn) -> Status:
    """Fixed from then on. 400 naming the field; then nothing is opened."""
    project, _ = project_for(request.user, slug, STAFF)
    made = dialogue_open(project=project, user=request.user, asked=CampaignAsked(**payload.dict()))
    return Status(201, _told(dialogue_get(project=project, dialogue=made.pk)))


@router.get(
    _ONE, auth=needs("read"), response=DialogueOut, summary="A dialogue campaign and its result"
)
def dialogue_one(request: HttpRequest, slug: str, dialogue: str) -> DialogueOut:
    return _told(_campaign(request, slug, dialogue))


@router.post(
    f"{_ONE}/close",
    auth=needs("train"),
    response=DialogueOut,
    summary="Let nobody begin or go on with conversations",
)
def dialogue_close(request: HttpRequest, slug: str, dialogue: str) -> DialogueOut:
    """The turn at hand can still be judged. Closing again changes nothing."""
    found = _campaign(request, slug, dialogue)
    dialogue_set_open(campaign=found, by=request.user, is_open=False)
    return _told(_campaign(request, slug, dialogue))


@router.post(
    f"{_ONE}/open",
    auth=needs("train"),
    response=DialogueOut,
    summary="Open a closed dialogue campaign again",
)
def dialogue_reopen(request: HttpRequest, slug: str, dialogue: str) -> DialogueOut:
    found = _campaign(request, slug, dialogue)
    dialogue_set_open(campaign=found, by=request.user, is_open=True)
    return _told(_campaign(request, slug, dialogue))


@router.get(
    f"{_ONE}/conversations",
    auth=needs("read"),
    summary="Every conversation with both branches",
    openapi_extra=FILE_SENT,
)
def dialogue_conversations(request: HttpRequest, slug: str, dialogue: str) -> HttpResponseBase:
    """JSON Lines, a conversation each; people are numbers of this file."""
    found = _campaign(request, slug, dialogue)
    lines = (
        json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in conversations_rows(found)
    )
    return download_response(Export(f"dialogue-{found.pk}.jsonl", MEDIA["jsonl"], lines))
