"""Reward models of a project."""

from django.db.models import QuerySet

from apps.accounts.models import Project
from apps.training.models import Checkpoint, Run


def reward_models(*, project: Project) -> QuerySet[Checkpoint]:
    """Checkpoints of reward runs that are best, last or final of their run, newest first."""
    rows = Checkpoint.objects.filter(project=project, run__kind=Run.Kind.REWARD)
    return rows.exclude(tags=[]).select_related("run").order_by("-created_at")
