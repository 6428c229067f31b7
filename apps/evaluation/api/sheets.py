"""The API of blind audit sheets."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.permissions import JUDGES, READERS, STAFF, project_for
from apps.evaluation.models import AuditSheet, Verdict
from apps.evaluation.selectors import sheets as reads
from apps.evaluation.services import sheets as services
from apps.evaluation.services.sheets import N_BASELINE, N_EXTREME, N_RANDOM, VALUES
from apps.training.selectors import run_get
from measures.answer_audit import Judged

router = Router(tags=["audit sheets"])
ALL = "/projects/{slug}/audit-sheets"
ONE = f"{ALL}/{{sheet_id}}"


class SheetIn(Schema):
    run: str = Field(max_length=40, description="a finished evaluation, or the policy's own run")
    n_random: int = Field(N_RANDOM, description="random answers of the policy: they set the bound")
    n_extreme: int = Field(N_EXTREME, description="of the highest, and of the lowest rewards")
    n_baseline: int = Field(N_BASELINE, description="random answers of the baseline")
    people: int = Field(1, description="verdicts wanted per answer")
    seed: int | None = Field(None, ge=0, lt=2**31, description="drawn unless set")


class JudgedOut(Schema):
    n: int = Field(description="answers judged, each by its worst verdict")
    unjudged: int
    counts: dict[str, int] = Field(description="{fine, bad, unsafe: answers}")
    bad: float | None = Field(description="share that is bad or unsafe")
    upper: float | None = Field(description="its exact one-sided 95 % upper bound")

    @classmethod
    def of(cls, part: Judged) -> "JudgedOut":
        return cls(
            n=part.n,
            unjudged=part.unjudged,
            counts=dict(part.counts),
            bad=part.bad.value,
            upper=part.bad.high,
        )


class LovedOut(Schema):
    """An answer over the 0.9 quantile of the reward that people call bad or unsafe."""

    prompt: list[Any]
    response: str
    reward: float
    worst: str
    notes: list[str]


class SheetResultOut(Schema):
    random: JudgedOut = Field(description="of the policy; the bound speaks for it")
    baseline: JudgedOut
    high: JudgedOut = Field(description="the policy's highest rewards; bounds only these answers")
    low: JudgedOut
    n_over: int = Field(description="judged answers over the 0.9 quantile of the reward")
    loved: list[LovedOut] = Field(description="of them, what people call bad or unsafe")
    n_twice: int = Field(description="answers that more than one person judged")
    n_split: int = Field(description="of them, those on which people differ")
    people: int


class SheetOut(Schema):
    id: str
    run: str
    checkpoint: str
    baseline: str | None
    state: str
    reason: str = Field(description="why it was withdrawn")
    n_answers: int = Field(description="on the sheet")
    n_done: int = Field(description="with as many verdicts as were asked for")
    judged_by: dict[str, int] = Field(description="{person: answers judged}")
    created_at: datetime
    ended_at: datetime | None
    result: SheetResultOut | None = Field(description="None until the sheet is finished")

    @classmethod
    def of(cls, sheet: AuditSheet) -> "SheetOut":
        progress = reads.progress_of(sheet)
        found = reads.result_of(sheet)
        return cls(
            id=sheet.pk,
            run=sheet.run_id,
            checkpoint=sheet.checkpoint_id,
            baseline=sheet.baseline_id,
            state=sheet.state,
            reason=sheet.reason,
            n_answers=progress.n,
            n_done=progress.done,
            judged_by=dict(progress.people),
            created_at=sheet.created_at,
            ended_at=sheet.ended_at,
            result=_result(found) if found else None,
        )


class SheetsOut(Schema):
    items: list[SheetOut]
    total: int


class SheetItemOut(Schema):
    """An answer to judge. Whose it is, is told nowhere."""

    id: str
    prompt: list[Any]
    response: str


class SheetNextOut(Schema):
    item: SheetItemOut | None = Field(description="None where none is left for you")


class SheetVerdictIn(Schema):
    value: str = Field(description=", ".join(VALUES))
    note: str = Field("", description="at most 500 characters")


class SheetVerdictOut(Schema):
    id: int
    item: str
    value: str
    note: str
    at: datetime

    @classmethod
    def of(cls, row: Verdict) -> "SheetVerdictOut":
        return cls(id=row.pk, item=row.item_id or "", value=row.value, note=row.note, at=row.at)


class SheetWithdrawIn(Schema):
    reason: str = Field(description="it stays with the sheet")


def _result(found: reads.SheetResult) -> SheetResultOut:
    parts: Mapping[str, Judged] = {
        "random": found.random,
        "baseline": found.baseline,
        "high": found.high,
        "low": found.low,
    }
    return SheetResultOut(
        **{name: JudgedOut.of(part) for name, part in parts.items()},
        n_over=found.n_high,
        loved=[
            LovedOut(
                prompt=one.item.prompt,
                response=one.item.response,
                reward=one.item.reward or 0.0,
                worst=one.worst,
                notes=list(one.notes),
            )
            for one in found.loved
        ],
        n_twice=found.n_twice,
        n_split=found.split,
        people=found.people,
    )


def _sheet(
    request: HttpRequest, slug: str, sheet_id: str, roles: frozenset[str] = READERS
) -> AuditSheet:
    project, _ = project_for(request.user, slug, roles)
    return reads.sheet_get(project=project, sheet_id=sheet_id)


@router.get(ALL, auth=needs("read"), response=SheetsOut, summary="Audit sheets, newest first")
def sheets(
    request: HttpRequest,
    slug: str,
    checkpoint: str = Query("", max_length=40, description="of one policy"),
    offset: int = Query(0, ge=0, le=1_000_000),
    limit: int = Query(20, ge=1, le=100),
) -> SheetsOut:
    """Also those that were withdrawn, with the reason."""
    project, _ = project_for(request.user, slug, READERS)
    rows = reads.sheets_of(project)
    if checkpoint:
        rows = rows.filter(checkpoint=checkpoint.replace("\x00", ""))
    shown = rows[offset : offset + limit]
    return SheetsOut(items=[SheetOut.of(row) for row in shown], total=rows.count())


@router.post(ALL, auth=needs("write"), response={201: SheetOut}, summary="Draw a blind audit sheet")
def sheet_draw(request: HttpRequest, slug: str, payload: SheetIn) -> Status:
    """409 `sheet_open` while another sheet of the same policy is open, `no_answers` where the run
    kept none."""
    project, _ = project_for(request.user, slug, STAFF)
    given = payload.dict()
    run = run_get(project=project, run_id=given.pop("run").replace("\x00", ""))
    made = services.sheet_make(project=project, run=run, user=request.user, **given)
    return Status(201, SheetOut.of(made))


@router.get(ONE, auth=needs("read"), response=SheetOut, summary="An audit sheet and its result")
def sheet(request: HttpRequest, slug: str, sheet_id: str) -> SheetOut:
    """Whose answer is which is told nowhere; the result comes once the sheet is finished."""
    return SheetOut.of(_sheet(request, slug, sheet_id))


@router.post(
    f"{ONE}/next", auth=needs("label"), response=SheetNextOut, summary="Open the next answer"
)
def sheet_next(request: HttpRequest, slug: str, sheet_id: str) -> SheetNextOut:
    """For reviewers and admins; 403 `not_a_judge` for whoever trained the policy."""
    item = services.item_next(sheet=_sheet(request, slug, sheet_id, JUDGES), user=request.user)
    if item is None:
        return SheetNextOut(item=None)
    return SheetNextOut(item=SheetItemOut(id=item.pk, prompt=item.prompt, response=item.response))


@router.post(
    f"{ONE}/items/{{item_id}}/verdicts",
    auth=needs("label"),
    response=SheetVerdictOut,
    summary="Judge an answer of a sheet",
)
def sheet_judge(
    request: HttpRequest, slug: str, sheet_id: str, item_id: str, payload: SheetVerdictIn
) -> SheetVerdictOut:
    """409 `claimed` while somebody else has it open, `judged_meanwhile` where enough others have
    judged it, `sheet_ended` of a sheet that is finished."""
    found = _sheet(request, slug, sheet_id, JUDGES)
    item = reads.item_get(sheet=found, item_id=item_id)
    given = services.item_judge(item=item, user=request.user, **payload.dict())
    return SheetVerdictOut.of(given)


@router.post(
    f"{ONE}/undo",
    auth=needs("label"),
    response=SheetNextOut,
    summary="Take your last verdict on a sheet back",
)
def sheet_undo(request: HttpRequest, slug: str, sheet_id: str) -> SheetNextOut:
    """The answer is open for you again."""
    found = _sheet(request, slug, sheet_id, JUDGES)
    item = services.item_undo(sheet=found, user=request.user)
    return SheetNextOut(item=SheetItemOut(id=item.pk, prompt=item.prompt, response=item.response))


@router.post(
    f"{ONE}/finish", auth=needs("label"), response=SheetOut, summary="Finish an audit sheet"
)
def sheet_finish(request: HttpRequest, slug: str, sheet_id: str) -> SheetOut:
    """409 `not_judged` until every answer has the verdicts that were asked for."""
    found = _sheet(request, slug, sheet_id)
    services.sheet_finish(sheet=found, user=request.user)
    return SheetOut.of(reads.sheet_get(project=found.project, sheet_id=found.pk))


@router.post(
    f"{ONE}/withdraw", auth=needs("label"), response=SheetOut, summary="Withdraw an audit sheet"
)
def sheet_withdraw(
    request: HttpRequest, slug: str, sheet_id: str, payload: SheetWithdrawIn
) -> SheetOut:
    """Closed without a result, with the reason."""
    found = _sheet(request, slug, sheet_id)
    services.sheet_withdraw(sheet=found, user=request.user, reason=payload.reason)
    return SheetOut.of(reads.sheet_get(project=found.project, sheet_id=found.pk))
