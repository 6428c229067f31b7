"""The guidelines: read by all who label, published by admins."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from apps.accounts.permissions import ADMIN, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.labeling import selectors, services
from apps.labeling.forms import GuidelineForm
from apps.labeling.rendering import text_html


@require_GET
@project_page()
def guidelines(request: Request) -> HttpResponse:
    """The current version, or `?version=N`."""
    versions = list(selectors.guidelines_list(project=request.project))
    wanted = request.GET.get("version", "")
    shown = next(
        (g for g in versions if str(g.version) == wanted), versions[0] if versions else None
    )
    context = {
        "page_title": "Guidelines",
        "nav": "guidelines",
        "versions": versions,
        "shown": shown,
        "html": text_html(shown.body) if shown else "",
        "may_publish": request.role == ADMIN,
    }
    part = "labeling/_guideline.html" if request.htmx else "labeling/guidelines.html"
    return render(request, part, context)


@require_http_methods(["GET", "POST"])
@project_page(frozenset({ADMIN}))
def guideline_edit(request: Request) -> HttpResponse:
    current = selectors.guideline_current(project=request.project)
    form = GuidelineForm(request.POST or None, initial={"body": current.body if current else ""})
    if request.method == "POST" and form.is_valid():
        try:
            published = services.guideline_publish(
                project=request.project, by=request.user, **form.cleaned_data
            )
        except DomainError as error:
            form.add_error(error.field, error.message)
        else:
            messages.success(request, f"Version {published.version} is what annotators see now.")
            return redirect("labeling:guidelines", request.project.slug)
    context = {"page_title": "Edit guidelines", "nav": "guidelines", "form": form}
    return render(
        request, "labeling/guideline_edit.html", context, status=422 if form.errors else 200
    )
