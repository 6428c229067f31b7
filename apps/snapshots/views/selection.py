"""Would choosing which pairs people label next save votes here? A replay of the project's votes."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import READERS, STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.snapshots.forms import SelectionForm
from apps.snapshots.screens.selection import page_of
from apps.snapshots.selectors.selection import replays_of
from apps.snapshots.services.selection import selection_replay_start, voted_pairs
from measures.selection import LEAST_GROUPS, LEAST_PAIRS, MOST_VOTES, SEEDS


@require_safe
@project_page(READERS)
def selection(request: Request) -> HttpResponse:
    replays = [page_of(row) for row in replays_of(request.project, "selection")]
    found = voted_pairs(request.project)
    context = {
        "page_title": "Selection replay",
        "nav": "ready",
        "form": SelectionForm(),
        "n": found.n,
        "least": LEAST_PAIRS,
        "least_groups": LEAST_GROUPS,
        "seeds": SEEDS,
        "most_votes": MOST_VOTES,
        "under_way": any(one.row.ended_at is None for one in replays),
        "may_start": request.role in STAFF,
        "may_plan": request.role in STAFF,
        "problem": found.problem[1],
        "replays": replays,
    }
    return render(request, "snapshots/selection.html", context)


@require_POST
@project_page(STAFF)
def selection_start(request: Request) -> HttpResponse:
    form = SelectionForm(request.POST)
    if not form.is_valid():
        messages.error(request, "Choose one of the limits.")
    else:
        try:
            selection_replay_start(project=request.project, by=request.user, **form.cleaned_data)
        except DomainError as error:
            messages.error(request, error.message)
        else:
            messages.success(request, "The replay is queued; a worker takes it up within seconds.")
    return redirect("snapshots:selection", request.project.slug)
