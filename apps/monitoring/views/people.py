"""People and data of a project: every rule with its newest figure, and what is chosen of it."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.monitoring.forms import AlarmsForm
from apps.monitoring.screens.people import rule_rows
from apps.monitoring.selectors.people import project_rules
from apps.monitoring.services.people import alarms_change


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def people(request: Request) -> HttpResponse:
    found = project_rules(request.project)
    form = AlarmsForm(request.POST if request.method == "POST" else None, rules=found.rules)
    if request.method == "POST" and form.is_valid():
        try:
            alarms_change(project=request.project, user=request.user, changes=form.changes())
        except DomainError as error:
            form.add_error(None, error.message)
        else:
            messages.success(request, "Saved. It counts from the next look on.")
            return redirect("monitoring:people", request.project.slug)
    context = {
        "form": form,
        "rows": rule_rows(found.rules, form),
        "looked_at": found.looked_at,
        "page_title": "People and data",
        "nav": "monitoring",
        "tab": "people",
    }
    return render(request, "monitoring/people.html", context, status=422 if form.errors else 200)
