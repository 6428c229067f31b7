"""The API of verdicts by people: the inbox of flagged answers, and the samples of a run."""

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from apps.accounts.api_auth import needs
from apps.accounts.permissions import READERS, project_for
from apps.common.errors import Missing
from apps.evaluation.models import FlaggedAnswer, Verdict
from apps.evaluation.selectors import inbox as reads
from apps.evaluation.selectors.verdicts import run_verdicts, verdicts_of_flagged
from apps.evaluation.services.inbox import inbox_next
from apps.evaluation.services.verdicts import (
    VALUES,
    flagged_close,
    flagged_judge,
    sample_judge,
    verdict_undo,
)
from apps.training.display import speakable
from apps.training.models import Sample
from apps.training.selectors import run_get

router = Router(tags=["verdicts"])
INBOX = "/projects/{slug}/inbox"


class VerdictIn(Schema):
    value: str = Field(description=", ".join(VALUES))
    note: str = Field("", description="at most 500 characters, shown with the verdict")


class InboxVerdictIn(VerdictIn):
    again: bool = Field(False, description="a second opinion on what somebody else has judged")


class VerdictOut(Schema):
    id: int
    sample: int | None = Field(description="the sample's id; None of an entry without one")
    answer: int | None = Field(description="the id of the inbox's entry, where there is no sample")
    value: str = Field(description="also withdrawn, of one that was taken back")
    note: str
    by: str
    at: datetime

    @classmethod
    def of(cls, row: Verdict) -> "VerdictOut":
        return cls(
            id=row.pk,
            sample=row.sample_id,
            answer=row.flagged_id,
            value=row.value,
            note=row.note,
            by=row.by_name,
            at=row.at,
        )


class FlaggedAnswerOut(Schema):
    id: int
    run: str
    sample: int | None
    step: int
    kind: str = Field(description=", ".join(FlaggedAnswer.Kind.values))
    reason: str = Field(description="as the run says it")
    state: str
    prompt: list[Any]
    response: str
    baseline: str = Field(description="the baseline's answer to the same prompt, else empty")
    reward: float | str | None = Field(description='"nan", "inf" or "-inf" where it is none')
    open_by: str = Field(description="whoever has it open for some minutes, else empty")
    verdicts: list[VerdictOut] = Field(description="the newest of each person")

    @classmethod
    def of(cls, row: FlaggedAnswer, said: list[Verdict]) -> "FlaggedAnswerOut":
        sample = row.sample
        reward = sample.reward if sample is not None else None
        return cls(
            id=row.pk,
            run=row.run_id,
            sample=row.sample_id,
            step=row.step,
            kind=row.kind,
            reason=row.reason,
            state=row.state,
            prompt=row.prompt,
            response=row.response,
            baseline=sample.baseline if sample is not None else "",
            reward=speakable(reward),
            open_by=reads.open_by(row),
            verdicts=[VerdictOut.of(one) for one in said],
        )


class InboxOut(Schema):
    items: list[FlaggedAnswerOut]
    total: int


class InboxNextOut(Schema):
    answer: FlaggedAnswerOut | None = Field(description="None where nothing waits")


class InboxCloseIn(Schema):
    run: str = Field(max_length=40)


class InboxClosedOut(Schema):
    closed: int


def _out(rows: list[FlaggedAnswer]) -> list[FlaggedAnswerOut]:
    said = verdicts_of_flagged(rows)
    return [FlaggedAnswerOut.of(row, said[row.pk]) for row in rows]


@router.get(INBOX, auth=needs("read"), response=InboxOut, summary="Flagged answers, newest first")
def inbox(
    request: HttpRequest,
    slug: str,
    state: Literal["waiting", "judged", "closed"] = Query(
        "waiting", description="waiting for a verdict, judged, or closed"
    ),
    run: str = Query("", max_length=40),
    kind: str = Query("", max_length=20, description="of reason"),
    offset: int = Query(0, ge=0, le=1_000_000),
    limit: int = Query(50, ge=1, le=200),
) -> InboxOut:
    """Answers that a run says a person must see."""
    project, _ = project_for(request.user, slug, READERS)
    rows = reads.InboxFilters(run=run.replace("\x00", ""), kind=kind.replace("\x00", "")).rows(
        project, state
    )
    return InboxOut(items=_out(list(rows[offset : offset + limit])), total=rows.count())


