"""How a session becomes a person, and what allauth asks of this site."""

import smtplib
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.auth_backends import AuthenticationBackend
from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from apps.accounts import identity, services, throttle
from apps.accounts.models import User
from apps.accounts.selectors import person_named
from apps.common.errors import Unavailable
from apps.common.http import client_address
from apps.common.refusals import log_denied


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
        if seconds := attempt.seconds_to_wait():
            log_denied(request, 429, "sign-in: too many failed tries")
            raise ValidationError(
                gettext(
                    "Too many failed tries. Wait %(time)s and try again, or ask an admin for a "
                    "new password."
                )
                % {"time": _duration(seconds)},
                code="too_many_tries",
            )
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


def _duration(seconds: int) -> str:
    if seconds < 60:
        return ngettext("%(n)s second", "%(n)s seconds", seconds) % {"n": seconds}
    minutes = -(-seconds // 60)
    return ngettext("%(n)s minute", "%(n)s minutes", minutes) % {"n": minutes}
