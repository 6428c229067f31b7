"""Showing again who one is, and sending on what waited for it."""

from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.views import ReauthenticateWebAuthnView
from allauth.socialaccount.providers.openid_connect import views as openid_views
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils.decorators import method_decorator
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts import services
from apps.accounts.forms import CodeAgainForm, PasskeyAgainForm, PasswordAgainForm
from apps.accounts.oidc import CONNECTING, is_linked, provider_url
from apps.accounts.reauthentication import (
    fresh_sign_in_note,
    fresh_sign_in_required,
    is_fresh,
    sent_form,
)
from apps.common.http import Request
from apps.common.refusals import log_denied

_FORMS: dict[str, type[forms.Form]] = {
    "password": PasswordAgainForm,
    "code": CodeAgainForm,
    "passkey": PasskeyAgainForm,
}


@method_decorator([never_cache, sensitive_post_parameters()], name="dispatch")
class SignInAgain(ReauthenticateWebAuthnView):
    """By whichever of password, code, passkey and provider the person has."""

    template_name = "accounts/sign_in_again.html"
    refused: forms.Form | None = None

    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        if is_fresh(request):
            return redirect(self.get_success_url())
        return super().get(request, *args, **kwargs)

    def get_form_class(self) -> type[forms.Form]:
        return _FORMS.get(self._how, PasswordAgainForm)

    def form_valid(self, form: Any) -> HttpResponse:
        if self._how not in self._ways():
            return self.form_invalid(form)
        if self._how != "password":
            form.save()
        fresh_sign_in_note(self.request)
        services.sign_in_again_record(user=self.request.user, how=self._how)
        return redirect(self.get_success_url())

    def form_invalid(self, form: Any) -> HttpResponse:
        self.refused = form
        log_denied(self.request, 401, "sign-in again: refused")
        return self.render_to_response(self.get_context_data(), status=422)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        ways = self._ways()
        fresh = {name: made(user=self.request.user) for name, made in _FORMS.items()}
        if self.refused is not None:
            fresh[self._how] = self.refused
        target = self.get_success_url()
        context |= {f"{name}_form": fresh[name] for name in ways if name in fresh}
        context |= {
            "next": target,
            "minutes": settings.REAUTHENTICATE_MINUTES,
            "sent": sent_form(self.request),
            "provider": settings.OIDC_NAME,
            "provider_url": provider_url(process="redirect", next=target)
            if "provider" in ways
            else "",
        }
        return context

    @property
    def _how(self) -> str:
        return self.request.POST.get("how", "")

    def _ways(self) -> set[str]:
        user = self.request.user
        kinds = set(Authenticator.objects.filter(user=user).values_list("type", flat=True))
        passwords = not settings.OIDC_ONLY or user.is_superuser
        has = {
            "password": passwords and user.has_usable_password(),
            "code": bool(kinds & {Authenticator.Type.TOTP, Authenticator.Type.RECOVERY_CODES}),
            "passkey": Authenticator.Type.WEBAUTHN in kinds,
            "provider": is_linked(user),
        }
        return {name for name, it_has in has.items() if it_has}


@never_cache
@require_safe
def sent_form_page(request: Request) -> HttpResponse:
    """What was sent before the person was asked, to send it now or to go back to its page."""
    sent = sent_form(request)
    if sent is None:
        return redirect("home")
    shown = [(name.replace("_", " "), value) for name, value in sent["fields"] if value.strip()]
    context = {"sent": sent, "shown": shown, "page_title": gettext("Send it now?")}
    return render(request, "accounts/sent_form.html", context)


# The provider of OpenID Connect: allauth's pages, where it does not answer too.


@login_not_required
@require_http_methods(["GET", "HEAD"])
def provider_sign_in(request: Request, provider_id: str) -> HttpResponse:
    """What the provider is asked for is not for whoever wrote the address to choose."""
    query = request.GET.copy()
    for name in ("auth_params", "scope", "action"):
        query.pop(name, None)
    if query.get("process") == "redirect":
        query["auth_params"] = "prompt=login&max_age=0"
    request.GET = query
    return _asked(request, provider_id, openid_views.login)


@login_not_required
@require_http_methods(["GET", "HEAD"])
def provider_callback(request: Request, provider_id: str) -> HttpResponse:
    return _asked(request, provider_id, openid_views.callback)


def _asked(request: Request, provider_id: str, view: Any) -> HttpResponse:
    try:
        return view(request, provider_id)
    except (OSError, KeyError, ValueError) as error:  # it does not answer, or not as it should
        log_denied(request, 503, f"the sign-in provider: {error!r}")
        words = gettext("%(name)s does not answer now. Try again in a moment.")
        messages.error(request, words % {"name": settings.OIDC_NAME})
        signed_in = request.user.is_authenticated
        return redirect("accounts:account" if signed_in else "accounts:sign_in")


@require_POST
@fresh_sign_in_required
def provider_connect(request: Request) -> HttpResponse:
    """From the account page, on the way to connecting one's own account of the provider."""
    if not settings.OIDC_ISSUER:
        raise Http404("no provider")
    request.session[CONNECTING] = True
    return redirect(provider_url(process="connect"))


@require_POST
@fresh_sign_in_required
def provider_disconnect(request: Request) -> HttpResponse:
    """The same person signs in without the provider from now on; if there is no other way, not."""
    user = request.user
    if not is_linked(user):
        raise Http404("not connected")
    passkeys = Authenticator.objects.filter(user=user, type=Authenticator.Type.WEBAUTHN)
    if settings.OIDC_ONLY and not user.is_superuser:
        messages.error(request, gettext("This site lets people in by the provider alone."))
    elif not user.has_usable_password() and not passkeys.exists():
        words = gettext("You could not sign in any more: set a password or a passkey first.")
        messages.error(request, words)
    else:
        services.provider_disconnect(user=user)
        messages.success(request, gettext("Disconnected: it no longer opens your account."))
    return redirect("accounts:account")
