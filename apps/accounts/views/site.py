"""Everybody of the site, for its administrators."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from apps.accounts import selectors, services
from apps.accounts.models import BrowserSession, User
from apps.accounts.reauthentication import fresh_sign_in_required
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.common.row_files import MEDIA, Export, download_response

PER_PAGE = 50
View = Callable[..., HttpResponseBase]


def site_admins_only(view: View) -> View:
    @wraps(view)
    def inner(request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_superuser:
            raise PermissionDenied("This page is for administrators of the site.")
        return view(request, *args, **kwargs)

    return inner


def _page(request: Request, status: int = 200, **context: object) -> HttpResponse:
    search, who = request.GET.get("q", "").strip(), request.GET.get("who", "")
    rows = selectors.people_of_site(search=search, who=who if who in {"active", "inactive"} else "")
    context |= {
        "page": Paginator(rows, PER_PAGE).get_page(request.GET.get("page")),
        "search": search,
        "who": who,
        "page_title": "People of this site",
        "nav": "site_people",
    }
    return render(request, "accounts/site_people.html", context, status=status)


@require_safe
@site_admins_only
def people(request: Request) -> HttpResponse:
    return _page(request)


@require_safe
@site_admins_only
@fresh_sign_in_required
def audit_log(request: Request) -> HttpResponseBase:
    """Every sealed event of the site with the hashes of the chain, as JSON Lines."""
    lines = services.audit_jsonl(by=request.user)
    return download_response(Export("audit-log.jsonl", MEDIA["jsonl"], lines))


@never_cache
@require_POST
@site_admins_only
@fresh_sign_in_required
def person(request: Request, user_id: int) -> HttpResponse:
    """What the pressed button says: deactivate, reactivate, rights, end the sessions, take lost
    second factors away, or a link for a new password, which is shown in this answer and never
    again."""
    user = get_object_or_404(User, pk=user_id, is_imported=False)
    act = request.POST.get("act", "")
    try:
        if act == "password":
            path = services.password_link_make(user=user, by=request.user)
            return _page(request, link=request.build_absolute_uri(path), link_for=user)
        if act in {"deactivate", "reactivate"}:
            services.user_activate(user=user, active=act == "reactivate", by=request.user)
        elif act == "sessions":
            ended = BrowserSession.objects.filter(user=user).exclude(
                session_key=request.session.session_key
            )
            n = services.sessions_end(sessions=ended, by=request.user)
            messages.success(request, f"{n} {'session' if n == 1 else 'sessions'} of {user} ended.")
            return redirect("accounts:site_people")
        elif act == "second_factor":
            services.second_factor_reset(user=user, by=request.user)
        elif act == "rights":
            services.user_rights_set(
                user=user,
                site_admin="site_admin" in request.POST,
                creates="creates" in request.POST,
                by=request.user,
            )
    except DomainError as error:
        messages.error(request, error.message)
    else:
        messages.success(request, f"{user} is changed.")
    return redirect("accounts:site_people")
