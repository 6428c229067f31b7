"""Impatient people: the same thing pressed many times at once happens once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from apps.accounts.models import AuditEvent, Project, Role
from apps.labeling import services
from apps.labeling.models import Annotator, QualificationAttempt
from tests.labeling.pairs import practice_make, right_side
from tests.people import person_make

pytestmark = pytest.mark.django_db(transaction=True)
AT_ONCE = 8


def together(deed: Callable[[int], Any]) -> list[Any]:
    """What AT_ONCE threads got from doing the same thing."""

    def run(number: int) -> Any:
        try:
            return deed(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(run, range(AT_ONCE)))


def test_pressing_at_once_starts_one_attempt_and_keeps_one_answer() -> None:
    project = Project.objects.create(slug="arguments", name="Arguments")
    ana = person_make("Ana", project, Role.ANNOTATOR)
    practice_make(project, 1, qualification_pairs=1)
    Annotator.objects.all().delete()  # so that the row is made in the race too
    started = together(lambda _: services.attempt_start(project=project, user=ana).pk)
    assert set(started) == {QualificationAttempt.objects.get().pk}
    row = QualificationAttempt.objects.get().answers.select_related("comparison").get()
    sides = [right_side(row), "tie"] * (AT_ONCE // 2)
    answers = together(
        lambda number: (
            services.attempt_answer(
                project=project, user=ana, answer=row.pk, side=sides[number]
            ).choice
        )
    )
    row.refresh_from_db()
    assert set(answers) == {row.choice}
    ends = AuditEvent.objects.filter(action__startswith="qualification.")
    assert [event.action for event in ends] == [
        "qualification.passed" if row.is_right else "qualification.failed"
    ]
    services.guideline_publish(project=project, body="New.", by=ana, is_major=True)
    together(lambda _: services.guideline_acknowledge(project=project, user=ana, version=2).pk)
    assert AuditEvent.objects.filter(action="guideline.acknowledged").count() == 1
