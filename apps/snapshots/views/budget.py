"""A label budget: what it buys by each way of asking, when, and the replay that compares them."""

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.snapshots.forms import BudgetForm
from apps.snapshots.models import SelectionReplay
from apps.snapshots.screens import budget as screen
from apps.snapshots.selectors.selection import replays_of
from apps.snapshots.services.budget import Wanted, budget_of
from apps.snapshots.services.selection import selection_replay_start, voted_pairs
from measures.depth import POINTS
from measures.selection import SEEDS


@require_safe
@project_page(STAFF)
def budget(request: Request) -> HttpResponse:
    """The plan of what is stated in the address."""
    form = BudgetForm(request.GET if any(request.GET.values()) else None)
    form.is_valid()
    try:
        found = budget_of(project=request.project, wanted=form.wanted())
    except DomainError as error:
        form.add_error(error.field, error.message)
        found = budget_of(project=request.project, wanted=Wanted())
    replays = [
        screen.depth_page(row) for row in replays_of(request.project, SelectionReplay.Kind.DEPTH)
    ]
    context = {
        "page_title": "Label budget",
        "nav": "ready",
        "form": form,
        "replays": replays,
        "under_way": any(one.row.ended_at is None for one in replays),
        "problem": voted_pairs(request.project).problem[1],
        "seeds": SEEDS,
        "most_votes": POINTS[-1],
        "query": request.GET.urlencode(),
    } | (screen.page(found) if not form.errors else {})
    status = 422 if form.errors else 200
    return render(request, "snapshots/budget.html", context, status=status)


@require_POST
@project_page(STAFF)
def depth_start(request: Request) -> HttpResponse:
    try:
        selection_replay_start(
            project=request.project, by=request.user, kind=SelectionReplay.Kind.DEPTH
        )
    except DomainError as error:
        messages.error(request, error.message)
    else:
        messages.success(request, "The replay is queued; a worker takes it up within seconds.")
    back = redirect("snapshots:budget", request.project.slug)
    if query := QueryDict(request.POST.get("query", "")).urlencode():
        back["Location"] += f"?{query}"
    return back
