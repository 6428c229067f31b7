"""The qualification round: drawn at its start, answered once, counted honestly."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.common.errors import Conflict, DomainError, Missing, Refused
from apps.labeling import services
from apps.labeling.models import (
    Annotator,
    Comparison,
    LabelingSettings,
    QualificationAttempt,
    Slot,
    Vote,
)
from apps.labeling.services import NothingReason
from apps.labeling.services.qualification import (
    attempt_answer,
    attempt_grant,
    attempt_start,
    qualification_of,
)
from tests.labeling.pairs import leased, rows_make
from tests.labeling.practice import answer_all, practice_make, qualified, right_side


def code(project: Project, user: User) -> str:
    got = services.slot_lease_next(project=project, annotator=user)
    return got.code if isinstance(got, NothingReason) else "pair"


def cool_down() -> None:
    """An hour and more passes."""
    QualificationAttempt.objects.update(finished_at=timezone.now() - timedelta(hours=2))


def test_passing_opens_the_queue_and_leaves_no_vote(project: Project, ana: User) -> None:
    practice_make(project)
    services.comparisons_import(project=project, rows=rows_make(1))
    assert code(project, ana) == "qualification"
    attempt = answer_all(project, ana, [True, False, True])
    assert (attempt.state, attempt.n_right) == ("passed", 2)
    assert code(project, ana) == "pair"
    assert not Vote.objects.exists()


def test_failing_keeps_it_closed_until_the_cool_down_is_over(project: Project, ana: User) -> None:
    practice_make(project)
    attempt = answer_all(project, ana, [True, False, False])
    assert (attempt.state, attempt.n_right) == ("failed", 1)
    assert code(project, ana) == "qualification"
    with pytest.raises(Conflict) as refused:
        attempt_start(project=project, user=ana)
    assert refused.value.code == "qualification_cooling_down"
    cool_down()
    assert attempt_start(project=project, user=ana).number == 2


def test_the_mark_of_the_day_it_began_holds(project: Project, ana: User) -> None:
    practice_make(project)
    attempt_start(project=project, user=ana)
    LabelingSettings.objects.update(qualification_pass=1.0, qualification_pairs=1)
    attempt = answer_all(project, ana, [True, False, True])
    assert attempt.state == "passed"


def test_a_mark_met_exactly_is_met(project: Project, ana: User) -> None:
    practice_make(project, 10, qualification_pairs=10, qualification_pass=0.7)
    attempt = answer_all(project, ana, [True] * 7 + [False] * 3)
    assert attempt.state == "passed"


def test_an_attempt_survives_a_reload(project: Project, ana: User) -> None:
    practice_make(project)
    first = attempt_start(project=project, user=ana)
    shown = list(first.answers.values_list("comparison", "left_is"))
    again = attempt_start(project=project, user=ana)
    assert again == first
    assert list(again.answers.values_list("comparison", "left_is")) == shown


def test_nobody_has_two_attempts_at_once(project: Project, ana: User) -> None:
    practice_make(project)
    attempt_start(project=project, user=ana)
    with pytest.raises(IntegrityError), transaction.atomic():
        QualificationAttempt.objects.create(
            project=project, user=ana, number=2, pass_share=0.5, n_pairs=1
        )


def test_pairs_met_least_come_first(project: Project, ana: User) -> None:
    practice_make(project, 6)
    first = answer_all(project, ana, [False] * 3)
    cool_down()
    second = attempt_start(project=project, user=ana)
    met = set(first.answers.values_list("comparison", flat=True))
    assert not met & set(second.answers.values_list("comparison", flat=True))


def test_the_first_answer_stands(project: Project, ana: User) -> None:
    practice_make(project)
    attempt = attempt_start(project=project, user=ana)
    row = attempt.answers.select_related("comparison").first()
    wrong = "right" if right_side(row) == "left" else "left"
    first = attempt_answer(project=project, user=ana, answer=row.pk, side=wrong)
    again = attempt_answer(project=project, user=ana, answer=row.pk, side=right_side(row))
    assert (first.is_right, again.is_right) == (False, False)
    attempt.refresh_from_db()
    assert (attempt.n_right, attempt.state) == (0, "running")


def test_all_attempts_used_says_who_can_help_and_a_grant_does(
    project: Project, ana: User, ada: User
) -> None:
    practice_make(project)
    for _ in range(2):
        answer_all(project, ana, [False] * 3)
        cool_down()
    with pytest.raises(Conflict, match="An admin can grant another") as refused:
        attempt_start(project=project, user=ana)
    assert refused.value.code == "qualification_used_up"
    granted = attempt_grant(project=project, user=ana, by=ada)
    assert granted.number == 3
    assert attempt_grant(project=project, user=ana, by=ada) == granted
    assert answer_all(project, ana, [True] * 3) == granted
    assert qualified(project, ana)


def test_too_few_practice_pairs_let_nobody_through(project: Project, ana: User) -> None:
    practice_make(project, 2)
    with pytest.raises(Conflict, match="2 of the 3 practice pairs") as refused:
        attempt_start(project=project, user=ana)
    assert refused.value.code == "qualification_not_ready"
    assert code(project, ana) == "qualification"
    assert not QualificationAttempt.objects.exists()


def test_a_pair_whose_right_answer_has_no_button_is_not_drawn(project: Project, ana: User) -> None:
    practice_make(project, 3)
    Comparison.objects.filter(external_id="practice-1").update(gold="tie")
    assert qualification_of(project=project, user=ana).ready
    LabelingSettings.objects.update(show_tie=False)
    assert qualification_of(project=project, user=ana).n_ready == 2


def test_practice_pairs_are_never_in_the_queue(project: Project, ana: User, ada: User) -> None:
    practice_make(project)
    assert not Slot.objects.exists()
    services.comparisons_import(project=project, rows=rows_make(1))
    Annotator.objects.filter(user=ana).update(qualified_at=timezone.now())
    assert "Question 1" in leased(project, ana).prompt[0]["content"]


def test_practice_alone_is_no_work_that_is_done(project: Project, ana: User) -> None:
    practice_make(project)
    answer_all(project, ana, [True] * 3)
    assert code(project, ana) == "empty"


def test_another_persons_pair_cannot_be_answered(project: Project, ana: User, rita: User) -> None:
    practice_make(project)
    row = attempt_start(project=project, user=rita).answers.first()
    with pytest.raises(Missing):
        attempt_answer(project=project, user=ana, answer=row.pk, side="left")


def test_engineers_and_outsiders_do_not_qualify(project: Project, emil: User, olga: User) -> None:
    practice_make(project)
    with pytest.raises(Refused):
        attempt_start(project=project, user=emil)
    with pytest.raises(Missing):
        attempt_start(project=project, user=olga)


def test_a_side_that_does_not_exist_is_named(project: Project, ana: User) -> None:
    practice_make(project)
    row = attempt_start(project=project, user=ana).answers.first()
    with pytest.raises(DomainError, match="'up' is unknown"):
        attempt_answer(project=project, user=ana, answer=row.pk, side="up")


def test_who_has_qualified_does_not_start_again(project: Project, ana: User, ada: User) -> None:
    practice_make(project)
    answer_all(project, ana, [True] * 3)
    for start in (
        lambda: attempt_start(project=project, user=ana),
        lambda: attempt_grant(project=project, user=ana, by=ada),
    ):
        with pytest.raises(Conflict) as refused:
            start()
        assert refused.value.code == "qualification_passed"
