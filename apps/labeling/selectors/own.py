"""What a person may know of their own practice, and of gold pairs where the project shows them."""

from datetime import timedelta

from django.db.models import QuerySet
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.labeling.models import Answer, QualificationAttempt, Slot, Vote
from apps.labeling.selectors import settings_get

# Votes are a day old before their worth is shown: looking must not steer one that is still being
# thought about. What was shown can no longer be changed (`services.votes`).
DELAY = timedelta(days=1)


def attempts_of(*, project: Project, user: User) -> QuerySet[QualificationAttempt]:
    """Goes at the qualification that are over, newest first."""
    rows = QualificationAttempt.objects.filter(project=project, user=user)
    return rows.exclude(state=QualificationAttempt.State.RUNNING).order_by("-number")


def gold_of(*, project: Project, user: User) -> QuerySet[Vote]:
    """Current votes on gold pairs that are old enough to be shown, newest first."""
    return (
        Vote.objects.filter(
            project=project,
            annotator=user,
            is_current=True,
            slot__kind=Slot.Kind.GOLD,
            cast_at__lt=timezone.now() - DELAY,
        )
        .exclude(comparison__gold="")
        .select_related("comparison__prompt")
        .order_by("-cast_at", "-pk")
    )


def is_shown_as_gold(vote: Answer) -> bool:
    """Whether its person may have seen what the right answer is."""
    person = vote.annotator
    return settings_get(project=vote.project).show_gold and (
        gold_of(project=vote.project, user=person).filter(pk=vote.pk).exists()
    )
