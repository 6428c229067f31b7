"""What holds for every request of somebody who is signed in: idle sessions, caching, downloads, and
a second factor where their role needs one."""

import re
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY, logout
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django_htmx.http import HttpResponseClientRedirect

from apps.accounts import services
from apps.accounts.models import Maintenance, Project, User
from apps.accounts.permissions import OUTSIDER
from apps.accounts.reauthentication import fresh_sign_in_note, lacks_second_factor
from apps.accounts.selectors import maintenance_now
from apps.common.errors import Unavailable
from apps.common.http import client_address
from apps.common.refusals import API_ROOT, refusal_reason, refused

_SEEN = "seen"  # of the session: when it was last used, in seconds since 1970
_SEEN_EVERY = 300  # seconds: noting it costs a write
# What somebody may use who still has to set up a second factor.
_BEFORE_SECOND_FACTOR = frozenset(
    {
        *("mfa_index", "mfa_activate_totp", "mfa_add_webauthn"),
        *("mfa_view_recovery_codes", "mfa_generate_recovery_codes"),
        *("accounts:sign_in_again", "accounts:sign_out", "accounts:theme"),
        *("openid_connect_login", "openid_connect_callback"),
        *("words", "livez", "readyz", "healthz", "metrics"),
    }
)
# Administrators must be able to sign in, and programs to ask how the site is.
_OPEN_IN_MAINTENANCE = frozenset(
    {
        *("accounts:sign_in", "account_login", "accounts:sign_out", "mfa_authenticate"),
        *("mfa_login_webauthn", "openid_connect_login", "openid_connect_callback", "words"),
        *("livez", "readyz", "healthz", "metrics"),
    }
)
_FILE = re.compile(r'filename="?([^";]+)')


def session_begins(user: User, request: HttpRequest | None = None, **_: Any) -> None:
    """Receives `user_logged_in`. The end is fixed here: saving a session would move it on."""
    if request is None:
        return
    request.session[_SEEN] = int(time.time())
    fresh_sign_in_note(request)
    note_session(request, user)
    ends = timezone.now() + timedelta(seconds=settings.SESSION_COOKIE_AGE)
    request.session.set_expiry(ends)


class SignedInMiddleware:
    """After the person is known."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        by_session = SESSION_KEY in request.session
        if by_session:
            end_when_idle(request)
        response = self.get_response(request)
        record_refusal(request, response)
        if by_session or request.headers.get("Authorization"):
            # Nothing of it stays in the browser: Back after signing out shows the sign-in page.
            response.headers.setdefault("Cache-Control", "no-store, private")
            if response.headers.get("Content-Disposition", "").startswith("attachment"):
                record_download(request, response)
        return response


def end_when_idle(request: HttpRequest) -> None:
    """Signs out after SESSION_IDLE_HOURS; else notes the time, seldom, since it costs a write."""
    allowed = settings.SESSION_IDLE_HOURS * 3600
    now = int(time.time())
    idle = now - request.session.get(_SEEN, 0)
    if _SEEN in request.session and idle > allowed:
        services.session_forget(session_key=request.session.session_key)
        logout(request)
    elif idle > min(allowed / 24, _SEEN_EVERY):
        request.session[_SEEN] = now
        note_session(request, request.user)


def note_session(request: HttpRequest, user: User) -> None:
    """Keeps what the person's page of sessions says of this browser."""
    if request.session.session_key:
        services.session_seen(
            user=user,
            session_key=request.session.session_key,
            address=client_address(request),
            browser=request.META.get("HTTP_USER_AGENT", ""),
        )


class MaintenanceMiddleware:
    """While the site is closed everybody but its administrators is told until when. Whether it is
    is asked at most every few seconds in a process: a request must not cost a query more."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self._asked = float("-inf")
        self._row: Maintenance | None = None

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_: Any) -> HttpResponse | None:
        row = self._now()
        name = request.resolver_match.view_name if request.resolver_match else ""
        if row is None or name in _OPEN_IN_MAINTENANCE or request.user.is_superuser:
            return None
        error = Unavailable(_closed_words(row), code="maintenance")
        error.retry_after = max(int((row.until - timezone.now()).total_seconds()), 60)
        return refused(request, error)

    def _now(self) -> Maintenance | None:
        now, every = time.monotonic(), settings.MAINTENANCE_LOOK_SECONDS
        if every is not None and now - self._asked >= every:
            self._asked = now
            with suppress(DatabaseError):  # away, or not migrated yet: its own refusal says so
                self._row = maintenance_now()
        return self._row


def _closed_words(row: Maintenance) -> str:
    at = f"{timezone.localtime(row.until):%Y-%m-%d %H:%M %Z}"
    late = row.until <= timezone.now()
    said = (
        gettext("The site is closed for maintenance, longer than was planned (until %(at)s).")
        if late
        else gettext("The site is closed for maintenance until %(at)s.")
    )
    return " ".join(filter(None, (said % {"at": at}, row.message)))


class SecondFactorMiddleware:
    """Who needs a second factor and has none sets one up before anything else; the API says so to
    their browser (`api_auth`). Programs with API tokens go on."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_: Any) -> HttpResponse | None:
        if SESSION_KEY not in request.session or request.path_info.startswith(API_ROOT):
            return None
        name = request.resolver_match.view_name if request.resolver_match else ""
        if name in _BEFORE_SECOND_FACTOR or not lacks_second_factor(request):
            return None
        if request.headers.get("HX-Request") == "true":
            return HttpResponseClientRedirect(reverse("mfa_index"))
        return redirect("mfa_index")


def record_refusal(request: HttpRequest, response: HttpResponse) -> None:
    """Somebody was refused what they have no right to, or what there is for others alone. By view,
    not by path, since a path may hold what opens something."""
    reason = refusal_reason(request)
    if response.status_code not in {401, 403} and reason != OUTSIDER:
        return
    match = request.resolver_match
    slug = match.kwargs.get("slug") if match else None
    person = getattr(request, "user", None)
    services.access_refused(
        person=person if person is not None and person.is_authenticated else None,
        project=Project.objects.filter(slug=slug).first() if slug else None,
        what=f"{request.method} {match.view_name if match else 'an unknown address'}",
        status=response.status_code,
        reason=reason or "role",
        address=client_address(request),
    )


def record_download(request: HttpRequest, response: HttpResponse) -> None:
    if request.method != "GET" or response.status_code != 200:
        return
    name = _FILE.search(response.headers["Content-Disposition"])
    match = request.resolver_match
    slug = match.kwargs.get("slug") if match else None
    services.audit_record(
        action="file.downloaded",
        actor=request.user,
        project=getattr(request, "project", None) or Project.objects.filter(slug=slug).first(),
        subject=name[1] if name else "",
        details={"path": request.path},
    )
