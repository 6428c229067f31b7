"""Outputs that people grade: how far they are, what came of it, and sending them."""

from collections.abc import Iterator
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import ADMIN, STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines
from apps.evaluation.models import OutputRanking
from apps.evaluation.screens import ranking as screen
from apps.evaluation.selectors import ranking as selectors
from apps.evaluation.selectors.models import reward_model_get
from apps.evaluation.selectors.outputs import askable, outputs_of
from apps.evaluation.services.ranking import MOST_OUTPUTS, OVERLAP, outputs_send
from apps.labeling.texts import plain
from apps.training.models import Checkpoint, Run
from apps.training.selectors import run_get
from measures.trust.findings import Verdict

_COLUMNS = ("output", "score", "mean_grade", "n_grades", "grades", "state", "prompt", "answer")
_TONES = {Verdict.GREEN: "good", Verdict.RED: "bad", Verdict.UNMEASURED: ""}


@require_safe
@project_page(STAFF)
def ranking(request: Request, checkpoint_id: str) -> HttpResponse:
    """The newest outputs that were sent, or those that `of` names, and what could be sent."""
    checkpoint = reward_model_get(project=request.project, checkpoint_id=checkpoint_id)
    sent = list(selectors.rankings_of(checkpoint)[:50])
    shown = _wanted(request, checkpoint, sent)
    source = selectors.sendable(checkpoint)
    context = {
        "checkpoint": checkpoint,
        "shown": shown,
        "others": [one for one in sent if one != shown],
        "source": source,
        "to_send": _to_send(checkpoint, source, sent),
        "may_label": request.role == ADMIN,
        "page_title": "Outputs that people grade",
        "nav": "reward_models",
    } | (_shown_ranking(shown) if shown else {})
    return render(request, "evaluation/ranking.html", context)


def _wanted(
    request: Request, checkpoint: Checkpoint, sent: list[OutputRanking]
) -> OutputRanking | None:
    if of := request.GET.get("of", "").replace("\x00", ""):
        return selectors.ranking_get(checkpoint=checkpoint, ranking_id=of)
    return sent[0] if sent else None


def _shown_ranking(shown: OutputRanking) -> dict[str, Any]:
    outputs = selectors.graded_outputs(shown)
    finding = selectors.finding_of(shown, outputs)
    return {
        "progress": selectors.progress_of(shown, outputs),
        "finding": finding,
        "tone": _TONES[finding.verdict],
        "rows": screen.rows_shown(outputs),
        "part": screen.scatter(outputs),
    }


def _to_send(
    checkpoint: Checkpoint, source: Run | None, sent: list[OutputRanking]
) -> dict[str, Any] | None:
    """What the button would do, in numbers, or why it is not there; None where nothing is new."""
    if source is None or any(one.assessment_id == source.pk for one in sent):
        return None
    try:
        n = min(len(askable(outputs_of(source))), MOST_OUTPUTS)
    except DomainError as error:
        return {"error": error.message}
    if not n:
        return {"error": "Every answer in the assessment is empty."}
    seconds = selectors.seconds_a_grade(checkpoint)
    measured = seconds != selectors.SECONDS_A_GRADE
    return {"n": n, "work": screen.work_words(n, OVERLAP, seconds, measured=measured)}


@require_POST
@project_page(STAFF)
def ranking_send(request: Request, checkpoint_id: str) -> HttpResponse:
    checkpoint = reward_model_get(project=request.project, checkpoint_id=checkpoint_id)
    assessment = request.POST.get("assessment", "").replace("\x00", "")
    run = run_get(project=request.project, run_id=assessment)
    made, is_new = outputs_send(checkpoint=checkpoint, assessment=run, user=request.user)
    if is_new:
        messages.success(request, f"{made.outputs.count()} outputs are in the label queue.")
    else:
        messages.info(request, "These outputs were sent before; nothing was sent twice.")
    return redirect("evaluation:ranking", request.project.slug, checkpoint.pk)


@require_safe
@project_page(STAFF)
def ranking_csv(request: Request, checkpoint_id: str) -> StreamingHttpResponse:
    """Every output that was sent, without names."""
    checkpoint = reward_model_get(project=request.project, checkpoint_id=checkpoint_id)
    shown = _wanted(request, checkpoint, list(selectors.rankings_of(checkpoint)[:1]))
    outputs = selectors.graded_outputs(shown) if shown else []

    def rows() -> Iterator[dict[str, object]]:
        for one in outputs:
            yield {
                "output": one.number,
                "score": one.score,
                "mean_grade": "" if one.mean is None else one.mean,
                "n_grades": len(one.grades),
                "grades": " ".join(map(str, one.grades)),
                "state": one.task.get_state_display(),
                "prompt": plain(one.prompt),
                "answer": plain(one.response),
            }

    response = StreamingHttpResponse(
        csv_lines(_COLUMNS, rows()), content_type="text/csv; charset=utf-8"
    )
    name = f"{request.project.slug}-{checkpoint.pk}-outputs.csv"
    response["Content-Disposition"] = content_disposition_header(True, name)
    return response
