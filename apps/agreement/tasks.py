"""Scheduled work of the agreement pages."""

from celery import shared_task

from apps.agreement import selectors, services


@shared_task(name="apps.agreement.tasks.refresh_reports")
def refresh_reports() -> int:
    """Recompute the report of every project with votes newer than it; returns how many."""
    projects = selectors.stale_projects()
    for project in projects:
        services.report_refresh(project=project)
    return len(projects)
