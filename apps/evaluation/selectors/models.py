"""Reward models of a project, and what people decided about them."""

from django.db.models import OuterRef, Q, QuerySet, Subquery

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.evaluation.models import ModelReview
from apps.training.models import Checkpoint, Run


def reward_models(*, project: Project, search: str = "", status: str = "") -> QuerySet[Checkpoint]:
    """Checkpoints of reward runs that are best, last or final of their run, newest first; with
    `decided_by` and `decided_at` of the review in force."""
    newest = ModelReview.objects.filter(checkpoint=OuterRef("pk")).order_by("-pk")
    rows = Checkpoint.objects.filter(project=project, run__kind=Run.Kind.REWARD).exclude(tags=[])
    if status:
        rows = rows.filter(status=status)
    if search:
        rows = rows.filter(
            Q(run__name__icontains=search)
            | Q(pk__startswith=search)
            | Q(run__pk__startswith=search)
        )
    return (
        rows.select_related("run", "project")
        .annotate(
            decided_by=Subquery(newest.values("by_name")[:1]),
            decided_at=Subquery(newest.values("at")[:1]),
        )
        .order_by("-created_at", "-pk")
    )


def reward_model_get(*, project: Project, checkpoint_id: str) -> Checkpoint:
    """Raises `Missing`, also for a model of another kind of run."""
    rows = Checkpoint.objects.filter(
        project=project,
        pk=checkpoint_id.replace("\x00", "?"),  # no text of the database holds a NUL
        run__kind=Run.Kind.REWARD,
    )
    row = rows.select_related("run__created_by", "project").first()
    if row is None:
        raise Missing("There is no such reward model in this project.", field="checkpoint")
    return row


def reviews_of(checkpoint: Checkpoint) -> list[ModelReview]:
    """Newest first: the first one is in force. Without the kept pages, which are large."""
    rows = ModelReview.objects.filter(checkpoint=checkpoint).defer("state")
    return list(rows.select_related("by", "assessment").order_by("-pk"))


def review_get(*, checkpoint: Checkpoint, review_id: int) -> ModelReview:
    """Raises `Missing`."""
    row = ModelReview.objects.filter(checkpoint=checkpoint, pk=review_id).first()
    if row is None:
        raise Missing("There is no such decision about this model.", field="review")
    return row
