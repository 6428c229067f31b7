"""What the rule about evaluations that are due reads of a project."""

from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Project
from apps.common.registry import ProjectFigure
from apps.evaluation.models import Stage, StageChange
from apps.evaluation.selectors.evidence import evaluations_of
from apps.evaluation.selectors.promotion import stage_now

ASKED = (Stage.PRODUCTION, Stage.STAGING, Stage.CANDIDATE)


def overdue_figures(project: Project) -> list[ProjectFigure]:
    """Of what production names, else staging, else candidate: at most four statements."""
    page = reverse("evaluation:service", args=[project.slug])
    named = (stage_now(project=project, stage=stage) for stage in ASKED)
    change = next((one for one in named if one is not None), None)
    if change is None:
        missing = "no stage names a model yet"
        return [ProjectFigure(rule="evaluation_overdue", page=page, missing=missing)]
    return [_days_since(change, page)]


def _days_since(change: StageChange, page: str) -> ProjectFigure:
    """Since its newest evaluation ended, or since it was named where that came later."""
    ends = [run.ended_at for run in evaluations_of(change.checkpoint) if run.ended_at is not None]
    since, what = change.at, "named"
    if ends and max(ends) >= since:
        since, what = max(ends), "evaluated"
    days = (timezone.now() - since).total_seconds() / 86_400
    model = f"{change.checkpoint.run.name}, step {change.checkpoint.step:,}"
    return ProjectFigure(
        rule="evaluation_overdue",
        page=page,
        metrics={"people/days_since_evaluation": days},
        value=f"{days:,.0f} days",
        detail=f"{change.get_stage_display()} names {model}, last {what} on {since:%Y-%m-%d}.",
    )
