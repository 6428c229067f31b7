"""How somebody without an account comes in: as the first of the site, or by an invitation."""

from typing import Any

from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from apps.accounts import services
from apps.accounts.backends import signed_in
from apps.accounts.forms import NewPersonForm
from apps.accounts.models import User
from apps.accounts.oidc import provider_url
from apps.accounts.selectors import invitation_of, site_has_people
from apps.common.errors import DomainError
from apps.common.http import Request

BACKEND = "apps.accounts.backends.SessionBackend"


@login_not_required
@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def set_up(request: Request) -> HttpResponse:
    """Makes the first administrator; there is no such page once somebody can sign in."""
    if site_has_people():
        raise Http404("this site is set up")
    leave_out = ("display_name",)
    if request.method != "POST":
        form = NewPersonForm(initial={"token": request.GET.get("token", "")}, leave_out=leave_out)
        return render(request, "accounts/set_up.html", {"form": form})
    form = NewPersonForm(request.POST, leave_out=leave_out)
    if form.is_valid():
        try:
            user = services.first_admin_create(**form.cleaned_data)
        except DomainError as error:
            form.add_error(error.field if error.field in form.fields else None, error.message)
        else:
            return _come_in(request, user, "accounts:project_new")
    return render(request, "accounts/set_up.html", {"form": form}, status=422)


@login_not_required
@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def invitation(request: Request, token: str) -> HttpResponse:
    """Joins whoever is signed in, or makes an account for somebody new."""
    found = invitation_of(token)
    if found is None:
        return render(request, "accounts/invitation.html", status=404)
    context: dict[str, Any] = {"invitation": found, "project": found.project}
    if settings.OIDC_ISSUER:
        context |= {
            "provider": settings.OIDC_NAME,
            "provider_url": provider_url(next=request.path),
            "only_provider": settings.OIDC_ONLY,
        }
    if request.user.is_authenticated:
        if request.method != "POST":
            return render(request, "accounts/invitation.html", context)
        services.invitation_accept(token=token, user=request.user)
        return redirect("accounts:project", found.project.slug)
    if request.method != "POST":
        form = NewPersonForm(initial={"email": found.email}, leave_out=("token",))
        return render(request, "accounts/invitation.html", context | {"form": form})
    form = NewPersonForm(request.POST, leave_out=("token",))
    if form.is_valid():
        try:
            membership = services.invitation_join(token=token, **form.cleaned_data)
        except DomainError as error:
            form.add_error(error.field if error.field in form.fields else None, error.message)
        else:
            return _come_in(request, membership.user, "accounts:project", found.project.slug)
    return render(request, "accounts/invitation.html", context | {"form": form}, status=422)


def _come_in(request: Request, user: User, *where: str) -> HttpResponse:
    login(request, user, backend=BACKEND)
    response = redirect(*where)
    signed_in(request, response)
    return response
