"""Who looked at the held-out splits of a dataset, how often that may be, and who signed."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import ADMIN, READERS, STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.snapshots.display import SPLIT_WORDS
from apps.snapshots.forms import LookBudgetForm, LookSignForm
from apps.snapshots.selectors import looks as selectors
from apps.snapshots.selectors.snapshots import snapshot_get
from apps.snapshots.services import looks as services

SHOWN = 100  # readings
ADMINS = frozenset({ADMIN})


@require_safe
@project_page(READERS)
def looks(request: Request, snapshot: str) -> HttpResponse:
    found = snapshot_get(project=request.project, snapshot_id=snapshot)
    context = {
        "snapshot": found,
        "looks": [
            (one, SPLIT_WORDS.get(one.split, one.split)) for one in selectors.looks_of(found)
        ],
        "accesses": selectors.accesses_of(found, most=SHOWN),
        "most": SHOWN,
        "may_sign": request.role in STAFF,
        "may_limit": request.role in ADMINS,
        "may_open_runs": request.role in STAFF,
        "people": selectors.staff_of(request.project, without=request.user),
        "page_title": f"Looks at {found.name}",
        "nav": "datasets",
    }
    return render(request, "snapshots/looks.html", context)


@require_POST
@project_page(STAFF)
def look_sign(request: Request, snapshot: str) -> HttpResponse:
    found = snapshot_get(project=request.project, snapshot_id=snapshot)
    form = LookSignForm(
        request.POST, people=selectors.staff_of(request.project, without=request.user)
    )
    if not form.is_valid():
        messages.error(request, "Say who may look, and why.")
    else:
        try:
            made = services.look_sign(snapshot=found, by=request.user, **form.cleaned_data)
        except DomainError as error:
            messages.error(request, error.message)
        else:
            messages.success(request, f"{made.person} may take look {made.look} at {made.split}.")
    return redirect("snapshots:looks", request.project.slug, found.pk)


@require_POST
@project_page(ADMINS)
def look_budget(request: Request, snapshot: str) -> HttpResponse:
    found = snapshot_get(project=request.project, snapshot_id=snapshot)
    form = LookBudgetForm(request.POST)
    if not form.is_valid():
        messages.error(request, "A budget is a whole number of looks, or empty for any number.")
    else:
        try:
            services.look_budget_set(snapshot=found, by=request.user, **form.cleaned_data)
        except DomainError as error:
            messages.error(request, error.message)
        else:
            messages.success(request, "Saved.")
    return redirect("snapshots:looks", request.project.slug, found.pk)
