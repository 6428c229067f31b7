"""Projects: the list, a new one, its name and description, archiving and deleting."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts import selectors, services
from apps.accounts.forms import NewProjectForm, ProjectForm
from apps.accounts.models import Project, Role
from apps.accounts.permissions import ADMIN, project_page
from apps.accounts.reauthentication import fresh_sign_in_required
from apps.common import registry
from apps.common.errors import DomainError
from apps.common.http import Request

ADMINS = frozenset({ADMIN})


@require_safe
def projects(request: Request) -> HttpResponse:
    memberships = selectors.memberships_of(request.user)
    facts = registry.project_facts([one.project for one in memberships])
    people = selectors.people_counts([one.project for one in memberships])
    context = {
        "rows": [
            (one, facts.get(one.project_id, {}), people.get(one.project_id, 0))
            for one in memberships
        ],
        "archived": selectors.archived_of(request.user),
        "may_create": selectors.may_create_projects(request.user),
        "page_title": gettext("Projects"),
        "nav": "projects",
    }
    return render(request, "accounts/projects.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def project_new(request: Request) -> HttpResponse:
    if not selectors.may_create_projects(request.user):
        raise PermissionDenied("An administrator of the site says who may create projects.")
    known = [
        one.project for one in selectors.memberships_of(request.user) if one.role == Role.ADMIN
    ]
    form = NewProjectForm(request.POST if request.method == "POST" else None, projects=known)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            project = services.project_create(
                name=data["name"],
                description=data["description"],
                copy_of=next((one for one in known if one.slug == data["copy_of"]), None),
                answers=form.answers(),
                first_steps=True,
                by=request.user,
            )
        except DomainError as error:
            form.add_error(error.field if error.field in form.fields else "name", error.message)
        else:
            request.session["project"] = project.slug
            return redirect(registry.setup_steps()[0].url_name, project.slug)
    context = {"form": form, "page_title": "New project", "nav": "projects"}
    return render(request, "accounts/project_new.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(ADMINS)
def project_settings(request: Request) -> HttpResponse:
    project = request.project
    stored = {"name": project.name, "description": project.description}
    form = ProjectForm(request.POST or None, initial=stored)
    if request.method == "POST" and form.is_valid():
        try:
            services.project_change(project=project, **form.cleaned_data, by=request.user)
        except DomainError as error:
            form.add_error(error.field or "name", error.message)
        else:
            messages.success(request, "Saved.")
            return redirect("accounts:project_settings", project.slug)
    context = {"form": form, "page_title": "Name, archive", "nav": "project_settings"}
    status = 422 if form.errors else 200
    return render(request, "accounts/project_settings.html", context, status=status)


@require_POST
@project_page(ADMINS)
def project_archive(request: Request) -> HttpResponse:
    services.project_archive(project=request.project, by=request.user)
    request.session.pop("project", None)
    messages.success(
        request, f"{request.project.name} is archived. It can be restored or deleted here."
    )
    return redirect("accounts:projects")


@require_POST
@project_page(ADMINS)
def project_set_up_done(request: Request) -> HttpResponse:
    services.project_set_up(project=request.project)
    return redirect("accounts:project", request.project.slug)


def _archived(request: Request, slug: str) -> Project:
    return get_object_or_404(selectors.archived_of(request.user), slug=slug)


@require_POST
def project_restore(request: Request, slug: str) -> HttpResponse:
    project = _archived(request, slug)
    services.project_restore(project=project, by=request.user)
    return redirect("accounts:project", project.slug)


@require_http_methods(["GET", "HEAD", "POST"])
def project_delete(request: Request, slug: str) -> HttpResponse:
    project = _archived(request, slug)
    context: dict[str, Any] = {"project": project, "page_title": f"Delete {project.name}"}
    context["facts"] = registry.project_facts([project]).get(project.pk, {})
    context["exports"] = {name: words for name, (words, _) in registry.last_exports().items()}
    if request.method == "POST":
        try:
            services.project_delete(
                project=project, typed=request.POST.get("typed", ""), by=request.user
            )
        except DomainError as error:
            context["error"] = error.message
            return render(request, "accounts/project_delete.html", context, status=422)
        messages.success(request, f"{project.name} is deleted.")
        return redirect("accounts:projects")
    return render(request, "accounts/project_delete.html", context)


@require_safe
@fresh_sign_in_required
def project_export(request: Request, slug: str, name: str) -> HttpResponseBase:
    """A last file of a project that is about to be deleted."""
    project = _archived(request, slug)
    if name not in registry.last_exports():
        raise Http404
    request.project = project  # for the audit line of the download
    response: HttpResponseBase = registry.last_exports()[name][1](project)
    return response
