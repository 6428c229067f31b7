"""Backups of the site, for its administrators."""

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.common.http import Request
from apps.monitoring.selectors.backups import Kind, backup_warnings, last_report, reports
from apps.monitoring.services.backups.target import address_words

PER_PAGE = 50


@require_safe
def site_backups(request: Request) -> HttpResponse:
    """The last backup, the last restore that was proven, and what is wrong with either."""
    if not request.user.is_superuser:
        raise PermissionDenied("This page is for administrators of the site.")
    context = {
        "made": last_report(Kind.MADE),
        "proven": last_report(Kind.PROVEN),
        "warnings": backup_warnings(),
        "target": address_words(settings.BACKUP_TARGET),
        "encrypted": bool(settings.BACKUP_KEY_FILE),
        "every_hours": settings.BACKUP_EVERY_HOURS,
        "check_days": settings.BACKUP_CHECK_DAYS,
        "page": Paginator(reports(), PER_PAGE).get_page(request.GET.get("page")),
        "page_title": "Backups of this site",
        "nav": "site_backups",
    }
    return render(request, "monitoring/site_backups.html", context)
