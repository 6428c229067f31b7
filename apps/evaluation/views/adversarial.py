"""Adversarial rounds of a model: opening one, watching it, freezing what fooled the model."""

from collections.abc import Iterator
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines
from apps.evaluation.models import AdversarialRound
from apps.evaluation.screens import adversarial as screen
from apps.evaluation.screens.ranking import pairs_work_words
from apps.evaluation.selectors import adversarial as selectors
from apps.evaluation.selectors.models import reward_model_get
from apps.evaluation.selectors.ranking import sendable
from apps.evaluation.services.adversarial import N_PAIRS, hard_pairs_freeze, round_open
from apps.labeling.selectors import settings_get
from apps.labeling.texts import plain
from apps.training.models import Checkpoint, Run
from apps.training.selectors import run_get

_COLUMNS = (
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
    rounds = list(selectors.rounds_of(checkpoint)[:50])
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
    counts = selectors.round_counts(selectors.round_pairs(round_))
    return {"round": round_, "counts": counts, "says": screen.fooled_words(counts)}


def _to_ask(
    checkpoint: Checkpoint, source: Run | None, rounds: list[AdversarialRound]
) -> dict[str, Any] | None:
    """What the button would do, in numbers; None where nothing is new."""
    if source is None or any(one.source_id == source.pk for one in rounds):
        return None
    outputs, error = selectors.outputs_readable(source)
    if error:
        return {"error": error}
    n = min(len(selectors.pairs_chosen(outputs)), N_PAIRS)
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
    found = selectors.round_get(checkpoint=checkpoint, round_id=round_id)
    outputs, error = selectors.outputs_readable(found.source)
    pairs = selectors.round_pairs(found, outputs)
    counts = selectors.round_counts(pairs)
    context = {
        "checkpoint": checkpoint,
        "round": found,
        "counts": counts,
        "says": screen.fooled_words(counts),
        "examples": screen.examples_shown(pairs),
        "no_scores": error,
        "datasets": selectors.datasets_of(found),
        "page_title": f"Adversarial round {found.pk}",
        "nav": "reward_models",
    }
    return render(request, "evaluation/adversarial_round.html", context)


@require_POST
@project_page(STAFF)
def adversarial_freeze(request: Request, checkpoint_id: str, round_id: str) -> HttpResponse:
    checkpoint = reward_model_get(project=request.project, checkpoint_id=checkpoint_id)
    found = selectors.round_get(checkpoint=checkpoint, round_id=round_id)
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
    found = selectors.round_get(checkpoint=checkpoint, round_id=round_id)
    pairs = selectors.round_pairs(found, selectors.outputs_readable(found.source)[0])

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
        csv_lines(_COLUMNS, rows()), content_type="text/csv; charset=utf-8"
    )
    name = f"{request.project.slug}-{found.pk}-pairs.csv"
    response["Content-Disposition"] = content_disposition_header(True, name)
    return response
