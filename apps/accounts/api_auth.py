"""Who calls the API: a bearer token with a scope, or a signed-in browser with its CSRF token.

    @router.get("/projects", auth=needs("read"))

Either way `request.user` is the person; what they may do in a project is a matter of their role
(`apps.accounts.permissions.project_for`), on top of the scope.
"""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from ninja.errors import AuthenticationError
from ninja.security import APIKeyCookie, HttpBearer
from ninja.utils import check_csrf

from apps.accounts.identity import token_get
from apps.accounts.models import SCOPES, ApiToken, User, token_sha256
from apps.accounts.reauthentication import is_fresh, lacks_second_factor
from apps.common import rates
from apps.common.errors import Refused

# A token used a thousand times a minute need not write a row each time.
LAST_USED_EVERY = timedelta(minutes=1)


class TokenAuth(HttpBearer):
    """`Authorization: Bearer ccd_…`. A token that is sent must be good: there is no falling back
    to the session, so a program learns at once that its token has expired."""

    def __init__(self, scope: str) -> None:
        super().__init__()
        self.scope = scope

    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        row = token_get(token_sha256(token))
        now = timezone.now()
        if row is None or not row.user.is_active:
            _stop(rates.take_unknown(request))
            raise AuthenticationError(message="This token is not known, or was revoked.")
        if row.expires_at is not None and row.expires_at <= now:
            raise AuthenticationError(message=f"This token expired on {row.expires_at:%Y-%m-%d}.")
        if self.scope not in row.scopes:
            raise Refused(
                f"This token has the scopes {', '.join(row.scopes) or 'none'}; "
                f"this needs '{self.scope}'.",
                code="scope_missing",
            )
        if row.last_used_at is None or now - row.last_used_at > LAST_USED_EVERY:
            ApiToken.objects.filter(pk=row.pk).update(last_used_at=now)
        request.user = row.user
        _stop(rates.take_person(row.user.pk))
        return row.user


class BrowserAuth(APIKeyCookie):
    """A signed-in person; anything but a read must carry the CSRF token, and what decides about
    models a sign-in of the last minutes. Tokens are asked for neither that nor a second factor."""

    param_name = settings.SESSION_COOKIE_NAME

    def __init__(self, scope: str) -> None:
        super().__init__()
        self.scope = scope

    def _get_key(self, request: HttpRequest) -> str | None:
        return request.COOKIES.get(self.param_name)

    def authenticate(self, request: HttpRequest, key: str | None) -> User | None:
        if not request.user.is_authenticated:
            if key is not None:  # without one the address was counted at the edge
                _stop(rates.take_unknown(request))
            return None
        if check_csrf(request):
            raise Refused(
                "The CSRF token is missing or wrong: send it as X-CSRFToken.", code="csrf"
            )
        _stop(rates.take_person(request.user.pk))
        if lacks_second_factor(request):
            raise Refused(
                "Your role needs a second factor: set one up on your account page first.",
                code="second_factor_needed",
            )
        if self.scope == "approve":
            fresh_sign_in_demand(request)
        return request.user


def fresh_sign_in_demand(request: HttpRequest, *, reads: bool = False) -> None:
    """Raises `Refused` where a browser decides something with a sign-in of long ago; `reads`: also
    where it only reads."""
    by_session = request.session.get(SESSION_KEY) == str(request.user.pk)
    if by_session and (reads or request.method not in {"GET", "HEAD"}) and not is_fresh(request):
        where = reverse("accounts:sign_in_again")
        raise Refused(f"Confirm that it is you at {where} first.", code="sign_in_again")


def _stop(taken: rates.Taken | None) -> None:
    """Raises `TooMany` where a bucket was empty: that of a person with all their tokens and
    browsers, or that of an address that shows unknown ones."""
    if taken is not None and not taken.ok:
        raise rates.too_often(taken)


def needs(scope: str) -> list[Any]:
    """The `auth=` of an operation. `scope` is one of `apps.accounts.models.SCOPES`."""
    if scope not in SCOPES:
        raise ValueError(f"unknown scope {scope!r}")
    return [TokenAuth(scope), BrowserAuth(scope)]
