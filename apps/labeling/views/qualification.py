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
from apps.labeling.forms import LETTERS, values_typed
from apps.labeling.models import (
    MOST_RESPONSES,
    Choice,
    QualificationAnswer,
    QualificationAttempt,
    Task,
)
from apps.labeling.rendering import text_html
from apps.labeling.screens import label
from apps.labeling.screens.rating_screen import cards_shown
from apps.labeling.selectors.ratings import responses_of
from apps.labeling.services import LABELERS, Questions
from apps.labeling.services.results import Scale
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
            values=_values(request),
        )
    except Missing as error:
        raise Http404(error.message) from error
    except DomainError as error:
        messages.warning(request, error.message)
        return redirect(address)
    return redirect(f"{address}?answered={row.position}")


def _values(request: Request) -> list[int]:
    """What was given to each card; nothing of a pair."""
    cards = request.POST.get("cards", "")
    n = min(int(cards), MOST_RESPONSES) if cards.isdecimal() and len(cards) < 3 else 0
    values = values_typed(request.POST, n)
    if None in values:
        raise DomainError(gettext("Give every answer a value."), field="values")
    return [value for value in values if value is not None]


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


def _shown(row: QualificationAnswer) -> dict[str, Any]:
    """The panes of a pair, or a card for each response in the order of this attempt."""
    comparison = row.comparison
    if comparison.kind != Task.Kind.PAIR:
        messages = {item.position: item.response.brief for item in responses_of(comparison)}
        answers = [messages[place] for place in row.shown]
        values = [row.values[place - 1] for place in row.shown] if row.values else ()
        scale = Scale.of(comparison)
        return cards_shown(comparison.prompt.brief, answers, scale, values) | {"row": row}
    a, b = comparison.response_a.brief, comparison.response_b.brief
    left, right = (a, b) if row.left_is == "a" else (b, a)
    return label.pair_shown(comparison.prompt.brief, left, right) | {"row": row}


def _asked(request: Request, row: QualificationAnswer) -> dict[str, Any]:
    """A pair to judge, with the project's own buttons but for strength."""
    questions = replace(
        Questions.of(selectors.settings_get(project=request.project)), strength=False
    )
    return _shown(row) | {"buttons": label.buttons(questions)}


def _judged(request: Request, row: QualificationAnswer, *, is_last: bool) -> dict[str, Any]:
    """The pair again, with what was answered, what is right, and why."""
    explanation = row.comparison.gold_explanation
    return _shown(row) | {
        "judged": True,
        "is_last": is_last,
        "yours": _said(row, row.choice, row.values),
        "right": _said(row, row.comparison.gold, row.comparison.gold_values),
        "explanation": text_html(explanation) if explanation else "",
    }


def _reviewed(rows: list[QualificationAnswer]) -> list[dict[str, Any]]:
    """The pairs of an attempt that is over, for its result."""
    return [
        {
            "position": row.position,
            "prompt": excerpt(row.comparison.prompt.brief),
            "is_right": row.is_right,
            "yours": _said(row, row.choice, row.values),
            "right": _said(row, row.comparison.gold, row.comparison.gold_values),
        }
        for row in rows
    ]


def _said(row: QualificationAnswer, choice: str, values: list[int]) -> str:
    """A choice as seen, or the value of each card: A 3 · B 5."""
    if choice:
        return str(Choice.as_seen(choice, row.left_is).label)
    given = zip(LETTERS, row.shown, strict=False)
    return " · ".join(f"{letter} {values[place - 1]}" for letter, place in given)
