"""The API of reward models: what each page says, assessing one, deciding about one."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.permissions import STAFF, project_for
from apps.common.report.levels import Level, level_of
from apps.evaluation.lines import LINES
from apps.evaluation.models import ModelReview
from apps.evaluation.screens.page import verdict_sentence
from apps.evaluation.selectors.models import (
    Judgement,
    judgement_of,
    reviews_of,
    reward_model_get,
    reward_models,
)
from apps.evaluation.services.reviewing import assessment_start, model_review
from apps.training.api.runs import RunOut
from apps.training.models import Checkpoint
from apps.training.selectors.pages import input_resolve
from measures.trust.findings import Finding, finding_to_json
from workers.contract.reasons import in_words

router = Router(tags=["reward models"])
BASE = "/projects/{slug}/reward-models"
ONE = BASE + "/{checkpoint_id}"
_FORMER: dict[str, Any] = {"deprecated": True}


def finding_json(finding: Finding) -> dict[str, Any]:
    """A line's finding with its `level`, and `verdict`, as it was called before 1.0."""
    return in_words(finding_to_json(finding)) | {"level": str(level_of(finding.verdict))}


class ModelOut(Schema):
    id: str = Field(description="the checkpoint's")
    run: str
    name: str
    step: int
    tags: list[str]
    status: str = Field(description="candidate, approved, rejected, retired")
    assessment: str | None = Field(description="the run whose findings count")
    bad: int = Field(description="lines at the level bad")
    unknown: int = Field(description="lines that nobody measured; never a yes")
    ok: int
    red: int = Field(
        description="the former name of `bad`; gone with 1.0", json_schema_extra=_FORMER
    )
    unmeasured: int = Field(
        description="the former name of `unknown`; gone with 1.0", json_schema_extra=_FORMER
    )
    green: int = Field(
        description="the former name of `ok`; gone with 1.0", json_schema_extra=_FORMER
    )
    accuracy: dict[str, Any] | None = Field(description="on unseen pairs: value, low, high, n")
    created_at: datetime

    @classmethod
    def summary_fields(cls, model: Checkpoint, judgement: Judgement) -> dict[str, Any]:
        found = judgement.finding("accuracy").figure
        return {
            "id": model.pk,
            "run": model.run_id,
            "name": model.run.name,
            "step": model.step,
            "tags": model.tags,
            "status": model.status,
            "assessment": judgement.assessment.run.pk if judgement.assessment else None,
            "bad": len(judgement.red),
            "unknown": len(judgement.unmeasured),
            "ok": len(judgement.green),
            "red": len(judgement.red),
            "unmeasured": len(judgement.unmeasured),
            "green": len(judgement.green),
            "accuracy": None if found is None else in_words(asdict(found)),
            "created_at": model.created_at,
        }


class ModelPage(Schema):
    count: int
    items: list[ModelOut]


class TrustLineOut(Schema):
    line: str
    title: str
    group: str
    rule: str = Field(description="what must hold for ok")
    level: Level = Field(description="ok, bad or unknown")
    verdict: str = Field(
        description="the former name of `level`, as green, red or unmeasured; gone with 1.0",
        json_schema_extra=_FORMER,
    )
    says: str
    unit: str = Field(description="of the figure: share or number")
    figure: dict[str, Any] | None
    evidence: list[dict[str, Any]]
    facts: dict[str, Any]


class ReviewOut(Schema):
    id: int
    status: str
    reason: str
    by: str
    at: datetime
    assessment: str | None
    state_sha256: str = Field(description="of the page as it was kept")

    @classmethod
    def of(cls, row: ModelReview) -> "ReviewOut":
        return cls(
            id=row.pk,
            status=row.status,
            reason=row.reason,
            by=row.by_name,
            at=row.at,
            assessment=row.assessment_id,
            state_sha256=row.state_sha256,
        )


