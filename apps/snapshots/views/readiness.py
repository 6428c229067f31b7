"""The page of data readiness."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.permissions import READERS, STAFF, project_page
from apps.common.http import Request
from apps.snapshots.screens import readiness as screen
from apps.snapshots.services.readiness import StatedForm, gather
from measures.advice import Facts, advise


@require_safe
@project_page(READERS)
def ready(request: Request) -> HttpResponse:
    """Advice from the project's numbers and from what is stated in the address."""
    form = StatedForm(request.GET)
    found, stated = gather(request.project), form.stated()
    facts = Facts(**found.facts, **stated)
    context = {
        "page_title": "Data readiness",
        "nav": "ready",
        "form": form,
        "any_stated": bool(stated),
        "may_open_runs": request.role in STAFF,
        "methods": screen.method_rows(found.runs),
    } | screen.page(facts, advise(facts), found)
    return render(request, "snapshots/readiness.html", context)
