"""Rating tasks for readers: how the ratings lie, which prompts spread, who disagrees."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import ADMIN, READERS, project_page
from apps.common.errors import Conflict, Missing
from apps.common.http import Request
from apps.labeling.forms.ratings import LETTERS, TasksFilter
from apps.labeling.models import RatingTask
from apps.labeling.screens.rating_screen import cards_shown
from apps.labeling.selectors.ratings import (
    RaterScales,
    TaskResult,
    rater_scales,
    ratings_shown,
    responses_of,
    results_of,
    results_sorted,
    task_get,
    tasks_list,
)
from apps.labeling.services.ratings import Scale, rating_task_drop, rating_task_reopen
from apps.labeling.texts import excerpt

PER_PAGE = 50
TONES = {"rated": "good", "review": "warn", "dropped": "bad"}


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
    page = Paginator(listed, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": "Ratings",
        "nav": "ratings",
        "form": form,
        "filtered": any(wanted.get(name) for name in ("q", "kind", "state")),
        "page": page,
        "rows": [_row(result) for result in (page if sort else results_of(page))],
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
    shown = cards_shown(found.prompt.messages, [item.response.messages for item in items], scale)
    aside = found.state in (RatingTask.State.DROPPED, RatingTask.State.REVIEW)
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
        "may_drop": with_names and found.state != RatingTask.State.DROPPED,
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
            rating_task_drop(task=found, by=request.user)
            messages.success(request, "Dropped. Nobody gets this task any more.")
        else:
            rating_task_reopen(task=found, by=request.user)
            messages.success(request, "Put back.")
    except Conflict as error:
        messages.warning(request, error.message)
    return redirect("labeling:rating_task", request.project.slug, task_id)


def _task(request: Request, task_id: int) -> RatingTask:
    try:
        return task_get(project=request.project, task=task_id)
    except Missing as error:
        raise Http404(error.message) from error


def _row(result: TaskResult) -> dict[str, Any]:
    """A ranking's mean is ½ by definition and says nothing."""
    ranking = result.task.kind == RatingTask.Kind.RANKING
    return {
        "task": result.task,
        "prompt": excerpt(result.task.prompt.messages),
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
