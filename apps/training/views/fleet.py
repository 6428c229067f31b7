"""The fleet: machines, queues by machine class, the order of those that wait, the quota; workers
that are drained."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import ADMIN, STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.training import selectors, services
from apps.training.forms.needs import QuotaForm
from apps.training.screens.fleet import fleet_view


@require_safe
@project_page(STAFF)
def fleet(request: Request) -> HttpResponse:
    view = fleet_view(request.project)
    context = {
        "fleet": view,
        "quota_form": QuotaForm(
            initial={"runs_at_once": view.quota.limit, "gpu_hours": view.quota.own_hours}
        ),
        "may_set_quota": request.role == ADMIN,
        "page_title": "Machines",
        "nav": "fleet",
    }
    template = "training/_fleet.html" if request.htmx else "training/fleet.html"
    return render(request, template, context)


@require_POST
@project_page(frozenset({ADMIN}))
def quota(request: Request) -> HttpResponse:
    form = QuotaForm(request.POST)
    if not form.is_valid():
        raise DomainError(
            "A quota is a whole number, or blank for none.",
            code="bad_quota",
            field=next(iter(form.errors)),
        )
    services.quota_set(project=request.project, user=request.user, **form.cleaned_data)
    limit, hours = form.cleaned_data["runs_at_once"], form.cleaned_data["gpu_hours"]
    words = f"at most {limit} at once" if limit else "as many as there are slots"
    more = f", {hours:,} GPU hours in 30 days" if hours else ""
    messages.success(request, f"Runs of this project: {words}{more}.")
    return redirect("training:fleet", request.project.slug)


@require_POST
@project_page(STAFF)
def drain(request: Request) -> HttpResponse:
    """`drain` is `yes`, or `no`: takes runs again."""
    name = request.POST.get("worker", "")
    if request.POST.get("drain") == "no":
        services.worker_resume(name=name, project=request.project, user=request.user)
        messages.success(request, f"{name} takes runs again.")
    else:
        services.worker_drain(name=name, project=request.project, user=request.user)
        messages.success(request, f"{name} finishes what it is at and takes no new run.")
    return redirect("training:fleet", request.project.slug)


@require_POST
@project_page(STAFF)
def run_move(request: Request, run_id: str) -> HttpResponse:
    run = selectors.run_get(project=request.project, run_id=run_id)
    services.run_move(run=run, to=request.POST.get("to", ""), user=request.user)
    return redirect("training:fleet", request.project.slug)


@require_POST
@project_page(STAFF)
def run_priority(request: Request, run_id: str) -> HttpResponse:
    run = selectors.run_get(project=request.project, run_id=run_id)
    given = request.POST.get("priority", "")
    run = services.run_prioritise(
        run=run, priority=int(given) if given.isdecimal() else -1, user=request.user
    )
    messages.success(request, f"{run.name} has {run.get_priority_display()} priority.")
    return redirect("training:fleet", request.project.slug)