@router.post(
    f"{INBOX}/next", auth=needs("label"), response=InboxNextOut, summary="Open the next answer"
)
def inbox_take(
    request: HttpRequest,
    slug: str,
    run: str = Query("", max_length=40),
    kind: str = Query("", max_length=20),
) -> InboxNextOut:
    """The first waiting one that nobody else has open. It is yours for five minutes."""
    project, _ = project_for(request.user, slug, READERS)
    filters = reads.InboxFilters(run=run.replace("\x00", ""), kind=kind.replace("\x00", ""))
    found = inbox_next(project=project, filters=filters, user=request.user)
    return InboxNextOut(answer=_out([found])[0] if found else None)


@router.post(
    f"{INBOX}/close",
    auth=needs("label"),
    response=InboxClosedOut,
    summary="Close what waits of a run",
)
def inbox_run_close(request: HttpRequest, slug: str, payload: InboxCloseIn) -> InboxClosedOut:
    """Without a verdict; the answers stay among the samples of the run."""
    project, _ = project_for(request.user, slug, READERS)
    run_id = payload.run.replace("\x00", "")
    return InboxClosedOut(closed=flagged_close(project=project, run_id=run_id, user=request.user))


@router.post(
    f"{INBOX}/undo",
    auth=needs("label"),
    response=VerdictOut,
    summary="Take your last verdict back",
)
def inbox_undo(request: HttpRequest, slug: str) -> VerdictOut:
    """Of the inbox or of samples. 409 `nothing_to_undo` where you have none, `import_voted` where
    people have voted on the pair that it sent to labeling."""
    project, _ = project_for(request.user, slug, READERS)
    return VerdictOut.of(verdict_undo(project=project, user=request.user))


@router.post(
    f"{INBOX}/{{answer_id}}/verdicts",
    auth=needs("label"),
    response=VerdictOut,
    summary="Judge a flagged answer",
)
def inbox_judge(
    request: HttpRequest, slug: str, answer_id: int, payload: InboxVerdictIn
) -> VerdictOut:
    """409 `claimed` while somebody else has it open, `judged_meanwhile` where somebody else has
    judged it and `again` is not set; nothing is stored then."""
    project, _ = project_for(request.user, slug, READERS)
    found = reads.flagged_get(project=project, flagged_id=answer_id)
    given = flagged_judge(flagged=found, user=request.user, **payload.dict())
    return VerdictOut.of(given)


@router.get(
    "/projects/{slug}/runs/{run_id}/verdicts",
    auth=needs("read"),
    response=list[VerdictOut],
    summary="What people said of a run's answers",
)
def verdicts(request: HttpRequest, slug: str, run_id: str) -> list[VerdictOut]:
    """The newest of each person on each answer, newest first."""
    project, _ = project_for(request.user, slug, READERS)
    run = run_get(project=project, run_id=run_id.replace("\x00", ""))
    return [VerdictOut.of(row) for row in run_verdicts(run)]


@router.post(
    "/projects/{slug}/runs/{run_id}/samples/{sample_id}/verdicts",
    auth=needs("label"),
    response=VerdictOut,
    summary="Judge a sample of a run",
)
def sample_verdict(
    request: HttpRequest, slug: str, run_id: str, sample_id: int, payload: VerdictIn
) -> VerdictOut:
    """409 `no_baseline` where there is no pair to send to labeling."""
    project, _ = project_for(request.user, slug, READERS)
    run = run_get(project=project, run_id=run_id.replace("\x00", ""))
    sample = Sample.objects.filter(run=run, pk=sample_id).first()
    if sample is None:
        raise Missing("There is no such sample of this run.", field="sample")
    return VerdictOut.of(sample_judge(sample=sample, user=request.user, **payload.dict()))
