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
from apps.common.refusals import explain, note_reason, refused


@never_cache
@require_safe
@login_not_required
def healthz(request: HttpRequest) -> JsonResponse:
    """200 when every part is well, else 503; `checks` names each part and what is wrong, `remarks`
    what is missing and may be."""
    with health.one_connection():
        report = registry.health_report()
        remarks = registry.health_remarks()
    well = not any(report.values())
    body = {
        "status": "ok" if well else "unwell",
        "checks": {name: wrong or "ok" for name, wrong in report.items()},
        "remarks": remarks,
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


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    note_reason(request, str(exception))
    return defaults.bad_request(request, exception)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    from django.views.csrf import csrf_failure as page

    note_reason(request, f"csrf: {reason}")
    # Refused before anything has asked whose page this is: the browser's language it is.
    match = request.resolver_match
    translated = match is not None and registry.is_translated(match.view_name)
    language = translation.get_language_from_request(request) if translated else "en"
    with translation.override(language):
        return page(request, reason)


def server_error(request: HttpRequest) -> HttpResponse:
    """What cannot be served now, such as on a full disk, is told as that and not as our fault."""
    error = sys.exception()
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
