"""One's own account: name, theme, password, API tokens; signing in and out."""

from contextlib import suppress
from typing import Any

from allauth.account.utils import get_next_redirect_url
from allauth.account.views import LoginView, PasswordResetFromKeyView
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import logout_then_login, redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse, reverse_lazy
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from apps.accounts import services
from apps.accounts.context import THEMES
from apps.accounts.forms import PasswordForm, ProfileForm, SignInForm, TokenForm
from apps.accounts.middleware import note_session
from apps.accounts.models import ApiToken
from apps.accounts.oidc import is_linked, provider_url
from apps.accounts.permissions import ANNOTATOR, project_page
from apps.accounts.reauthentication import fresh_sign_in_required
from apps.accounts.selectors import (
    has_second_factor,
    memberships_of,
    site_has_people,
    tokens_of,
)
from apps.common import registry
from apps.common.http import Request


def _page(request: Request, status: int = 200, **context: Any) -> HttpResponse:
    """The account page; forms that were not sent are fresh."""
    user = request.user
    forms = {
        "profile_form": lambda: ProfileForm(instance=user),
        "password_form": lambda: PasswordForm(user),
        "token_form": lambda: TokenForm(),
    }
    context |= {name: make() for name, make in forms.items() if name not in context}
    context |= {
        "tokens": tokens_of(user),
        "themes": THEMES,
        "memberships": memberships_of(user),
        "has_second_factor": has_second_factor(user),
        "provider": settings.OIDC_NAME if settings.OIDC_ISSUER else "",
        "is_connected": is_linked(user),
        "page_title": gettext("Your account"),
        "nav": "account",
    }
    return render(request, "accounts/account.html", context, status=status)


@require_safe
def account(request: Request) -> HttpResponse:
    return _page(request)


def _new_email(request: Request) -> bool:
    """A link for a new password would go there."""
    return request.POST.get("email", "").strip().lower() != request.user.email


@require_POST
@fresh_sign_in_required(when=_new_email)
def profile(request: Request) -> HttpResponse:
    form = ProfileForm(request.POST, instance=request.user)
    if not form.is_valid():
        request.user.refresh_from_db()
        return _page(request, 422, profile_form=form)
    form.save()
    services.profile_changed(user=request.user, fields=form.changed_data)
    messages.success(request, gettext("Saved."))
    return redirect("accounts:account")


@require_POST
def theme(request: Request) -> HttpResponse:
    chosen = request.POST.get("theme", "")
    if chosen in THEMES:
        request.user.theme = chosen
        request.user.save(update_fields=["theme"])
    if request.htmx:
        return HttpResponse(status=204)
    target = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(target, {request.get_host()}, request.is_secure())
    return redirect(target if safe else "home")


@require_POST
@sensitive_post_parameters()
def password(request: Request) -> HttpResponse:
    form = PasswordForm(request.user, request.POST)
    if not form.is_valid():
        return _page(request, 422, password_form=form)
    with transaction.atomic():
        form.save()
        n_tokens = services.password_changed(
            user=request.user, by=request.user, session_key=request.session.session_key
        )
    services.session_forget(session_key=request.session.session_key)
    update_session_auth_hash(request, request.user)
    note_session(request, request.user)
    messages.success(
        request,
        gettext("Your password is changed. Other browsers are signed out.")
        + (" " + gettext("Your API tokens are revoked: make new ones.") if n_tokens else ""),
    )
    return redirect("accounts:account")


@never_cache
@require_POST
def token_create(request: Request) -> HttpResponse:
    """Shows the token in this answer and never again."""
    form = TokenForm(request.POST)
    if not form.is_valid():
        return _page(request, 422, token_form=form)
    _, text = services.token_create(user=request.user, **form.cleaned_data)
    return _page(request, new_token=text)


@require_POST
def token_revoke(request: Request, token_id: str) -> HttpResponse:
    token = get_object_or_404(ApiToken, pk=token_id, user=request.user)
    services.token_revoke(token=token, by=request.user)
    messages.success(request, gettext("The token “%(name)s” is revoked.") % {"name": token.name})
    return redirect("accounts:account")


# Signing in and out, and where one lands.


@method_decorator(login_not_required, name="dispatch")
class SignIn(LoginView):
    template_name = "accounts/sign_in.html"
    form_class = SignInForm

    def dispatch(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        with suppress(DatabaseError):  # without a database the page still says what it is
            if request.method == "GET" and not site_has_people():
                return redirect("accounts:set_up")
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        target = get_next_redirect_url(self.request)
        query = {"next": target} if target else {}
        return context | {
            "provider": settings.OIDC_NAME,
            "provider_url": provider_url(**query) if settings.OIDC_ISSUER else "",
            "only_provider": settings.OIDC_ONLY,
        }


class PasswordFromLink(PasswordResetFromKeyView):
    """A new password by a link; who knew the old one has tokens and sessions no longer."""

    success_url = reverse_lazy("accounts:sign_in")

    def form_valid(self, form: Any) -> HttpResponse:
        with transaction.atomic():
            response = super().form_valid(form)
            services.password_changed(user=self.reset_user, by=self.reset_user)
        messages.success(self.request, gettext("Your password is changed. Sign in with it."))
        return response


@login_not_required
def admin_sign_in(request: Request, extra_context: object = None) -> HttpResponse:
    """Django's admin has no form of its own: one door, one limit on failed tries."""
    if request.user.is_authenticated:
        raise PermissionDenied("Django's admin is for superusers.")
    return redirect_to_login(request.GET.get("next", reverse("admin:index")))


@require_POST
def sign_out(request: Request) -> HttpResponse:
    services.audit_record(action="user.signed_out", actor=request.user, subject=request.user)
    services.session_forget(session_key=request.session.session_key)
    return logout_then_login(request)


@require_safe
def home(request: Request) -> HttpResponse:
    """The landing page of one's role in the project used last, or the list of projects.

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
    return redirect("accounts:projects")


@require_safe
@project_page()
def project(request: Request) -> HttpResponse:
    """Where the project switcher leads: the landing page of one's role there."""
    if request.session.get("project") != request.project.slug:
        request.session["project"] = request.project.slug
    return redirect(registry.home_of_project(), request.project.slug)
