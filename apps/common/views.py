"""Addresses for machines."""

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.common import registry


@never_cache
@require_GET
@login_not_required
def healthz(request: HttpRequest) -> JsonResponse:
    """200 when every part is well, else 503; `checks` names each part and what is wrong, `remarks`
    what is missing and may be."""
    report = registry.health_report()
    well = not any(report.values())
    body = {
        "status": "ok" if well else "unwell",
        "checks": {name: wrong or "ok" for name, wrong in report.items()},
        "remarks": registry.health_remarks(),
    }
    return JsonResponse(body, status=200 if well else 503)
