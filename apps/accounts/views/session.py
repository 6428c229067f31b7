"""Signing in and out, and where one lands."""

from django.contrib.auth.views import LoginView, logout_then_login
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from apps.accounts.forms import SignInForm
from apps.accounts.permissions import project_page
from apps.accounts.selectors import memberships_of
from apps.common import registry
from apps.common.http import Request


class SignIn(LoginView):
    template_name = "accounts/sign_in.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True


@require_POST
def sign_out(request: Request) -> HttpResponse:
    return logout_then_login(request)


@require_GET
def home(request: Request) -> HttpResponse:
    """The landing page of one's role in the project used last, or a choice of projects."""
    memberships = memberships_of(request.user)
    last = request.session.get("project")
    for membership in memberships:
        if len(memberships) == 1 or membership.project.slug == last:
            return redirect("accounts:project", membership.project.slug)
    return render(
        request, "accounts/home.html", {"memberships": memberships, "page_title": "Projects"}
    )


@require_GET
@project_page()
def project(request: Request) -> HttpResponse:
    """Where the project switcher leads: the landing page of one's role there."""
    if request.session.get("project") != request.project.slug:
        request.session["project"] = request.project.slug
    return redirect(registry.home_of(request.role), request.project.slug)
