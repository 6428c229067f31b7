"""Second factors: allauth's pages in our frame; each change after a sign-in of just now."""

from typing import Any

from allauth.mfa.base.views import AuthenticateView, IndexView
from allauth.mfa.recovery_codes.views import GenerateRecoveryCodesView, ViewRecoveryCodesView
from allauth.mfa.totp.views import ActivateTOTPView, DeactivateTOTPView
from allauth.mfa.webauthn.views import AddWebAuthnView, LoginWebAuthnView, RemoveWebAuthnView
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse_lazy
from django.utils.decorators import method_decorator
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache

from apps.accounts.reauthentication import fresh_sign_in_required, lacks_second_factor
from apps.common.refusals import log_denied


def _titled(title: Any) -> dict[str, Any]:
    return {"page_title": title, "nav": "account"}


@method_decorator(never_cache, name="dispatch")
class SecondFactors(IndexView):
    extra_context = _titled(_("Second factor"))

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"is_needed": lacks_second_factor(self.request)}


second_factors = SecondFactors.as_view()
app_add = fresh_sign_in_required(
    ActivateTOTPView.as_view(extra_context=_titled(_("Authenticator app")))
)
app_remove = fresh_sign_in_required(
    DeactivateTOTPView.as_view(extra_context=_titled(_("Remove the authenticator app")))
)
codes = fresh_sign_in_required(
    never_cache(ViewRecoveryCodesView.as_view(extra_context=_titled(_("Recovery codes"))))
)
codes_make = fresh_sign_in_required(
    GenerateRecoveryCodesView.as_view(extra_context=_titled(_("New recovery codes")))
)
passkey_add = fresh_sign_in_required(
    AddWebAuthnView.as_view(extra_context=_titled(_("Add a passkey")))
)
passkey_remove = fresh_sign_in_required(
    RemoveWebAuthnView.as_view(
        extra_context=_titled(_("Remove a passkey")), success_url=reverse_lazy("mfa_index")
    )
)
# After the password.
code_ask = AuthenticateView.as_view()


@method_decorator([never_cache, login_not_required], name="dispatch")
class PasskeySignIn(LoginWebAuthnView):
    """By a passkey alone, from the sign-in page."""

    def form_invalid(self, form: Any) -> HttpResponse:
        log_denied(self.request, 401, "sign-in: passkey refused")
        messages.error(self.request, gettext("This passkey opens no account here."))
        return redirect("accounts:sign_in")


passkey_sign_in = PasskeySignIn.as_view()
