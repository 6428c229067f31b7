"""The API of models in service: what each stage names, its history, promotions and their evidence,
and the checklists of a run.
"""

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.models import Project
from apps.accounts.permissions import READERS, STAFF, project_for
from apps.evaluation.models import PromotionDecision, PromotionRequest, Stage
from apps.evaluation.models.promotion import LONGEST_REASON
from apps.evaluation.selectors import promotion as selectors
from apps.evaluation.selectors.checklists import Checklist
from apps.evaluation.selectors.checklists import checklists as checklists_of
from apps.evaluation.selectors.evidence import Gate, gate_kept, gate_of
from apps.evaluation.selectors.promotion import Naming
from apps.evaluation.services import promoting, stages
from apps.training.selectors import run_get

router = Router(tags=["promotion"])
STAGES = "/projects/{slug}/stages"
PROMOTIONS = "/projects/{slug}/promotions"


class NamingOut(Schema):
    stage: Stage
    change: int = Field(description="1, 2, … in its stage; the newest counts")
    checkpoint: str
    sha256: str
    run: str
    name: str = Field(description="of its run")
    step: int
    share: int = Field(description="per cent of the traffic")
    rest: str | None = Field(description="checkpoint that gets the rest of the traffic")
    cause: str = Field(description="promotion, override, revert or share")
    reason: str
    by: str
    request: str = Field(description="the promotion whose evidence it stands on")
    evidence_sha256: str
    since: datetime
    until: datetime | None = Field(description="null while it counts")

    @classmethod
    def of(cls, one: Naming) -> "NamingOut":
        row = one.change
        return cls(
            stage=Stage(row.stage),
            change=row.number,
            checkpoint=row.checkpoint_id,
            sha256=row.checkpoint.sha256,
            run=row.checkpoint.run_id,
            name=row.checkpoint.run.name,
            step=row.checkpoint.step,
            share=row.share,
            rest=row.rest_id,
            cause=row.cause,
            reason=row.reason,
            by=row.by_name,
            request=row.request_id,
            evidence_sha256=row.request.evidence_sha256,
            since=row.at,
            until=one.until,
        )


class NamingPage(Schema):
    count: int
    items: list[NamingOut]


class EvidenceOut(Schema):
    name: str
    label: str
    verdict: str = Field(description="green, red, missing or noted (figures for information)")
    required: bool = Field(description="whether the stage's gate needs it green")
    says: str
    url: str = Field(description="path of the page that it is from")
    facts: dict[str, Any]


class GateOut(Schema):
    stage: Stage
    open: bool
    evidence: list[EvidenceOut]

    @classmethod
    def of(cls, gate: Gate) -> "GateOut":
        return cls(
            stage=Stage(gate.stage),
            open=gate.is_open,
            evidence=[
                EvidenceOut(
                    name=one.name,
                    label=one.label,
                    verdict=one.verdict,
                    required=one.name in gate.required,
                    says=one.says,
                    url=one.url,
                    facts=dict(one.facts),
                )
                for one in gate.lines
            ],
        )


class PromotionOut(Schema):
    id: str
    checkpoint: str
    name: str = Field(description="of its run")
    step: int
    stage: Stage
    share: int
    reason: str
    state: str = Field(description="waiting, approved, overridden, rejected or withdrawn")
    open: bool = Field(description="whether the gate was open when it was asked")
    evidence_sha256: str
    requested_by: str
    requested_at: datetime
    decided_by: str
    seconded_by: str = Field(description="of an override, the first of the two")
    decided_at: datetime | None
    decision_reason: str
    signatures: list[str] = Field(description="who has signed an override")

    @classmethod
    def of(cls, row: PromotionRequest) -> "PromotionOut":
        decision = selectors.decision_of(row)
        return cls(
            id=row.pk,
            checkpoint=row.checkpoint_id,
            name=row.checkpoint.run.name,
            step=row.checkpoint.step,
            stage=Stage(row.stage),
            share=row.share,
            reason=row.reason,
            open=row.is_open,
            evidence_sha256=row.evidence_sha256,
            requested_by=row.requested_name,
            requested_at=row.at,
            signatures=list(row.signatures.order_by("pk").values_list("by_name", flat=True)),
            **_decided(decision),
        )