class ModelDetailOut(ModelOut):
    verdict: str
    page_sha256: str = Field(description="send it back with a decision about this page")
    findings: list[TrustLineOut]
    reviews: list[ReviewOut]

    @classmethod
    def of(cls, model: Checkpoint) -> "ModelDetailOut":
        judgement = judgement_of(model)
        return cls(
            **cls.summary_fields(model, judgement),
            verdict=verdict_sentence(len(judgement.red), len(judgement.unmeasured)),
            page_sha256=judgement.sha256,
            findings=[
                TrustLineOut(
                    title=LINES[one.line].title,
                    group=LINES[one.line].group,
                    rule=LINES[one.line].rule,
                    **finding_json(one),
                )
                for one in judgement.findings
            ],
            reviews=[ReviewOut.of(row) for row in reviews_of(model)],
        )


class AssessIn(Schema):
    name: str = Field("", max_length=120)
    inputs: dict[str, str] = Field(
        default_factory=dict,
        description='role (data, other, prompts, policy, sft, judge) to "snapshot:<id>", '
        '"checkpoint:<id>" or "run:<id>"; without data, the dataset the model was trained on',
    )
    config: dict[str, Any] = Field(default_factory=dict, description="of the recipe `assess`")
    seed: int = Field(0, ge=0, lt=2**63)
    queue: str = "cpu"
    idempotency_key: str = Field("", max_length=80)


class StatusIn(Schema):
    status: str = Field(description="approved, rejected or retired")
    reason: str = Field("", max_length=1000)
    seen_status: str = Field(description="the model's status when you looked")
    page_sha256: str = Field(description="of the page when you looked")


def _model(request: HttpRequest, slug: str, checkpoint_id: str) -> Checkpoint:
    project, _ = project_for(request.user, slug, STAFF)
    return reward_model_get(project=project, checkpoint_id=checkpoint_id)


@router.get(BASE, auth=needs("read"), response=ModelPage, summary="Reward models, newest first")
def model_list(
    request: HttpRequest,
    slug: str,
    search: str = "",
    status: Checkpoint.Status | None = None,
    limit: int = Query(20, ge=1, le=100),
    offset: int = Query(0, ge=0, le=10**9),
) -> ModelPage:
    project, _ = project_for(request.user, slug, STAFF)
    rows = reward_models(project=project, search=search.replace("\x00", ""), status=status or "")
    items = [
        ModelOut(**ModelOut.summary_fields(row, judgement_of(row, quick=True)))
        for row in rows[offset : offset + limit]
    ]
    return ModelPage(count=rows.count(), items=items)


@router.get(ONE, auth=needs("read"), response=ModelDetailOut, summary="Every line of one model")
def model_get(request: HttpRequest, slug: str, checkpoint_id: str) -> ModelDetailOut:
    """A line that nobody measured is there too, as `unknown`."""
    return ModelDetailOut.of(_model(request, slug, checkpoint_id))


@router.post(
    ONE + "/assess", auth=needs("train"), response={201: RunOut}, summary="Assess one model"
)
def model_assess(request: HttpRequest, slug: str, checkpoint_id: str, payload: AssessIn) -> Status:
    """Repeating an `idempotency_key` answers with the run that it launched."""
    model = _model(request, slug, checkpoint_id)
    run = assessment_start(
        checkpoint=model,
        user=request.user,
        inputs={role: input_resolve(model.project, ref) for role, ref in payload.inputs.items()},
        **payload.dict(exclude={"inputs"}),
    )
    return Status(201, RunOut.of(run))


@router.post(
    ONE + "/status",
    auth=needs("approve"),
    response={201: ReviewOut},
    summary="Approve, reject or retire one model",
)
def model_status(request: HttpRequest, slug: str, checkpoint_id: str, payload: StatusIn) -> Status:
    """Refused (409) when the status or the page has changed since you looked."""
    model = _model(request, slug, checkpoint_id)
    review = model_review(
        project=model.project,
        checkpoint_id=model.pk,
        status=payload.status,
        user=request.user,
        reason=payload.reason,
        seen_status=payload.seen_status,
        seen_sha256=payload.page_sha256,
    )
    return Status(201, ReviewOut.of(review))
