"""The guidelines: read and acknowledged by all who label, published by admins."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import ADMIN, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.labeling import selectors, services
from apps.labeling.forms import GuidelineForm
from apps.labeling.models import Guideline
from apps.labeling.rendering import text_html
from apps.labeling.screens import annotators, label
from apps.labeling.screens.label import changed_lines
from apps.labeling.services import LABELERS
from apps.labeling.views.label import label_url

PREVIEW, PUBLISH = "preview", "publish"


@require_safe
@project_page()
def guidelines(request: Request) -> HttpResponse:
    """The current version, or `?version=N`."""
    versions = list(selectors.guidelines_list(project=request.project))
    wanted = request.GET.get("version", "")
    shown = next(
        (g for g in versions if str(g.version) == wanted), versions[0] if versions else None
    )
    context = {
        "page_title": gettext("Guidelines"),
        "nav": "guidelines",
        "versions": versions,
        "shown": shown,
        "html": text_html(shown.body) if shown else "",
        "may_publish": request.role == ADMIN,
    }
    if request.htmx:
        return render(request, "labeling/_guideline.html", context)
    return render(request, "labeling/guidelines.html", context | _around(request, shown, versions))


def _around(request: Request, shown: Guideline | None, versions: list[Guideline]) -> dict[str, Any]:
    """What only the page has: what this version changed, who has read it, and whether I must."""
    before = next((g for g in versions if shown and g.version < shown.version), None)
    more: dict[str, Any] = {
        "before": before,
        "changes": label.changes_since(before, shown) if shown else [],
    }
    if request.role in LABELERS:
        status = services.labeling_status(project=request.project, annotator=request.user)
        more["due"] = status.eligibility.guideline_due is not None
        more["read"] = selectors.guideline_read(project=request.project, user=request.user)
    if request.role == ADMIN:
        more["readers"] = annotators.readers_of(project=request.project)
    return more


def _published(version: Guideline, request: Request) -> str:
    readers = annotators.readers_of(project=request.project)
    said = f"Version {version.version} is what annotators see now."
    if not (version.is_major and readers.asked and readers.n_waiting):
        return said
    people = "1 person" if readers.n_waiting == 1 else f"{readers.n_waiting:,} people"
    return f"{said} {people} must read it before their next label."


@require_POST
@project_page(LABELERS)
def acknowledge(request: Request) -> HttpResponse:
    """I have read this version; then on with the work."""
    version = request.POST.get("version", "")
    try:
        services.guideline_acknowledge(
            project=request.project,
            user=request.user,
            version=int(version) if version.isdecimal() and len(version) < 9 else 0,
        )
    except DomainError as error:
        messages.warning(request, error.message)
    return redirect(_work_url(request))


def _work_url(request: Request) -> str:
    """Where they came from: the texts to write, or the queue of judgements."""
    if request.POST.get("back_to") == "write":
        return reverse("labeling:write", args=[request.project.slug])
    return label_url(request)


@require_POST
@project_page(LABELERS)
def consent(request: Request) -> HttpResponse:
    """I agree to what my answers are used for; then on with the work."""
    version = request.POST.get("version", "")
    try:
        services.consent_give(
            project=request.project,
            user=request.user,
            version=int(version) if version.isdecimal() and len(version) < 9 else -1,
        )
    except DomainError as error:
        messages.warning(request, error.message)
    return redirect(_work_url(request))


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(frozenset({ADMIN}))
def guideline_edit(request: Request) -> HttpResponse:
    """Write a new version, look at it as annotators will, publish it."""
    current = selectors.guideline_current(project=request.project)
    chosen = request.GET.get("template", "")
    body = selectors.guideline_template(chosen) if chosen else current.body if current else ""
    form = GuidelineForm(request.POST or None, initial={"body": body})
    valid = request.method == "POST" and form.is_valid()
    if valid and request.POST.get("action") != PREVIEW:
        try:
            published = services.guideline_publish(
                project=request.project, by=request.user, **form.cleaned_data
            )
        except DomainError as error:
            form.add_error(error.field, error.message)
        else:
            messages.success(request, _published(published, request))
            return redirect("labeling:guidelines", request.project.slug)
    context = {
        "page_title": "Edit guidelines",
        "nav": "guidelines",
        "form": form,
        "current": current,
        "readers": annotators.readers_of(project=request.project),
        "next_version": current.version + 1 if current else 1,
        "templates": selectors.GUIDELINE_TEMPLATES,
        "chosen": chosen,
    }
    if valid and not form.errors:
        body = form.cleaned_data["body"]
        context["preview"] = text_html(body)
        context["changes"] = changed_lines(current.body if current else "", body)
        context["is_major"] = form.cleaned_data["is_major"]
    return render(
        request, "labeling/guideline_edit.html", context, status=422 if form.errors else 200
    )
