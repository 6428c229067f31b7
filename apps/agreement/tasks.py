"""Scheduled work of the agreement pages."""

from celery import shared_task

from apps.agreement.services.reports import report_refresh
from apps.agreement.selectors.votes import stale_projects


@shared_task(name="apps.agreement.tasks.refresh_reports")
def refresh_reports() -> int:
    """Recompute the report of every project with votes newer than it; returns how many."""
    projects = stale_projects()
    for project in projects:
        report_refresh(project=project)
    return len(projects)
