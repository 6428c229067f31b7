"""Reward models of a project, and what people decided about them."""

from django.core.cache import cache
from django.db.models import OuterRef, Q, QuerySet, Subquery

from apps.accounts.identity import membership_get
from apps.accounts.models import Project, User
from apps.accounts.permissions import STAFF
from apps.common.errors import Missing, Refused
from apps.evaluation.models import ModelReview
from apps.evaluation.selectors.freshness import freshness_finding
from apps.evaluation.selectors.ranking import people_rank_finding
from apps.training.models import Checkpoint, Run
from measures.trust.findings import Finding, finding_from_json, finding_to_json


def reward_models(*, project: Project, search: str = "", status: str = "") -> QuerySet[Checkpoint]:
    """Checkpoints of reward runs that are best, last or final of their run, newest first; with
    `decided_by` and `decided_at` of the newest review."""
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
    """Newest first: the first one counts. Without the kept pages, which are large."""
    rows = ModelReview.objects.filter(checkpoint=checkpoint).defer("state")
    return list(rows.select_related("by", "assessment").order_by("-pk"))


def review_get(*, checkpoint: Checkpoint, review_id: int) -> ModelReview:
    """Raises `Missing`."""
    row = ModelReview.objects.filter(checkpoint=checkpoint, pk=review_id).first()
    if row is None:
        raise Missing("There is no such decision about this model.", field="review")
    return row


# Which reward models a person may have score text.


def scoring_model_get(*, user: User, checkpoint_id: str) -> Checkpoint:
    """A reward model of a project in which the person is staff. Raises `Missing` for outsiders as
    for models there are none of, `Refused` for other roles."""
    row = (
        Checkpoint.objects.filter(pk=checkpoint_id, run__kind=Run.Kind.REWARD)
        .select_related("project")
        .first()
    )
    membership = membership_get(user=user, slug=row.project.slug) if row else None
    if row is None or membership is None:
        raise Missing("There is no such reward model, or not for you.", field="checkpoint_id")
    if membership.role not in STAFF:
        raise Refused(f"Your role here is {membership.role}; this needs one of: admin, engineer.")
    return row


# The lines that only this side can measure: whether people agree with the model's ranking of its
# outputs, and whether it still knows what they say.

_KEPT_S = 60


def web_findings(checkpoint: Checkpoint, *, quick: bool = False) -> dict[str, Finding]:
    """{line: Finding}; `quick`, for lists, takes a freshness that may be a minute old."""
    fresh = _freshness(checkpoint) if quick else freshness_finding(checkpoint)
    return {one.line: one for one in (fresh, people_rank_finding(checkpoint))}


def _freshness(checkpoint: Checkpoint) -> Finding:
    """It counts votes, which takes a while for each model of a list."""
    key = f"freshness:{checkpoint.pk}"
    kept = cache.get(key)
    if kept is None:
        kept = finding_to_json(freshness_finding(checkpoint))
        cache.set(key, kept, _KEPT_S)
    return finding_from_json(kept)