def _decided(decision: PromotionDecision | None) -> dict[str, Any]:
    return {
        "state": decision.kind if decision else selectors.WAITING,
        "decided_by": decision.decided_name if decision else "",
        "seconded_by": decision.seconded_name if decision else "",
        "decided_at": decision.at if decision else None,
        "decision_reason": decision.reason if decision else "",
    }


class PromotionDetailOut(PromotionOut):
    gate: GateOut = Field(description="the evidence as it stood when it was asked")

    @classmethod
    def of(cls, row: PromotionRequest) -> "PromotionDetailOut":
        gate = GateOut.of(gate_kept(row.evidence))
        return cls(**PromotionOut.of(row).dict(), gate=gate)


class PromotionPage(Schema):
    count: int
    items: list[PromotionOut]


class PromotionIn(Schema):
    checkpoint: str = Field(max_length=16)
    stage: str = Field(description="candidate, staging or production")
    share: int = Field(100, description="per cent of the traffic; under 100 for production alone")
    reason: str = Field("", max_length=LONGEST_REASON)


class DecisionIn(Schema):
    decision: str = Field(
        description="approve, reject (an admin who did not ask), override (a reviewer or admin who "
        "did not ask; two sign, one of them an admin) or withdraw (who asked)"
    )
    reason: str = Field("", max_length=LONGEST_REASON, description="of all but approve, withdraw")
    change: int = Field(
        0, ge=0, description="of approve, override: the stage's newest change that you saw; 0: none"
    )


class RevertIn(Schema):
    change: int = Field(ge=1, description="the stage's newest change, which is undone")
    reason: str = Field(max_length=LONGEST_REASON)


class ShareIn(RevertIn):
    share: int = Field(description="per cent of the traffic, 0 to 100")


class ItemOut(Schema):
    name: str
    label: str
    state: str = Field(description="done, not_done, unknown or not_applicable")
    says: str
    url: str = Field(description="path of the page that shows it")


class ChecklistOut(Schema):
    name: str = Field(description="before, during or after")
    title: str
    items: list[ItemOut]

    @classmethod
    def of(cls, one: Checklist) -> "ChecklistOut":
        items = [
            ItemOut(
                name=item.name,
                label=item.label,
                state=item.state,
                says=item.says,
                url=item.url,
            )
            for item in one.items
        ]
        return cls(name=one.name, title=one.title, items=items)


def _project(request: HttpRequest, slug: str) -> Project:
    return project_for(request.user, slug, READERS)[0]


@router.get(STAGES, auth=needs("read"), response=list[NamingOut], summary="What each stage names")
def stage_list(
    request: HttpRequest,
    slug: str,
    on: str = Query("", description="a day as 2026-11-03: all that was named on it, newest first"),
) -> list[NamingOut]:
    """Now, or on a day of the past; a stage that names nothing is left out."""
    project, day = _project(request, slug), selectors.day_of(on)
    if day is not None:
        found = selectors.namings_on(project=project, day=day)
    else:
        found = [one for one in selectors.namings(project=project) if one.until is None]
    return [NamingOut.of(one) for one in found]


@router.get(
    STAGES + "/history",
    auth=needs("read"),
    response=NamingPage,
    summary="Every change of the stages, newest first",
)
def stage_history(
    request: HttpRequest,
    slug: str,
    stage: Stage | None = None,
    limit: int = Query(50, ge=1, le=500),
    offset: int = Query(0, ge=0, le=10**9),
) -> NamingPage:
    found = selectors.namings(project=_project(request, slug), stage=stage or "")
    items = [NamingOut.of(one) for one in found[offset : offset + limit]]
    return NamingPage(count=len(found), items=items)


@router.post(
    STAGES + "/{stage}/revert",
    auth=needs("approve"),
    response=NamingOut,
    summary="The stage names again what it named before",
)
def stage_revert(request: HttpRequest, slug: str, stage: str, payload: RevertIn) -> NamingOut:
    """By an admin. Refused (409, `stage_changed`) when the stage has changed since you looked."""
    made = stages.stage_revert(
        project=_project(request, slug), stage=stage, user=request.user, **payload.dict()
    )
    return NamingOut.of(Naming(made, None))


