"""Which reward models a person may have score text."""

from apps.accounts.identity import membership_get
from apps.accounts.models import User
from apps.accounts.permissions import STAFF
from apps.common.errors import Missing, Refused
from apps.training.models import Checkpoint, Run


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
