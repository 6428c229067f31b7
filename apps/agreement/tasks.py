"""Scheduled work of the agreement pages."""

from celery import shared_task

from apps.agreement.selectors.annotators import annotators_stale
from apps.agreement.selectors.decisions import projects_to_decide, projects_to_fit
from apps.agreement.selectors.votes import stale_projects
from apps.agreement.services.annotators import annotator_reports_refresh
from apps.agreement.services.consensus import consensus_compare, consensus_refresh
from apps.agreement.services.reports import report_refresh
from apps.labeling.services.redeciding import decisions_redo


@shared_task(name="apps.agreement.tasks.refresh_reports")
def refresh_reports() -> int:
    """Recompute the report of every project with votes newer than it; returns how many."""
    projects = stale_projects()
    for project in projects:
        report_refresh(project=project)
    for project in annotators_stale():
        annotator_reports_refresh(project=project)
    return len(projects)


@shared_task(name="apps.agreement.tasks.refresh_consensus")
def refresh_consensus() -> int:
    """Fit the models of projects with new votes, and decide again where a rule has changed.

    All ways to decide are compared again when enough votes have come in. Returns how many projects
    were worked on.
    """
    worked = set()
    for project, compare_too in projects_to_fit():
        (consensus_compare if compare_too else consensus_refresh)(project=project)
        worked.add(project.pk)
    for project in projects_to_decide():
        decisions_redo(project=project)
        worked.add(project.pk)
    return len(worked)