@router.post(
    STAGES + "/{stage}/share",
    auth=needs("approve"),
    response=NamingOut,
    summary="Another share of the traffic",
)
def stage_share(request: HttpRequest, slug: str, stage: str, payload: ShareIn) -> NamingOut:
    """By an admin, of production. The model before keeps the rest."""
    made = stages.stage_share(
        project=_project(request, slug), stage=stage, user=request.user, **payload.dict()
    )
    return NamingOut.of(Naming(made, None))


@router.get(
    "/projects/{slug}/models/{checkpoint_id}/evidence",
    auth=needs("read"),
    response=GateOut,
    summary="What speaks for promoting a policy, now",
)
def evidence_get(
    request: HttpRequest, slug: str, checkpoint_id: str, stage: Stage = Stage.PRODUCTION
) -> GateOut:
    """Every line with its verdict, and whether the gate of the stage is open."""
    project = _project(request, slug)
    model = selectors.policy_get(project=project, checkpoint_id=checkpoint_id)
    return GateOut.of(gate_of(model, stage))


@router.get(
    PROMOTIONS, auth=needs("read"), response=PromotionPage, summary="Requests, newest first"
)
def promotion_list(
    request: HttpRequest,
    slug: str,
    state: str = Query("", description="waiting, approved, overridden, rejected or withdrawn"),
    limit: int = Query(50, ge=1, le=500),
    offset: int = Query(0, ge=0, le=10**9),
) -> PromotionPage:
    rows = selectors.requests_of(project=_project(request, slug), state=state)
    items = [PromotionOut.of(row) for row in rows[offset : offset + limit]]
    return PromotionPage(count=rows.count(), items=items)


@router.post(
    PROMOTIONS,
    auth=needs("train"),
    response={201: PromotionDetailOut},
    summary="Ask that a stage names a policy",
)
def promotion_ask(request: HttpRequest, slug: str, payload: PromotionIn) -> Status:
    """By an engineer or an admin; the evidence is kept as it stands now."""
    project, _ = project_for(request.user, slug, STAFF)
    made = promoting.promotion_request(
        project=project,
        checkpoint_id=payload.checkpoint,
        stage=payload.stage,
        share=payload.share,
        reason=payload.reason,
        user=request.user,
    )
    return Status(201, PromotionDetailOut.of(made))


@router.get(
    PROMOTIONS + "/{request_id}",
    auth=needs("read"),
    response=PromotionDetailOut,
    summary="One request with its evidence",
)
def promotion_get(request: HttpRequest, slug: str, request_id: str) -> PromotionDetailOut:
    project = _project(request, slug)
    return PromotionDetailOut.of(selectors.request_get(project=project, request_id=request_id))


@router.post(
    PROMOTIONS + "/{request_id}/decision",
    auth=needs("approve"),
    response=PromotionDetailOut,
    summary="Approve, reject, override or withdraw a request",
)
def promotion_decision(
    request: HttpRequest, slug: str, request_id: str, payload: DecisionIn
) -> PromotionDetailOut:
    """Refused (403, `own_request`) for whoever asked, (409, `gate_closed`, `evidence_changed`) with
    the lines that are red or missing, (409, `decided_already`) where somebody was faster. After the
    first signature of an override the request still waits."""
    project = _project(request, slug)
    promoting.promotion_decide(
        project=project,
        request_id=request_id,
        decision=payload.decision,
        user=request.user,
        reason=payload.reason,
        seen_change=payload.change,
    )
    return PromotionDetailOut.of(selectors.request_get(project=project, request_id=request_id))


@router.get(
    "/projects/{slug}/runs/{run_id}/checklists",
    auth=needs("read"),
    response=list[ChecklistOut],
    summary="Checklists before, during and after a run",
)
def run_checklists(request: HttpRequest, slug: str, run_id: str) -> list[ChecklistOut]:
    """Read from what the run left; empty of a run that trains no policy."""
    project, _ = project_for(request.user, slug, STAFF)
    run = run_get(project=project, run_id=run_id.replace("\x00", "?"))
    return [ChecklistOut.of(one) for one in checklists_of(run)]
