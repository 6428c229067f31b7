"""A run's name, note and tags; archiving and deleting it."""

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.training import selectors, services
from apps.training.selectors import pages
from apps.training.services.housekeeping import LONGEST_NAME, LONGEST_NOTE


class DescribeForm(forms.Form):
    name = forms.CharField(max_length=LONGEST_NAME, label="Name")
    tags = forms.CharField(
        required=False,
        max_length=1_000,
        label="Tags",
        help_text="With commas between them, such as: baseline, for the paper.",
        widget=forms.TextInput({"list": "known-tags"}),
    )
    note = forms.CharField(
        required=False,
        max_length=LONGEST_NOTE,
        label="Note",
        help_text="What you expected, what came of it, what to try next. The search reads it.",
        widget=forms.Textarea({"rows": 5}),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def run_edit(request: Request, run_id: str) -> HttpResponse:
    """GET shows the page; POST does its `action`: save, archive, unarchive or delete."""
    run = selectors.run_get(project=request.project, run_id=run_id)
    action = request.POST.get("action", "save")
    initial = {"name": run.name, "tags": ", ".join(run.tags), "note": run.note}
    saving = request.method == "POST" and action == "save"
    form = DescribeForm(request.POST if saving else None, initial=initial)
    typed_error = ""
    try:
        if saving and form.is_valid():
            data = form.cleaned_data
            services.run_describe(
                run=run,
                name=data["name"],
                note=data["note"],
                tags=data["tags"].split(","),
                user=request.user,
            )
            messages.success(request, "Saved.")
            return redirect("training:run", request.project.slug, run.pk)
        if request.method == "POST" and action in ("archive", "unarchive"):
            services.run_archive(run=run, archived=action == "archive", user=request.user)
            where = "archived" if action == "archive" else "in the list of runs again"
            messages.success(request, f"{run.name} is {where}.")
            return redirect("training:runs", request.project.slug)
        if request.method == "POST" and action == "delete":
            services.run_delete(run=run, typed=request.POST.get("typed", ""), user=request.user)
            messages.success(request, f"{run.name} is deleted.")
            return redirect("training:runs", request.project.slug)
    except DomainError as error:
        if saving:
            form.add_error(error.field if error.field in form.fields else None, error.message)
        else:
            typed_error = error.message
    context = {
        "run": run,
        "form": form,
        "known_tags": pages.tags_used(request.project),
        "uses": services.uses_of(run) if not run.is_live else [],
        "checks": run.checks.count(),
        "typed_error": typed_error,
        "page_title": f"Edit {run.name}",
        "nav": "runs",
    }
    status = 422 if form.errors or typed_error else 200
    return render(request, "training/edit.html", context, status=status)
