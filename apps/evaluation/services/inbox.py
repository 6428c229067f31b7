"""Opening entries of the inbox: each is had by one person at a time."""

from django.db import transaction

from apps.accounts.models import Project, User
from apps.evaluation.models import FlaggedAnswer
from apps.evaluation.selectors.inbox import InboxFilters
from apps.evaluation.services.claiming import claim, unclaimed


def inbox_open(*, flagged: FlaggedAnswer, user: User) -> bool:
    """Claim this entry for the person; False where somebody else has it open."""
    return claim(FlaggedAnswer.objects.filter(project=flagged.project_id), flagged.pk, user)


@transaction.atomic
def inbox_next(
    *, project: Project, filters: InboxFilters, user: User, after: int | None = None
) -> FlaggedAnswer | None:
    """Claim the first waiting entry that nobody else has open, of those behind `after`, else of
    all; None where nothing waits."""
    rows = unclaimed(filters.rows(project), user).select_for_update(of=("self",), skip_locked=True)
    found = rows.filter(pk__lt=after).first() if after is not None else None
    found = found or rows.first()
    if found is not None:
        claim(FlaggedAnswer.objects.filter(project=project), found.pk, user)
        found.refresh_from_db(fields=["claimed_by", "claimed_until"])
    return found
