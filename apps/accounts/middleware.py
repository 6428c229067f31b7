"""What holds for every request of somebody who is signed in: idle sessions, caching, downloads."""

import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY, logout
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from apps.accounts import services
from apps.accounts.models import Project
from apps.accounts.permissions import OUTSIDER
from apps.common.http import client_address
from apps.common.refusals import refusal_reason

_SEEN = "seen"  # of the session: when it was last used, in seconds since 1970
_FILE = re.compile(r'filename="?([^";]+)')


def session_begins(request: HttpRequest | None = None, **_: Any) -> None:
    """Receives `user_logged_in`. The end is fixed here: saving a session would move it on."""
    if request is None:
        return
    request.session[_SEEN] = int(time.time())
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
        logout(request)
    elif idle > allowed / 24:
        request.session[_SEEN] = now


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
