"""Signing in and out, and where one lands."""

from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LoginView, logout_then_login, redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from apps.accounts import services, throttle
from apps.accounts.forms import SignInForm
from apps.accounts.permissions import ANNOTATOR, project_page
from apps.accounts.selectors import memberships_of
from apps.common import registry
from apps.common.addresses import client_address
from apps.common.http import Request


class SignIn(LoginView):
    template_name = "accounts/sign_in.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True

    def form_valid(self, form: SignInForm) -> HttpResponse:
        response = super().form_valid(form)
        user = form.get_user()
        throttle.device_remember(self.request, response, form.cleaned_data["username"])
        services.audit_record(
            action="user.signed_in",
            actor=user,
            subject=user.username,
            details={"address": client_address(self.request)},
        )
        return response


@login_not_required
def admin_sign_in(request: Request, extra_context: object = None) -> HttpResponse:
    """Django's admin has no form of its own: one door, one limit on failed tries."""
    if request.user.is_authenticated:
        raise PermissionDenied("Django's admin is for superusers.")
    return redirect_to_login(request.GET.get("next", reverse("admin:index")))


@require_POST
def sign_out(request: Request) -> HttpResponse:
    services.audit_record(
        action="user.signed_out", actor=request.user, subject=request.user.username
    )
    return logout_then_login(request)


@require_safe
def home(request: Request) -> HttpResponse:
    """The landing page of one's role in the project used last, or a choice of projects.

    Who only annotates, and in more than one project, lands on their work in all of them.
    """
    memberships = memberships_of(request.user)
    if len(memberships) > 1 and {membership.role for membership in memberships} == {ANNOTATOR}:
        overview = registry.overview_of([ANNOTATOR])
        if overview:
            return redirect(overview)
    last = request.session.get("project")
    for membership in memberships:
        if len(memberships) == 1 or membership.project.slug == last:
            return redirect("accounts:project", membership.project.slug)
    return render(
        request, "accounts/home.html", {"memberships": memberships, "page_title": "Projects"}
    )


@require_safe
@project_page()
def project(request: Request) -> HttpResponse:
    """Where the project switcher leads: the landing page of one's role there."""
    if request.session.get("project") != request.project.slug:
        request.session["project"] = request.project.slug
    return redirect(registry.home_of(request.role), request.project.slug)
