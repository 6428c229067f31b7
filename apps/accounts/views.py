"""Pages of signing in and of one's own account."""

from django.contrib.auth.views import LoginView, logout_then_login
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET, require_POST

from apps.accounts.context import THEMES
from apps.accounts.models import Membership
from apps.accounts.permissions import project_page
from apps.common import registry
from apps.common.http import Request


class SignIn(LoginView):
    template_name = "accounts/sign_in.html"
    redirect_authenticated_user = True


@require_POST
def sign_out(request: Request) -> HttpResponse:
    return logout_then_login(request)


@require_GET
def home(request: Request) -> HttpResponse:
    """The landing page of one's role in the project used last, or a choice of projects."""
    memberships = list(
        Membership.objects.select_related("project")
        .filter(user=request.user, project__archived_at__isnull=True)
        .order_by("project__name")
    )
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
    request.session["project"] = request.project.slug
    return redirect(registry.home_of(request.role), request.project.slug)


@require_POST
def theme(request: Request) -> HttpResponse:
    wish = request.POST.get("theme", "")
    if wish in THEMES:
        request.user.theme = wish
        request.user.save(update_fields=["theme"])
    if request.htmx:
        return HttpResponse(status=204)
    target = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(target, {request.get_host()}, request.is_secure())
    return redirect(target if safe else "home")


@require_GET
def account(request: Request) -> HttpResponse:
    return render(
        request, "accounts/account.html", {"page_title": "Your account", "nav": "account"}
    )
