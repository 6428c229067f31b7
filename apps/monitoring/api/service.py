"""The API of models in service: what the world measures of them, and what their probes say."""

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Body, Field, Query, Router, Schema, Status
from pydantic import BeforeValidator

from apps.accounts.api_auth import needs
from apps.accounts.permissions import STAFF, project_for
from apps.monitoring.models import Outcome, Watch
from apps.monitoring.selectors.checks import probe_results, watches_of
from apps.monitoring.selectors.outcomes import outcomes_of
from apps.monitoring.selectors.service import stages_of
from apps.monitoring.services.outcomes import MOST_ROWS, outcomes_record
from apps.monitoring.services.watches import HOURLY, watch_create
from apps.training.selectors.pages import input_resolve

router = Router(tags=["models in service"])
OUTCOMES = "/projects/{slug}/outcomes"


class OutcomeIn(Schema):
    name: str = Field(description="such as satisfaction or completion; 1 to 60 characters")
    value: float = Field(description="the mean over the cases")
    n: int | None = Field(None, description="of how many cases; without it the noise is estimated")
    deviation: float | None = Field(
        None, description="standard deviation of single cases; of a share it follows from n"
    )
    unit: str = Field("", description="the same every time: % or share for shares of cases")
    higher_is_better: bool = True
    at: datetime | None = Field(None, description="when it was measured; now, if left out")
    watch: str = Field("", description="id of the monitored model that it is about")
    checkpoint: str = Field("", description="or the id of the checkpoint that was in service")
    source: str = Field("", description="who measured; 60 characters at most")
    key: str = Field("", description="yours, of 80 characters at most: the same key is stored once")


def _many(value: Any) -> Any:
    """One measurement is a list of one."""
    return [value] if isinstance(value, dict) else value


Rows = Annotated[list[OutcomeIn], Field(min_length=1, max_length=MOST_ROWS), BeforeValidator(_many)]


class RecordedOut(Schema):
    created: int
    known: int = Field(description="stored before, under the same key")
    incidents: int = Field(description="opened because of them")


class OutcomeOut(Schema):
    name: str
    value: float
    n: int | None
    deviation: float | None
    unit: str
    higher_is_better: bool
    at: datetime
    watch: str | None
    checkpoint: str | None
    source: str
    key: str

    @classmethod
    def of(cls, row: Outcome) -> "OutcomeOut":
        plain = {name: getattr(row, name) for name in cls.model_fields}
        return cls(**plain | {"watch": row.watch_id, "checkpoint": row.checkpoint_id})


class OutcomePage(Schema):
    count: int
    items: list[OutcomeOut]


class WatchIn(Schema):
    name: str
    checkpoint: str = Field(min_length=1, description="id of the model in service")
    prompts: str = Field(description="id of a frozen dataset, whose rows are asked every time")
    reward: str = Field("", description="id of the reward model that scores a policy's answers")
    claims: str = Field("", description="id of the policy that a served model is said to be")
    every_minutes: int = HOURLY
    config: dict[str, Any] = Field(
        default_factory=dict, description="settings of the probe, such as eval_prompts"
    )


class WatchOut(Schema):
    id: str
    name: str
    kind: str = Field(description="policy or reward")
    state: str = Field(description="new, steady, drifted or broken")
    enabled: bool
    checkpoint: str
    reward: str | None
    claims: str | None
    every_minutes: int
    next_at: datetime
    baseline_at: datetime | None
    probed_at: datetime | None
    figures: dict[str, Any] = Field(
        description="of the newest probe: mean, deviation, n, baseline and shift of each"
    )
    findings: list[dict[str, Any]]
    stages: list[str] = Field(description="candidate, staging, production that name this model")

    @classmethod
    def of(cls, row: Watch) -> "WatchOut":
        latest = probe_results(row).first()
        plain = ("name", "kind", "state", "enabled", "every_minutes", "next_at", "baseline_at")
        return cls(
            id=row.pk,
            checkpoint=row.checkpoint_id,
            reward=row.reward_id,
            claims=row.claims_id,
            probed_at=latest.at if latest else None,
            figures=latest.figures if latest else {},
            findings=latest.findings if latest else [],
            stages=[one.stage for one in stages_of(row).named],
            **{name: getattr(row, name) for name in plain},
        )


@router.post(
    OUTCOMES,
    auth=needs("write"),
    response={201: RecordedOut},
    summary="Report outcome metrics of a model in service",
)
def outcomes_post(request: HttpRequest, slug: str, payload: Rows = Body(...)) -> Status:  # noqa: B008
    """One measurement as an object, or up to 1,000 as a list; all are stored, or none.

    Each is compared with the others of its model and with the reward of its probes: two that move
    in opposite directions beyond noise open an incident (`outcomes_diverge`). 400
    `invalid_outcomes` tells every row that does not fit in `details`; 422 is for fields that are
    missing or of a wrong type.
    """
    project, _ = project_for(request.user, slug, STAFF)
    done = outcomes_record(project=project, rows=[row.dict() for row in payload], user=request.user)
    body = {"created": len(done.created), "known": done.known, "incidents": done.incidents}
    return Status(201, body)


@router.get(
    OUTCOMES, auth=needs("read"), response=OutcomePage, summary="What was measured, newest first"
)
def outcomes_get(
    request: HttpRequest,
    slug: str,
    name: str = "",
    limit: int = Query(100, ge=1, le=1000),
    offset: int = Query(0, ge=0, le=10**9),
) -> OutcomePage:
    project, _ = project_for(request.user, slug, STAFF)
    rows = outcomes_of(project)
    if name:
        rows = rows.filter(name=name.replace("\x00", ""))
    items = [OutcomeOut.of(row) for row in rows[offset : offset + limit]]
    return OutcomePage(count=rows.count(), items=items)


@router.get(
    "/projects/{slug}/watches",
    auth=needs("read"),
    response=list[WatchOut],
    summary="Models in service and their newest probe",
)
def watches_get(request: HttpRequest, slug: str) -> list[WatchOut]:
    """By name, paused ones too."""
    project, _ = project_for(request.user, slug, STAFF)
    return [WatchOut.of(row) for row in watches_of(project)]


@router.post(
    "/projects/{slug}/watches",
    auth=needs("write"),
    response={201: WatchOut},
    summary="Monitor a model in service",
)
def watches_post(request: HttpRequest, slug: str, payload: WatchIn) -> Status:
    """Its first probe begins within a minute and becomes the baseline. A model behind an
    OpenAI-compatible address is registered before, by a run of the kind `served`."""
    project, _ = project_for(request.user, slug, STAFF)
    models = {
        name: input_resolve(project, f"checkpoint:{key}") if key else None
        for name, key in (
            ("checkpoint", payload.checkpoint),
            ("reward", payload.reward),
            ("claims", payload.claims),
        )
    }
    watch = watch_create(
        project=project,
        name=payload.name,
        every_minutes=payload.every_minutes,
        config=payload.config,
        prompts=input_resolve(project, f"snapshot:{payload.prompts}"),
        user=request.user,
        **models,
    )
    return Status(201, WatchOut.of(watch))
