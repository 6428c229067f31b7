"""A project's people and its audit log, for its admins."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from apps.accounts import selectors, services
from apps.accounts.forms import AddPersonForm, NewPersonForm, RoleForm
from apps.accounts.models import Membership, Role
from apps.accounts.permissions import ADMIN, project_page
from apps.common.errors import DomainError
from apps.common.http import Request

ADMINS = frozenset({ADMIN})
PER_PAGE = 50
WHO = {"imported": True, "everybody": None}  # otherwise those who can sign in


def _page(request: Request, status: int = 200, **context: Any) -> HttpResponse:
    search, role = request.GET.get("q", "").strip(), request.GET.get("role", "")
    who = request.GET.get("who", "")
    rows = selectors.people_list(
        request.project, search=search, role=role, imported=WHO.get(who, False)
    )
    context = {
        "page": Paginator(rows, PER_PAGE).get_page(request.GET.get("page")),
        "search": search,
        "chosen_role": role,
        "who": who,
        "roles": Role.choices,
        "add_form": AddPersonForm(),
        "new_form": NewPersonForm(),
        "page_title": "People",
        "nav": "people",
    } | context
    return render(request, "accounts/people.html", context, status=status)


@require_safe
@project_page(ADMINS)
def people(request: Request) -> HttpResponse:
    return _page(request)


@require_POST
@project_page(ADMINS)
def person_add(request: Request) -> HttpResponse:
    form = AddPersonForm(request.POST)
    if not form.is_valid():
        return _page(request, 422, add_form=form)
    try:
        services.membership_set(
            project=request.project,
            user=form.person,
            role=form.cleaned_data["role"],
            by=request.user,
        )
    except DomainError as error:
        form.add_error(error.field, error.message)
        return _page(request, 422, add_form=form)
    messages.success(request, f"{form.person} was added.")
    return redirect("accounts:people", request.project.slug)


@never_cache
@require_POST
@project_page(ADMINS)
def person_create(request: Request) -> HttpResponse:
    """Shows the temporary password in this answer and never again."""
    form = NewPersonForm(request.POST)
    if not form.is_valid():
        return _page(request, 422, new_form=form)
    data = form.cleaned_data
    try:
        with transaction.atomic():
            user, password = services.user_create(
                username=data["new_username"],
                display_name=data["display_name"],
                email=data["email"],
                by=request.user,
                project=request.project,
            )
            services.membership_set(
                project=request.project, user=user, role=data["new_role"], by=request.user
            )
    except DomainError as error:
        form.add_error("email" if error.field == "email" else "new_username", error.message)
        return _page(request, 422, new_form=form)
    return _page(request, created=user, created_password=password)


def _person(request: Request, user_id: int) -> Membership:
    rows = Membership.objects.select_related("user", "project")
    return get_object_or_404(rows, project=request.project, user_id=user_id)


@require_safe
@project_page(ADMINS)
def person(request: Request, user_id: int) -> HttpResponse:
    return _person_page(request, _person(request, user_id))


def _person_page(
    request: Request, membership: Membership, form: RoleForm | None = None
) -> HttpResponse:
    context = {
        "membership": membership,
        "role_form": form or RoleForm(initial={"role": membership.role}),
        "page_title": str(membership.user),
        "nav": "people",
    }
    return render(request, "accounts/person.html", context, status=422 if form else 200)


@require_POST
@project_page(ADMINS)
def person_role(request: Request, user_id: int) -> HttpResponse:
    membership = _person(request, user_id)
    form = RoleForm(request.POST)
    if not form.is_valid():
        return _person_page(request, membership, form)
    try:
        services.membership_set(
            project=request.project,
            user=membership.user,
            role=form.cleaned_data["role"],
            by=request.user,
        )
    except DomainError as error:
        form.add_error("role", error.message)
        return _person_page(request, membership, form)
    messages.success(request, f"{membership.user}'s role is changed.")
    return redirect("accounts:people", request.project.slug)


@require_POST
@project_page(ADMINS)
def person_remove(request: Request, user_id: int) -> HttpResponse:
    membership = _person(request, user_id)
    try:
        services.membership_remove(project=request.project, user=membership.user, by=request.user)
    except DomainError as error:
        form = RoleForm({"role": membership.role})
        form.add_error(None, error.message)
        return _person_page(request, membership, form)
    messages.success(request, f"{membership.user} is no longer in this project.")
    return redirect("accounts:people", request.project.slug)


@require_safe
@project_page(ADMINS)
def audit_log(request: Request) -> HttpResponse:
    search, action = request.GET.get("q", "").strip(), request.GET.get("action", "")
    rows = selectors.audit_list(request.project, search=search, action=action)
    context = {
        "page": Paginator(rows, PER_PAGE).get_page(request.GET.get("page")),
        "search": search,
        "action": action,
        "actions": selectors.audit_actions(request.project),
        "page_title": "Audit log",
        "nav": "audit_log",
    }
    return render(request, "accounts/audit_log.html", context)
