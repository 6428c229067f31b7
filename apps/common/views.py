"""Addresses for machines, and the pages of errors that no view answers for."""

import sys

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils import translation
from django.views import defaults
from django.views.decorators.cache import cache_control, never_cache
from django.views.decorators.http import require_safe
from django.views.i18n import JavaScriptCatalog

from apps.common import health, registry
from apps.common.http import language_of
from apps.common.refusals import browser_language, explain, note_reason, refused


@never_cache
@require_safe
@login_not_required
def healthz(request: HttpRequest) -> JsonResponse:
    """200 when every part is well, else 503; `checks` names each part and what is wrong, `remarks`
    what is missing and may be, `scheduler` which one leads and how many would take over."""
    with health.one_connection():
        report = registry.health_report()
        remarks = registry.health_remarks()
        schedulers = health.schedulers()
    well = not any(report.values())
    body = {
        "status": "ok" if well else "unwell",
        "checks": {name: wrong or "ok" for name, wrong in report.items()},
        "remarks": remarks,
        "scheduler": schedulers.told() if schedulers else None,
    }
    return JsonResponse(body, status=200 if well else 503)


@never_cache
@require_safe
@login_not_required
def livez(request: HttpRequest) -> HttpResponse:
    """200 while this process answers; it asks nobody else."""
    return HttpResponse("ok\n", content_type="text/plain")


@never_cache
@require_safe
@login_not_required
def readyz(request: HttpRequest) -> HttpResponse:
    """Whether this process can serve pages: 200, or 503 when the database or a migration is
    missing. Workers that are away do not count, since pages do not need them."""
    wrong = health.database() or health.migrations()
    text, status = (f"{wrong}\n", 503) if wrong else ("ok\n", 200)
    return HttpResponse(text, content_type="text/plain", status=status)


# Pages of errors are in the reader's language at every address, also where a page is English.


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    note_reason(request, str(exception))
    with translation.override(language_of(request)):
        return defaults.bad_request(request, exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    with translation.override(language_of(request)):
        return defaults.permission_denied(request, exception)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    with translation.override(language_of(request)):
        return defaults.page_not_found(request, exception)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    from django.views.csrf import csrf_failure as page

    note_reason(request, f"csrf: {reason}")
    with translation.override(language_of(request)):
        return page(request, reason)


def server_error(request: HttpRequest) -> HttpResponse:
    """What cannot be served now, such as on a full disk, is told as that and not as our fault."""
    error = sys.exception()
    with browser_language(request):
        known = explain(error) if isinstance(error, Exception) else None
        return refused(request, known) if known else defaults.server_error(request)


@login_not_required
@require_safe
@cache_control(public=True, max_age=3600)
def words(request: HttpRequest, language: str) -> HttpResponse:
    """What scripts say, in one language: `gettext` and its like for the browser."""
    if language not in dict(settings.LANGUAGES):
        raise Http404
    with translation.override(language):
        return JavaScriptCatalog.as_view()(request)
