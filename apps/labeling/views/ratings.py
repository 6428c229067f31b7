"""Rating tasks: the screen that rates one, and one's own ratings, to look at and change."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import project_page
from apps.common.errors import DomainError, Missing
from apps.common.http import Request
from apps.labeling.forms.ratings import ChangeForm, RatingForm, SkipForm, values_typed
from apps.labeling.models import MOST_RESPONSES, Rating
from apps.labeling.screens import rating_screen
from apps.labeling.selectors.ratings import rating_get, ratings_of
from apps.labeling.services import LABELERS
from apps.labeling.services.ratings import (
    RatingLease,
    rating_lease_next,
    rating_revise,
    rating_skip,
    rating_submit,
)
from apps.labeling.services.results import NothingReason
from apps.labeling.texts import excerpt

PER_PAGE = 50
_SCREEN = "labeling/rating.html"


@require_safe
@project_page(LABELERS)
def rate(request: Request) -> HttpResponse:
    """The task in hand or the next one."""
    return render(request, _SCREEN, rating_screen.context(_next(request)))


@require_POST
@project_page(LABELERS)
def submit(request: Request) -> HttpResponse:
    form = RatingForm(request.POST)

    def act() -> None:
        form.check()
        slot = form.cleaned_data["slot"]
        rating_submit(slot=slot, annotator=request.user, lease_next=False, **form.rating())

    return _try(request, act)


@require_POST
@project_page(LABELERS)
def skip(request: Request) -> HttpResponse:
    form = SkipForm(request.POST)

    def act() -> None:
        form.check()
        rating_skip(annotator=request.user, **form.cleaned_data)

    return _try(request, act)


@require_POST
@project_page(LABELERS)
def hold(request: Request) -> HttpResponse:
    """Keep the task in hand a while longer, for someone who is still reading it."""
    got = _next(request)
    if isinstance(got, NothingReason):
        return JsonResponse({"slot": None, "leased_until": None})
    return JsonResponse({"slot": got.slot, "leased_until": got.leased_until.isoformat()})


@require_safe
@project_page(LABELERS)
def mine(request: Request) -> HttpResponse:
    """What I have rated, newest first; each can be opened and changed."""
    search = request.GET.get("q", "")[:200].replace("\x00", "")
    found = ratings_of(project=request.project, annotator=request.user, search=search)
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": "My ratings",
        "nav": "rate",
        "search": search,
        "page": page,
        "rows": [_row(rating) for rating in page],
    }
    return render(request, "labeling/rating_answers.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(LABELERS)
def change(request: Request, rating_id: int) -> HttpResponse:
    """A rating of my own; sending it again keeps the old one as history."""
    found = _own(request, rating_id)
    if request.method != "POST":
        return render(request, _SCREEN, rating_screen.context_of_change(found))
    form = ChangeForm(request.POST)
    try:
        form.check()
        rating_revise(rating=found.pk, annotator=request.user, **form.rating())
    except DomainError as error:
        typed = values_typed(request.POST, len(found.shown))
        context = rating_screen.context_of_change(
            found, notice=error.message, typed=typed, note=request.POST.get("note", "")
        )
        return render(request, _SCREEN, context, status=error.status)
    messages.success(request, "Your rating was changed.")
    return redirect("labeling:ratings_mine", request.project.slug)


def _next(request: Request) -> RatingLease | NothingReason:
    return rating_lease_next(project=request.project, annotator=request.user)


def _try(request: Request, act: Callable[[], None]) -> HttpResponse:
    """Act, then show the next task. What cannot be done is said above the task in hand."""
    try:
        act()
    except Missing as error:
        raise Http404(error.message) from error
    except DomainError as error:
        got = _next(request)
        typed: dict[str, Any] = {}
        if isinstance(got, RatingLease) and request.POST.get("slot") == str(got.slot):
            n = min(len(got.responses), MOST_RESPONSES)
            typed = {"typed": values_typed(request.POST, n), "note": request.POST.get("note", "")}
        context = rating_screen.context(got, notice=error.message, **typed)
        return render(request, _SCREEN, context, status=error.status)
    return redirect("labeling:rate", request.project.slug)


def _own(request: Request, rating: int) -> Rating:
    try:
        return rating_get(project=request.project, annotator=request.user, rating=rating)
    except Missing as error:
        raise Http404(error.message) from error


def _row(rating: Rating) -> dict[str, Any]:
    """Values by letter, as the screen showed them."""
    shown = [rating.values[place - 1] for place in rating.shown]
    return {
        "rating": rating,
        "prompt": excerpt(rating.task.prompt.messages),
        "values": list(zip(rating_screen.LETTERS, shown, strict=False)),
    }
