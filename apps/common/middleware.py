"""What stands between any request and its view."""

import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import resolve_url
from django_htmx.http import HttpResponseClientRedirect

from apps.common.errors import DomainError, Missing, Refused
from apps.common.refusals import explain, log_known, note_reason, refused, unreadable
from apps.common.views import page_not_found, permission_denied

logger = logging.getLogger(__name__)


class SignInMiddleware(LoginRequiredMiddleware):
    """Sends people who are not signed in to the sign-in page; also the pages that poll.

    htmx would follow a redirect and put the sign-in form where the news were to go; told by its
    header, it takes the whole page there, and back afterwards.
    """

    def handle_no_permission(self, request: HttpRequest, view_func: Any) -> HttpResponse:
        if request.headers.get("HX-Request") == "true":
            here = urlsplit(request.headers.get("HX-Current-URL", ""))
            back = here._replace(scheme="", netloc="").geturl()
            return HttpResponseClientRedirect(redirect_to_login(back, self._sign_in()).url)
        return super().handle_no_permission(request, view_func)

    def _sign_in(self) -> str:
        return resolve_url(settings.LOGIN_URL)


class DomainErrorMiddleware:
    """What a service refuses reaches a person as a page with the reason, wherever it happens.

    Forms put a refusal beside its field and need none of this; it is for addresses that name what
    is not there, and for buttons pressed a moment too late.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, (Missing, Refused)):
            note_reason(request, error.message)
        elif isinstance(error, (Http404, PermissionDenied)):
            note_reason(request, str(error))
        if isinstance(error, Missing):
            return page_not_found(request, Http404(error.message))
        if isinstance(error, Refused):
            return permission_denied(request, PermissionDenied(error.message))
        if isinstance(error, DomainError):
            return refused(request, error)
        if known := unreadable(error):
            return refused(request, known)
        if known := explain(error):
            log_known(logger, known, error, request.path)
            return refused(request, known)
        return None
