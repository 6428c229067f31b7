"""The qualification round: pair by pair as on the label screen, each with its explanation after."""

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import project_page
from apps.common.errors import DomainError, Missing
from apps.common.http import Request
from apps.labeling import selectors, services
from apps.labeling.models import Choice, QualificationAnswer, QualificationAttempt
from apps.labeling.rendering import text_html
from apps.labeling.screens import label
from apps.labeling.services import LABELERS, Questions
from apps.labeling.texts import excerpt
from apps.labeling.views.label import label_url

# What must be done before qualifying; the label screen says how.
_BEFORE = ("paused", "guideline")


@require_safe
@project_page(LABELERS)
def qualification(request: Request) -> HttpResponse:
    """Start, the pair that is next, what the last answer was worth (`?answered=N`), the result."""
    nothing = services.labeling_status(project=request.project, annotator=request.user).nothing
    if nothing is not None and nothing.code in _BEFORE:
        return redirect(label_url(request))
    state = services.qualification_of(project=request.project, user=request.user)
    rows = _rows(state.attempt)
    answered = _answered(rows, request.GET.get("answered", ""))
    following = next((row for row in rows if row.answered_at is None), None)
    context = {
        "page_title": gettext("Qualification"),
        "nav": "label",
        "state": state,
        "n_answered": sum(row.answered_at is not None for row in rows),
    }
    if answered is not None:
        context |= _judged(request, answered, is_last=following is None)
    elif following is not None:
        context |= _asked(request, following)
    else:
        context |= {"reviewed": _reviewed(rows), "needed": _needed(state.attempt)}
        return render(request, "labeling/qualification.html", context)
    return render(request, "labeling/qualification_pair.html", context)


@require_POST
@project_page(LABELERS)
def qualification_start(request: Request) -> HttpResponse:
    try:
        services.attempt_start(project=request.project, user=request.user)
    except DomainError as error:
        messages.warning(request, error.message)
    return redirect("labeling:qualification", request.project.slug)


@require_POST
@project_page(LABELERS)
def qualification_answer(request: Request) -> HttpResponse:
    """Store the answer, then show what it was worth."""
    address = reverse("labeling:qualification", args=[request.project.slug])
    wanted = request.POST.get("pair", "")
    try:
        row = services.attempt_answer(
            project=request.project,
            user=request.user,
            answer=int(wanted) if wanted.isdecimal() and len(wanted) < 19 else 0,
            side=request.POST.get("answer", ""),
        )
    except Missing as error:
        raise Http404(error.message) from error
    except DomainError as error:
        messages.warning(request, error.message)
        return redirect(address)
    return redirect(f"{address}?answered={row.position}")


def _rows(attempt: QualificationAttempt | None) -> list[QualificationAnswer]:
    if attempt is None:
        return []
    related = ("comparison__prompt", "comparison__response_a", "comparison__response_b")
    return list(attempt.answers.select_related(*related).order_by("position"))


def _needed(attempt: QualificationAttempt | None) -> int:
    """Right answers that this attempt took to pass."""
    return services.pairs_needed(attempt.n_pairs, attempt.pass_share) if attempt else 0


def _answered(rows: list[QualificationAnswer], position: str) -> QualificationAnswer | None:
    return next(
        (row for row in rows if str(row.position) == position and row.answered_at is not None), None
    )


def _pair(row: QualificationAnswer) -> dict[str, Any]:
    comparison = row.comparison
    a, b = comparison.response_a.messages, comparison.response_b.messages
    left, right = (a, b) if row.left_is == "a" else (b, a)
    return label.pair_shown(comparison.prompt.messages, left, right) | {"row": row}


def _asked(request: Request, row: QualificationAnswer) -> dict[str, Any]:
    """A pair to judge, with the project's own buttons but for strength."""
    questions = replace(
        Questions.of(selectors.settings_get(project=request.project)), strength=False
    )
    return _pair(row) | {"buttons": label.buttons(questions)}


def _judged(request: Request, row: QualificationAnswer, *, is_last: bool) -> dict[str, Any]:
    """The pair again, with what was answered, what is right, and why."""
    explanation = row.comparison.gold_explanation
    return _pair(row) | {
        "judged": True,
        "is_last": is_last,
        "yours": Choice.as_seen(row.choice, row.left_is).label,
        "right": Choice.as_seen(row.comparison.gold, row.left_is).label,
        "explanation": text_html(explanation) if explanation else "",
    }


def _reviewed(rows: list[QualificationAnswer]) -> list[dict[str, Any]]:
    """The pairs of an attempt that is over, for its result."""
    return [
        {
            "position": row.position,
            "prompt": excerpt(row.comparison.prompt.messages),
            "is_right": row.is_right,
            "yours": Choice.as_seen(row.choice, row.left_is).label,
            "right": Choice.as_seen(row.comparison.gold, row.left_is).label,
        }
        for row in rows
    ]
