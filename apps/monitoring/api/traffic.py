"""The API of production traffic: conversations of a model in service, for people to look at."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema

from apps.accounts.api_auth import needs
from apps.accounts.permissions import STAFF, project_for
from apps.monitoring.services.traffic import MOST_ROWS, traffic_delete, traffic_record

router = Router(tags=["models in service"])
TRAFFIC = "/projects/{slug}/traffic"


class ConversationIn(Schema):
    id: Any = Field(description="yours, of 200 characters at most; only its SHA-256 is kept")
    messages: Any = Field(description="[{role, content}, …]; the last one is the model's answer")
    consent: Any = Field(False, description="true where the person agreed")
    at: datetime | None = None
    rating: Any = None
    latency_ms: Any = None
    mean_logprob: Any = Field(
        None, description="mean log-probability of the answer's tokens, in nats, from `logprobs`"
    )
    outcome: Any = Field(None, description="a text of 200 characters at most")


class TrafficIn(Schema):
    watch: str = Field(description="id of the monitored model")
    key: str = Field("", max_length=80, description="of the batch: the same key is taken once")
    conversations: list[ConversationIn] = Field(min_length=1, max_length=MOST_ROWS)


class TrafficOut(Schema):
    counts: dict[str, int] = Field(
        description="received = no_consent + unsampled + duplicates + nothing_found + kept; also "
        "scrubbed, and the reasons of those kept"
    )


class ForgetIn(Schema):
    watch: str
    ids: list[str] = Field(min_length=1, max_length=MOST_ROWS)


class ForgottenOut(Schema):
    deleted: int


@router.post(
    TRAFFIC,
    auth=needs("write"),
    response=TrafficOut,
    summary="Send conversations of a model in service",
)
def traffic_post(request: HttpRequest, slug: str, payload: TrafficIn) -> TrafficOut:
    """Up to 500 at once; all are taken, or none. Those without consent, where it is needed, are
    counted and not stored; personal data is replaced before anything is written. The same batch
    sent again is counted once. 400 `invalid_traffic` names row and field."""
    project, _ = project_for(request.user, slug, STAFF)
    rows = [row.dict() for row in payload.conversations]
    return TrafficOut(
        counts=traffic_record(project=project, watch_id=payload.watch, rows=rows, key=payload.key)
    )


@router.post(
    f"{TRAFFIC}/delete",
    auth=needs("write"),
    response=ForgottenOut,
    summary="Delete conversations whose consent was withdrawn",
)
def traffic_delete_post(request: HttpRequest, slug: str, payload: ForgetIn) -> ForgottenOut:
    """Messages, their entry in the inbox and what people said of it. Unknown ids are remembered, so
    that they are not taken later."""
    project, _ = project_for(request.user, slug, STAFF)
    deleted = traffic_delete(
        project=project, watch_id=payload.watch, ids=payload.ids, user=request.user
    )
    return ForgottenOut(deleted=deleted)
