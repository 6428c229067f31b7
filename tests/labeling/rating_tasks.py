"""Small projects with rating tasks."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from apps.accounts.models import Project, User
from apps.labeling.models import LabelingSettings, RatingSlot, RatingTask
from apps.labeling.services.ratings import (
    RatingLease,
    RatingResult,
    rating_lease_next,
    rating_submit,
    ratings_import,
)


def task_rows(n: int, k: int = 3, **fields: Any) -> list[dict[str, Any]]:
    return [
        {
            "id": f"task-{number}",
            "prompt": f"Question {number}: how long is a day?",
            "responses": [f"Answer {place} to question {number}." for place in range(1, k + 1)],
            **fields,
        }
        for number in range(1, n + 1)
    ]


def tasks_make(
    project: Project, n: int = 2, k: int = 3, settings: dict[str, Any] | None = None, **fields: Any
) -> list[RatingTask]:
    LabelingSettings.objects.update_or_create(project=project, defaults=settings or {})
    ratings_import(project=project, rows=task_rows(n, k, **fields))
    return list(RatingTask.objects.filter(project=project).order_by("pk"))


def held(project: Project, annotator: User) -> RatingLease:
    got = rating_lease_next(project=project, annotator=annotator)
    assert isinstance(got, RatingLease), got
    return got


def rate(project: Project, annotator: User, values: list[int], **more: Any) -> RatingResult:
    """Take the next task and rate it; values by stored place."""
    lease = held(project, annotator)
    shown = RatingSlot.objects.get(pk=lease.slot).shown
    return rating_submit(
        slot=lease.slot,
        annotator=annotator,
        idempotency_key=lease.key,
        values=[values[place - 1] for place in shown],
        **more,
    )


def lapse(slot: int) -> None:
    """Time passes: the lease of this slot has run out."""
    RatingSlot.objects.filter(pk=slot).update(leased_until=timezone.now() - timedelta(days=1))
