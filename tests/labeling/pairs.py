"""Small projects to label."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import Membership, Project, Role, User
from apps.labeling import services
from apps.labeling.models import Annotator, Comparison, LabelingSettings, Slot
from apps.labeling.services import Lease


def rows_make(n: int, start: int = 1) -> list[dict[str, Any]]:
    """n rows; the better answer is always the one whose text says so."""
    return [
        {
            "id": f"pair-{number}",
            "prompt": f"Question {number}: how long is a day?",
            "response_a": f"Twenty-four hours, in answer {number}.",
            "response_b": f"It depends, says answer {number}.",
        }
        for number in range(start, start + n)
    ]


def pairs_make(project: Project, n: int = 3, **settings: Any) -> list[Comparison]:
    LabelingSettings.objects.update_or_create(project=project, defaults=settings)
    services.comparisons_import(project=project, rows=rows_make(n))
    return list(Comparison.objects.filter(project=project).order_by("shuffle"))


def annotators_make(project: Project, n: int) -> list[User]:
    people = User.objects.bulk_create(
        [User(username=f"annotator-{number}", password="!") for number in range(n)]
    )
    Membership.objects.bulk_create(
        [Membership(project=project, user=user, role=Role.ANNOTATOR) for user in people]
    )
    Annotator.objects.bulk_create(
        [Annotator(project=project, user=user, acknowledged_version=1) for user in people]
    )
    return people


def leased(project: Project, annotator: User) -> Lease:
    lease = services.slot_lease_next(project=project, annotator=annotator)
    assert isinstance(lease, Lease), lease
    return lease


def vote(project: Project, annotator: User, choice: str = "a", **more: Any) -> services.VoteResult:
    """Take the next pair and vote on it."""
    lease = leased(project, annotator)
    return services.vote_cast(
        slot=lease.slot, annotator=annotator, idempotency_key=lease.key, choice=choice, **more
    )


def lapse(slot: int) -> None:
    """Time passes: the lease of this slot has run out."""
    Slot.objects.filter(pk=slot).update(leased_until=timezone.now() - timedelta(days=1))


@pytest.fixture
def ben(project: Project) -> User:
    """A second annotator."""
    return annotators_make(project, 1)[0]
