"""How a session becomes a person, and what allauth asks of this site."""

import smtplib
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.auth_backends import AuthenticationBackend
from allauth.account.authentication import get_authentication_records
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.accounts import identity, services, throttle
from apps.accounts.models import User
from apps.accounts.oidc import asked_second_factor, signed_in_at
from apps.accounts.reauthentication import SECOND_FACTOR_ELSEWHERE, fresh_sign_in_note
from apps.accounts.selectors import person_named
from apps.common.errors import Unavailable
from apps.common.http import client_address
from apps.common.refusals import log_denied
from apps.common.sealing import seal, unseal


class SessionBackend(AuthenticationBackend):
    """allauth's own (a name or an e-mail, whatever the case), with the row of a session's person
    read by a prepared statement."""

    def get_user(self, user_id: Any) -> User | None:
        user = identity.user_get(user_id)
        return user if user is not None and self.user_can_authenticate(user) else None


class AccountAdapter(DefaultAccountAdapter):
    """Nobody signs up: people come by invitation. Failed sign-ins are counted by `throttle`."""

    error_messages = DefaultAccountAdapter.error_messages | {
        "email_password_mismatch": _("The name or the password is wrong."),
        "username_password_mismatch": _("The name or the password is wrong."),
        "invalid_login": _("The name or the password is wrong."),
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def get_client_ip(self, request: HttpRequest) -> str:
        return client_address(request)

    def authenticate(self, request: HttpRequest, **credentials: Any) -> User | None:
        """The person, or None where the password is wrong or the account is deactivated."""
        login = credentials.get("username") or credentials.get("email", "")
        known = person_named(login)
        name = known.username if known else login
        attempt = throttle.Try.of(request, name)
        try:
            attempt.refuse_while_waiting()
        except ValidationError:
            log_denied(request, 429, "sign-in: too many failed tries")
            raise
        user = super().authenticate(request, **credentials)
        if user is None or not user.is_active:
            failures = attempt.count_failure()
            log_denied(request, 401, "sign-in: wrong name or password")
            services.sign_in_failed(
                username=name, address=client_address(request), failures=failures
            )
            return None
        attempt.forget_failures()
        return user

    def get_reauthentication_methods(self, user: User) -> list[dict[str, str]]:
        """One page has them all."""
        url = reverse("accounts:sign_in_again")
        return [{"id": "reauthenticate", "description": "", "url": url}]

    def pre_login(self, request: HttpRequest, user: User, **how: Any) -> HttpResponse | None:
        """Every way of signing in passes here, before a second factor is asked for."""
        by_provider = "sociallogin" in (how.get("signal_kwargs") or {})
        if settings.OIDC_ONLY and not by_provider and not user.is_superuser:
            log_denied(request, 403, "sign-in: only by the provider")
            words = gettext("Passwords open nothing here. Sign in with %(name)s.")
            messages.error(request, words % {"name": settings.OIDC_NAME})
            return redirect("accounts:sign_in")
        response: HttpResponse | None = super().pre_login(request, user, **how)
        return response

    def respond_user_inactive(self, request: HttpRequest, user: User) -> HttpResponse:
        messages.error(request, gettext("This account is deactivated. Ask an admin."))
        return redirect("accounts:sign_in")

    def post_login(self, request: HttpRequest, user: User, **how: Any) -> HttpResponse:
        """Every way of signing in ends here, after a second factor."""
        response: HttpResponse = super().post_login(request, user, **how)
        sociallogin = (how.get("signal_kwargs") or {}).get("sociallogin")
        if sociallogin is not None:
            # Who is signed in there already comes through without a question: not known, not fresh.
            fresh_sign_in_note(request, signed_in_at(sociallogin) or 0)
            if asked_second_factor(sociallogin):
                request.session[SECOND_FACTOR_ELSEWHERE] = True
        signed_in(request, response)
        return response

    def add_message(self, request: HttpRequest, level: int, *args: Any, **kwargs: Any) -> None:
        """Its notes on signing in and out say what the next page shows anyway."""

    def get_reset_password_from_key_url(self, key: str) -> str:
        uid, _, token = key.partition("-")
        path = reverse("account_reset_password_from_key", args=[uid, token])
        return f"{settings.SITE_URL.rstrip('/')}{path}"

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        chosen = getattr(context.get("user"), "language", "")
        try:
            with translation.override(chosen or translation.get_language()):
                super().send_mail(template_prefix, email, context)
        except (OSError, smtplib.SMTPException):
            raise Unavailable(
                gettext(
                    "The mail server did not take the message; nothing was sent. Try again later, "
                    "or ask an admin for a link."
                ),
                code="mail_failed",
            ) from None


class FactorAdapter(DefaultMFAAdapter):
    """Seeds of authenticator apps and of recovery codes are sealed in the database."""

    def encrypt(self, text: str) -> str:
        return seal(text)

    def decrypt(self, encrypted_text: str) -> str:
        return unseal(encrypted_text)


def signed_in(request: HttpRequest, response: HttpResponse) -> None:
    """After any way of signing in: the known browser, the audit log."""
    throttle.device_remember(request, response, request.user.username)
    services.audit_record(
        action="user.signed_in",
        actor=request.user,
        subject=request.user,
        details={"address": client_address(request), "by": _ways(request)},
    )


def _ways(request: HttpRequest) -> str:
    """What the person showed, such as `password, totp`."""
    shown = get_authentication_records(request, request.user)
    ways = [one.get("provider") or one.get("type") or one["method"] for one in shown]
    return ", ".join(dict.fromkeys(ways)) or "password"


# What becomes of second factors, as allauth tells it.


def second_factor_added(request: HttpRequest, user: User, authenticator: Any, **_: Any) -> None:
    kind = str(authenticator.type)
    services.second_factor_record(action="second_factor.added", user=user, by=user, kind=kind)


def second_factor_removed(request: HttpRequest, user: User, authenticator: Any, **_: Any) -> None:
    kind = str(authenticator.type)
    services.second_factor_record(action="second_factor.removed", user=user, by=user, kind=kind)


def codes_made(request: HttpRequest, user: User, authenticator: Any, **_: Any) -> None:
    kind = str(authenticator.type)
    services.second_factor_record(action="second_factor.codes_made", user=user, by=user, kind=kind)


def code_used(request: HttpRequest, user: User, authenticator: Any, **_: Any) -> None:
    if authenticator.type == Authenticator.Type.RECOVERY_CODES:
        services.second_factor_record(
            action="second_factor.code_used", user=user, by=user, kind=str(authenticator.type)
        )
