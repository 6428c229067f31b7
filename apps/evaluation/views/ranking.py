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
from apps.common.report.levels import look_of
from apps.common.spreadsheet import csv_lines
from apps.evaluation.models import AdversarialRound, OutputRanking
from apps.evaluation.screens import ranking as screen
from apps.evaluation.screens.ranking import pairs_work_words
from apps.evaluation.selectors import adversarial as round_selectors
from apps.evaluation.selectors import ranking as selectors
from apps.evaluation.selectors.models import reward_model_get
from apps.evaluation.selectors.outputs import askable, outputs_of
from apps.evaluation.selectors.ranking import sendable
from apps.evaluation.services.ranking import (
    MOST_OUTPUTS,
    N_PAIRS,
    OVERLAP,
    hard_pairs_freeze,
    outputs_send,
    round_open,
)
from apps.labeling.selectors import settings_get
from apps.training.models import Checkpoint, Run
from apps.training.selectors import run_get
from measures.messages import plain

_COLUMNS = ("output", "score", "mean_grade", "n_grades", "grades", "state", "prompt", "answer")


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
        "look": look_of(finding.verdict),
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


# Adversarial rounds of a model: opening one, watching it, freezing what fooled the model.


_ROUND_COLUMNS = (
    "comparison",
    "people_preferred",
    "high_score",
    "low_score",
    "votes",
    "prompt",
    "high",
    "low",
)


@require_safe
@project_page(STAFF)
def adversarial(request: Request, checkpoint_id: str) -> HttpResponse:
    checkpoint = reward_model_get(project=request.project, checkpoint_id=checkpoint_id)
    rounds = list(round_selectors.rounds_of(checkpoint)[:50])
    source = sendable(checkpoint)
    context = {
        "checkpoint": checkpoint,
        "rounds": [_round(one) for one in rounds],
        "source": source,
        "to_ask": _to_ask(checkpoint, source, rounds),
        "page_title": "Adversarial rounds",
        "nav": "reward_models",
    }
    return render(request, "evaluation/adversarial.html", context)


def _round(round_: AdversarialRound) -> dict[str, Any]:
    counts = round_selectors.round_counts(round_selectors.round_pairs(round_))
    return {"round": round_, "counts": counts, "says": screen.fooled_words(counts)}


def _to_ask(
    checkpoint: Checkpoint, source: Run | None, rounds: list[AdversarialRound]
) -> dict[str, Any] | None:
    """What the button would do, in numbers; None where nothing is new."""
    if source is None or any(one.source_id == source.pk for one in rounds):
        return None
    outputs, error = round_selectors.outputs_readable(source)
    if error:
        return {"error": error}
    n = min(len(round_selectors.outputs_to_ask(checkpoint, outputs)), N_PAIRS)
    if not n:
        return {
            "error": "The model prefers none of the answers to another one of the same prompt. "
            "Assess it with a policy and with the SFT model beside it."
        }
    overlap = settings_get(project=checkpoint.project).overlap
    return {"n": n, "work": pairs_work_words(n, overlap)}


@require_POST
@project_page(STAFF)
def adversarial_open(request: Request, checkpoint_id: str) -> HttpResponse:
    checkpoint = reward_model_get(project=request.project, checkpoint_id=checkpoint_id)
    named = request.POST.get("source", "").replace("\x00", "")
    source = run_get(project=request.project, run_id=named)
    made, is_new = round_open(checkpoint=checkpoint, source=source, user=request.user)
    if is_new:
        messages.success(request, f"{made.n_pairs} pairs are in the label queue.")
    else:
        messages.info(request, "These pairs were sent before; nothing was sent twice.")
    return redirect("evaluation:adversarial_round", request.project.slug, checkpoint.pk, made.pk)


@require_safe
@project_page(STAFF)
def adversarial_round(request: Request, checkpoint_id: str, round_id: str) -> HttpResponse:
    """One round: progress, how often the model was fooled, and by what."""
    checkpoint = reward_model_get(project=request.project, checkpoint_id=checkpoint_id)
    found = round_selectors.round_get(checkpoint=checkpoint, round_id=round_id)
    outputs, error = round_selectors.outputs_readable(found.source)
    pairs = round_selectors.round_pairs(found, outputs)
    counts = round_selectors.round_counts(pairs)
    context = {
        "checkpoint": checkpoint,
        "round": found,
        "counts": counts,
        "says": screen.fooled_words(counts),
        "examples": screen.examples_shown(pairs),
        "no_scores": error,
        "datasets": round_selectors.datasets_of(found),
        "page_title": f"Adversarial round {found.pk}",
        "nav": "reward_models",
    }
    return render(request, "evaluation/adversarial_round.html", context)


@require_POST
@project_page(STAFF)
def adversarial_freeze(request: Request, checkpoint_id: str, round_id: str) -> HttpResponse:
    checkpoint = reward_model_get(project=request.project, checkpoint_id=checkpoint_id)
    found = round_selectors.round_get(checkpoint=checkpoint, round_id=round_id)
    try:
        made, _ = hard_pairs_freeze(round_=found, user=request.user)
    except DomainError as error:
        messages.error(request, f"Not frozen. {error.message}")
        return redirect(
            "evaluation:adversarial_round", request.project.slug, checkpoint.pk, found.pk
        )
    return redirect("snapshots:detail", request.project.slug, made.pk)


@require_safe
@project_page(STAFF)
def adversarial_csv(request: Request, checkpoint_id: str, round_id: str) -> StreamingHttpResponse:
    """Every pair of the round, without names."""
    checkpoint = reward_model_get(project=request.project, checkpoint_id=checkpoint_id)
    found = round_selectors.round_get(checkpoint=checkpoint, round_id=round_id)
    pairs = round_selectors.round_pairs(found, round_selectors.outputs_readable(found.source)[0])

    def rows() -> Iterator[dict[str, object]]:
        for pair in pairs:
            yield {
                "comparison": pair.comparison.pk,
                "people_preferred": pair.winner,
                "high_score": "" if pair.high_score is None else pair.high_score,
                "low_score": "" if pair.low_score is None else pair.low_score,
                "votes": pair.votes,
                "prompt": plain(pair.prompt),
                "high": plain(pair.high),
                "low": plain(pair.low),
            }

    response = StreamingHttpResponse(
        csv_lines(_ROUND_COLUMNS, rows()), content_type="text/csv; charset=utf-8"
    )
    name = f"{request.project.slug}-{found.pk}-pairs.csv"
    response["Content-Disposition"] = content_disposition_header(True, name)
    return response
