"""Rating tasks: the screen that rates one, one's own ratings, and the results for readers."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import ADMIN, READERS, STAFF, project_page
from apps.common.errors import Conflict, DomainError, Missing
from apps.common.http import Request
from apps.labeling.forms import LETTERS, ChangeForm, RatingForm, SkipForm, TasksFilter, values_typed
from apps.labeling.models import MOST_RESPONSES, RATED, Answer, Slot, Task
from apps.labeling.screens import rating_screen
from apps.labeling.screens.label import Notice
from apps.labeling.screens.rating_screen import cards_shown
from apps.labeling.selectors.ratings import (
    RaterScales,
    TaskResult,
    rater_scales,
    rating_get,
    ratings_of,
    ratings_shown,
    responses_of,
    results_of,
    results_sorted,
    task_get,
    tasks_list,
)
from apps.labeling.services import LABELERS, slot_lease_next, slot_skip, vote_cast, vote_revise
from apps.labeling.services.kinds import KINDS
from apps.labeling.services.pairs_of_answers import pairs_make
from apps.labeling.services.results import Lease, Scale
from apps.labeling.services.review import task_drop, task_reopen
from apps.labeling.texts import excerpt
from apps.labeling.views.label import label_url, shown, stored

PER_PAGE = 50
_SCREEN = "labeling/rating.html"


@require_POST
@project_page(LABELERS)
def submit(request: Request) -> HttpResponse:
    form = RatingForm(request.POST)

    def act() -> None:
        form.check()
        slot = form.cleaned_data["slot"]
        _slot_check(slot)
        vote_cast(slot=slot, annotator=request.user, lease_next=False, **form.rating())

    return _try(request, act, request.POST.get("key", ""))


@require_POST
@project_page(LABELERS)
def skip(request: Request) -> HttpResponse:
    form = SkipForm(request.POST)

    def act() -> None:
        form.check()
        _slot_check(form.cleaned_data["slot"])
        slot_skip(annotator=request.user, kinds=tuple(KINDS), **form.cleaned_data)

    return _try(request, act, f"skip.{request.POST.get('slot', '')}")


@require_safe
@project_page(LABELERS)
def mine(request: Request) -> HttpResponse:
    """What I have rated, newest first; each can be opened and changed."""
    search = request.GET.get("q", "")[:200].replace("\x00", "")
    found = ratings_of(project=request.project, annotator=request.user, search=search)
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": gettext("My ratings"),
        "nav": "answers",
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
        vote_revise(vote=found.pk, annotator=request.user, **form.rating())
    except DomainError as error:
        typed = values_typed(request.POST, len(found.shown))
        context = rating_screen.context_of_change(
            found, notice=error.message, typed=typed, note=request.POST.get("note", "")
        )
        return render(request, _SCREEN, context, status=error.status)
    messages.success(request, "Your rating was changed.")
    return redirect("labeling:ratings_mine", request.project.slug)


def _slot_check(slot: int) -> None:
    if not Slot.objects.filter(pk=slot, task__kind__in=RATED).exists():
        raise Missing("There is no such rating task.", field="slot")


def _try(request: Request, act: Callable[[], None], key: str) -> HttpResponse:
    """Act, then show the next task; the browser's outbox is told that `key` is stored. What cannot
    be done is said above the task in hand."""
    try:
        act()
    except Missing as error:
        raise Http404(error.message) from error
    except DomainError as error:
        got = slot_lease_next(project=request.project, annotator=request.user)
        typed: dict[str, Any] = {}
        if isinstance(got, Lease) and request.POST.get("slot") == str(got.slot):
            n = min(len(got.responses), MOST_RESPONSES)
            typed = {"typed": values_typed(request.POST, n), "note": request.POST.get("note", "")}
        if isinstance(got, Lease) and got.kind in RATED:
            context = rating_screen.context(got, notice=error.message, **typed)
            response = render(request, _SCREEN, context, status=error.status)
        else:
            response = shown(request, got, status=error.status, notice=Notice(error.message))
        response["Concord-Refused"] = error.code
        return response
    return stored(HttpResponse(status=204), key) if request.htmx else redirect(label_url(request))


def _own(request: Request, rating: int) -> Answer:
    try:
        return rating_get(project=request.project, annotator=request.user, rating=rating)
    except Missing as error:
        raise Http404(error.message) from error


def _row(rating: Answer) -> dict[str, Any]:
    """Values by letter, as the screen showed them."""
    shown = [rating.values[place - 1] for place in rating.shown]
    return {
        "rating": rating,
        "prompt": excerpt(rating.task.prompt.brief),
        "values": list(zip(rating_screen.LETTERS, shown, strict=False)),
    }


# Rating tasks for readers: how the ratings lie, which prompts spread, who disagrees.

TASKS_PER_PAGE = 50
TONES = {"decided": "good", "review": "warn", "dropped": "bad"}


@require_safe
@project_page(READERS)
def tasks(request: Request) -> HttpResponse:
    """Every task with mean, spread and n; sorted by a number, all tasks are measured for it."""
    form = TasksFilter(request.GET)
    wanted = form.cleaned_data if form.is_valid() else {}
    sort = wanted.get("sort", "")
    found = tasks_list(
        project=request.project,
        kind=wanted.get("kind", ""),
        state=wanted.get("state", ""),
        search=wanted.get("q", "").replace("\x00", ""),
    )
    listed = results_sorted(results_of(found), sort) if sort else found
    page = Paginator(listed, TASKS_PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": "Ratings",
        "nav": "ratings",
        "form": form,
        "filtered": any(wanted.get(name) for name in ("q", "kind", "state")),
        "may_make_pairs": request.role in STAFF,
        "page": page,
        "rows": [_task_row(result) for result in (page if sort else results_of(page))],
    }
    return render(request, "labeling/rating_tasks.html", context)


@require_safe
@project_page(READERS)
def task(request: Request, task_id: int) -> HttpResponse:
    """One task in its stored order: each response with its mean, raw and normalised.

    Reviewers and engineers see annotators as numbers; admins see names.
    """
    found = _task(request, task_id)
    with_names = request.role == ADMIN
    items = responses_of(found)
    scale = Scale.of(found)
    result = results_of([found])[0]
    scales = rater_scales(project=request.project)
    shown = cards_shown(found.prompt.brief, [item.response.brief for item in items], scale)
    aside = found.state in (Task.State.DROPPED, Task.State.REVIEW)
    context = shown | {
        "page_title": f"Rating task {found.external_id or found.pk}",
        "nav": "ratings",
        "task": found,
        "tone": TONES.get(found.state, ""),
        "spread": result.spread,
        "answers": _answers(shown["cards"], items, result, scales),
        "ratings": ratings_shown(task=found, with_names=with_names),
        "letters": LETTERS[: len(items)],
        "scales": scales,
        "skips": list(found.skips.values_list("reason", flat=True)),
        "may_drop": with_names and found.state != Task.State.DROPPED,
        "may_reopen": with_names and aside,
    }
    return render(request, "labeling/rating_task.html", context)


@require_POST
@project_page(frozenset({ADMIN}))
def task_state(request: Request, task_id: int) -> HttpResponse:
    """Drop a task, or put one back that was dropped or sent to review."""
    found = _task(request, task_id)
    try:
        if request.POST.get("action") == "drop":
            task_drop(task=found, by=request.user)
            messages.success(request, "Dropped. Nobody gets this task any more.")
        else:
            task_reopen(task=found, by=request.user)
            messages.success(request, "Put back.")
    except Conflict as error:
        messages.warning(request, error.message)
    return redirect("labeling:rating_task", request.project.slug, task_id)


@require_POST
@project_page(STAFF)
def pairs(request: Request) -> HttpResponse:
    """Make pairs for datasets of what people graded and ranked."""
    made = pairs_make(project=request.project, by=request.user)
    messages.success(
        request,
        f"{made.n_created:,} pairs made and {made.n_changed:,} changed, from {made.n_tasks:,} "
        f"finished tasks; on {made.n_undecided:,} pairs people do not agree.",
    )
    return redirect("labeling:rating_tasks", request.project.slug)


def _task(request: Request, task_id: int) -> Task:
    try:
        return task_get(project=request.project, task=task_id)
    except Missing as error:
        raise Http404(error.message) from error


def _task_row(result: TaskResult) -> dict[str, Any]:
    """A ranking's mean is ½ by definition and says nothing."""
    ranking = result.task.kind == Task.Kind.RANK
    return {
        "task": result.task,
        "prompt": excerpt(result.task.prompt.brief),
        "tone": TONES.get(result.task.state, ""),
        "spread": result.spread,
        "mean": None if ranking else result.spread.mean,
    }


def _answers(
    cards: list[Any], items: list[Any], result: TaskResult, scales: RaterScales
) -> list[dict[str, Any]]:
    means = result.spread.means or (None,) * len(items)
    return [
        {
            "card": card,
            "response": item.response,
            "mean": mean,
            "z": scales.z.get((item.task_id, item.position)),
        }
        for card, item, mean in zip(cards, items, means, strict=True)
    ]
