"""What a service refuses reaches a person as a page with the reason, in whatever view it happens.

Forms put a refusal beside its field and need none of this; it is for addresses that name what is
not there, and for buttons pressed a moment too late.
"""

from collections.abc import Callable

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.defaults import page_not_found, permission_denied

from apps.common.errors import DomainError, Missing, Refused


class DomainErrorMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, Missing):
            return page_not_found(request, Http404(error.message))
        if isinstance(error, Refused):
            return permission_denied(request, PermissionDenied(error.message))
        if isinstance(error, DomainError):
            return render(request, "refused.html", {"error": error}, status=error.status)
        return None
