"""A project's people and its audit log, for its admins."""

import json
from itertools import islice
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from apps.accounts import screens, selectors, services
from apps.accounts.forms import AuditFilter, InviteForm, RoleForm
from apps.accounts.models import AuditEvent, Invitation, Membership, Role
from apps.accounts.permissions import ADMIN, project_page
from apps.accounts.reauthentication import fresh_sign_in_required
from apps.accounts.services.mails import invitation_mail, mails_go_out
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines

ADMINS = frozenset({ADMIN})
PER_PAGE = 50
CSV = "text/csv; charset=utf-8"
_CHUNK = 500
_AUDIT_COLUMNS = ("at", "person", "action", "subject", "sentence", "details")
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
        "invite_form": InviteForm(),
        "invitations": selectors.invitations_open(request.project),
        "mails_go_out": mails_go_out(),
        "page_title": "People",
        "nav": "people",
    } | context
    return render(request, "accounts/people.html", context, status=status)


@require_safe
@project_page(ADMINS)
def people(request: Request) -> HttpResponse:
    return _page(request)


@never_cache
@require_POST
@project_page(ADMINS)
def invite(request: Request) -> HttpResponse:
    """Shows the links in this answer and never again; mails them where a mail server is set."""
    form = InviteForm(request.POST)
    if not form.is_valid():
        return _page(request, 422, invite_form=form)
    data, project = form.cleaned_data, request.project
    if not data["addresses"]:
        made, added = (
            [
                services.invitation_create(
                    project=project, role=data["role"], days=data["days"], by=request.user
                )
            ],
            [],
        )
    else:
        made, added = services.people_invite(project=project, by=request.user, **data)
    if added:
        names = ", ".join(map(str, added))
        messages.success(request, f"Added at once, since they have an account: {names}.")
    return _page(request, links=[_sent(request, row, token) for row, token in made])


def _sent(request: Request, invitation: Invitation, token: str) -> dict[str, Any]:
    """The link of an invitation for this page, and whether it went by mail."""
    path = reverse("accounts:invitation", args=[token])
    mailed = mails_go_out() and bool(invitation.email) and invitation_mail(invitation, path)
    return {
        "invitation": invitation,
        "url": request.build_absolute_uri(path),
        "mailed": mailed,
    }


@never_cache
@require_POST
@project_page(ADMINS)
def invitation_change(request: Request, invitation_id: str) -> HttpResponse:
    """Withdraws an invitation, or makes a new link in place of the old one."""
    invitation = get_object_or_404(request.project.invitations, pk=invitation_id)
    if request.POST.get("act") == "renew":
        token = services.invitation_renew(invitation=invitation, by=request.user)
        return _page(request, links=[_sent(request, invitation, token)])
    services.invitation_revoke(invitation=invitation, by=request.user)
    messages.success(request, "The invitation is withdrawn.")
    return redirect("accounts:people", request.project.slug)


def _person(request: Request, user_id: int) -> Membership:
    rows = Membership.objects.select_related("user", "project")
    return get_object_or_404(rows, project=request.project, user_id=user_id)


@require_safe
@project_page(ADMINS)
def person(request: Request, user_id: int) -> HttpResponse:
    return _person_page(request, _person(request, user_id))


def _person_page(
    request: Request, membership: Membership, form: RoleForm | None = None, link: str = ""
) -> HttpResponse:
    context = {
        "membership": membership,
        "link": link,
        "may_reset": membership.user.is_active
        and selectors.belongs_only_to_admin(membership.user, request.user),
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


@never_cache
@require_POST
@project_page(ADMINS)
def person_password(request: Request, user_id: int) -> HttpResponse:
    """Shows a link on which the person chooses a new password; for people of this admin alone."""
    membership = _person(request, user_id)
    if not selectors.belongs_only_to_admin(membership.user, request.user):
        raise PermissionDenied(
            "They are in projects that you do not administer: ask an administrator of the site."
        )
    path = services.password_link_make(
        user=membership.user, by=request.user, project=request.project
    )
    return _person_page(request, membership, link=request.build_absolute_uri(path))


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
    form = AuditFilter(request.GET)
    page = Paginator(_audit_rows(request, form), PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "lines": screens.audit_lines(request.project, page.object_list),
        "form": form,
        "actions": selectors.audit_actions(request.project),
        "page_title": "Audit log",
        "nav": "audit_log",
    }
    return render(request, "accounts/audit_log.html", context)


@require_safe
@project_page(ADMINS)
@fresh_sign_in_required
def audit_csv(request: Request) -> HttpResponseBase:
    """What the page's filter lets through, all of it."""
    events = _audit_rows(request, AuditFilter(request.GET)).iterator(chunk_size=_CHUNK)
    rows = (
        {
            "at": event.at.isoformat(),
            "person": event.actor.username if event.actor else "",
            "action": event.action,
            "subject": event.shown_subject,
            "sentence": line.words,
            "details": json.dumps(event.details, ensure_ascii=False),
        }
        for part in iter(lambda: list(islice(events, _CHUNK)), [])
        for event, line in zip(part, screens.audit_lines(request.project, part), strict=True)
    )
    response = StreamingHttpResponse(csv_lines(_AUDIT_COLUMNS, rows), content_type=CSV)
    response["Content-Disposition"] = f'attachment; filename="{request.project.slug}-audit-log.csv"'
    return response


def _audit_rows(request: Request, form: AuditFilter) -> QuerySet[AuditEvent]:
    """A field that cannot be read narrows nothing; the page marks it."""
    form.is_valid()
    given = form.cleaned_data
    return selectors.audit_list(
        request.project,
        search=given.get("q", ""),
        action=given.get("action", ""),
        since=given.get("since"),
        until=given.get("until"),
    )
