"""The language and the time zone of whoever reads a page."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo, available_timezones

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone, translation
from django.utils.cache import patch_vary_headers

from apps.common import registry
from apps.common.http import language_of

# What the browser says its time zone is; written by app.js.
ZONE_COOKIE = f"{settings.COOKIE_PREFIX}concord_zone"


@lru_cache(maxsize=1)
def zones() -> frozenset[str]:
    """The names of the time zones that this machine knows."""
    return frozenset(available_timezones())


def zone_of(request: HttpRequest) -> str:
    """The zone a person chose, else the browser's, else the site's."""
    user = getattr(request, "user", None)
    chosen = user.time_zone if user is not None and user.is_authenticated else ""
    named = chosen or unquote(request.COOKIES.get(ZONE_COOKIE, ""))
    return named if named in zones() else settings.TIME_ZONE


class ReaderMiddleware:
    """Times are shown in the reader's zone, and translated pages in the reader's language.

    Pages that nobody has translated (`registry.translated`) stay English as a whole.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with translation.override(settings.LANGUAGE_CODE), timezone.override(None):
            response = self.get_response(request)
            if request.resolver_match and registry.is_translated(request.resolver_match.view_name):
                response.headers.setdefault("Content-Language", translation.get_language() or "en")
                patch_vary_headers(response, ["Accept-Language"])
            return response

    def process_view(self, request: HttpRequest, *_: Any) -> None:
        timezone.activate(ZoneInfo(zone_of(request)))
        if request.resolver_match and registry.is_translated(request.resolver_match.view_name):
            translation.activate(language_of(request))
