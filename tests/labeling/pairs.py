"""Small projects to label."""

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from apps.accounts.models import Membership, Project, Role, User
from apps.labeling import services
from apps.labeling.models import (
    Annotator,
    Comparison,
    ImportJob,
    LabelingSettings,
    QualificationAttempt,
    Slot,
    Task,
)
from apps.labeling.services import qualification, slot_lease_next, vote_cast
from apps.labeling.services.results import Lease, VoteResult
from apps.labeling.services.task_rows import tasks_import
from tests.database import as_superuser


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


def votes_age(days: float) -> None:
    """All votes were cast so many days earlier, and took six seconds each."""
    with as_superuser(), connection.cursor() as cursor:
        cursor.execute("set session_replication_role = replica")
        cursor.execute(
            "update labeling_vote set active_ms = 6000,"
            " cast_at = cast_at - make_interval(secs => %s)",
            [days * 86_400],
        )
        cursor.execute("set session_replication_role = origin")


def lapse(slot: int) -> None:
    """Time passes: the lease of this slot has run out."""
    Slot.objects.filter(pk=slot).update(leased_until=timezone.now() - timedelta(days=1))


@pytest.fixture
def ben(project: Project) -> User:
    """A second annotator."""
    return annotators_make(project, 1)[0]


# Practice pairs, and a person who goes through them.


def practice_make(project: Project, n: int = 4, **settings: object) -> None:
    """n practice pairs whose A is right, in a project that asks for three of them, two right."""
    asked = {
        "qualification_pairs": 3,
        "qualification_pass": 0.6,
        "qualification_attempts": 2,
        "qualification_cooldown_minutes": 60,
    }
    LabelingSettings.objects.update_or_create(project=project, defaults=asked | settings)
    services.comparisons_import(
        project=project,
        rows=[
            {
                "id": f"practice-{number}",
                "prompt": f"Practice {number}: what is 2 + 2?",
                "response_a": f"Four, in practice {number}.",
                "response_b": f"Five, in practice {number}.",
                "gold": "a",
                "stratum": "practice",
                "explanation": f"Because of arithmetic, says {number}.",
            }
            for number in range(1, n + 1)
        ],
    )


def right_side(answer: qualification.QualificationAnswer) -> str:
    return "left" if answer.left_is == answer.comparison.gold else "right"


def answer_all(project: Project, user: User, rights: Iterable[bool]) -> QualificationAttempt:
    """Start an attempt and answer its pairs rightly or wrongly, in order."""
    attempt = qualification.attempt_start(project=project, user=user)
    rows = attempt.answers.select_related("comparison").order_by("position")
    for row, right in zip(rows, rights, strict=True):
        side = right_side(row)
        other = "right" if side == "left" else "left"
        qualification.attempt_answer(
            project=project, user=user, answer=row.pk, side=side if right else other
        )
    attempt.refresh_from_db()
    return attempt


def qualified(project: Project, user: User) -> bool:
    return Annotator.objects.filter(project=project, user=user, qualified_at__isnull=False).exists()


# Small projects with rating tasks.


def task_rows(n: int, k: int = 3, name: str = "task", **fields: Any) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{name}-{number}",
            "prompt": f"Question {number}: how long is a day?",
            "responses": [f"Answer {place} to question {number}." for place in range(1, k + 1)],
            **fields,
        }
        for number in range(1, n + 1)
    ]


def tasks_make(
    project: Project, n: int = 2, k: int = 3, settings: dict[str, Any] | None = None, **fields: Any
) -> list[Task]:
    LabelingSettings.objects.update_or_create(project=project, defaults=settings or {})
    tasks_import(project=project, rows=task_rows(n, k, **fields))
    made = Task.objects.filter(project=project).exclude(kind=Task.Kind.PAIR)
    return list(made.order_by("pk"))


def rating_leased(project: Project, annotator: User) -> Lease:
    got = slot_lease_next(project=project, annotator=annotator)
    assert isinstance(got, Lease), got
    return got


def rate(project: Project, annotator: User, values: list[int], **more: Any) -> VoteResult:
    """Take the next task and rate it; values by stored place."""
    lease = rating_leased(project, annotator)
    shown = Slot.objects.get(pk=lease.slot).shown
    return vote_cast(
        slot=lease.slot,
        annotator=annotator,
        idempotency_key=lease.key,
        values=[values[place - 1] for place in shown],
        **more,
    )


def rating_lapse(slot: int) -> None:
    """Time passes: the lease of this slot has run out."""
    Slot.objects.filter(pk=slot).update(leased_until=timezone.now() - timedelta(days=1))


# Files on their way in, whose worker is the test itself.


def upload(project: Project, by: User, *rows: Any, name: str = "rows.jsonl") -> ImportJob:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    return services.import_job_create(
        project=project, by=by, file_name=name, chunks=[text.encode()]
    )


def checked(job: ImportJob) -> ImportJob:
    services.import_job_check(job=job)
    services.import_job_run(job=job.pk)
    job.refresh_from_db()
    return job


def imported(job: ImportJob, on_error: str = "refuse") -> ImportJob:
    services.import_job_start(job=job, on_error=on_error)
    services.import_job_run(job=job.pk)
    job.refresh_from_db()
    return job
