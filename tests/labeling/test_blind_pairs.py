"""Pairs that measure two systems: answered like any other, and read by nothing else."""

from typing import Any

import pytest
from django.core.cache import cache
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse

from apps.accounts.models import Project, User
from apps.agreement.selectors.votes import report_get
from apps.agreement.services.reports import report_refresh
from apps.common.errors import DomainError
from apps.labeling import selectors, services
from apps.labeling.models import (
    Answer,
    Comparison,
    Decision,
    EvaluationSet,
    Response,
    Skip,
    Slot,
    Task,
    Vote,
)
from apps.labeling.selectors.ratings import has_rating_tasks
from apps.labeling.services import Lease, NothingReason
from apps.labeling.services.blind import blind_pairs_close, blind_pairs_queue
from apps.labeling.services.results import VoteResult
from tests.labeling.pairs import annotators_make, leased, pairs_make


def queued(
    project: Project, n: int = 20, *, votes: int = 1, most_each: int = 100, priority: float = 1.0
) -> EvaluationSet:
    rows = [
        {
            "id": f"duel-{k}",
            "prompt": f"Question {k}?",
            "response_a": f"The first system says {k}.",
            "response_b": f"The second system answers {k}.",
            "origin_ref_a": "sigma-7",
            "origin_ref_b": "tau-9",
        }
        for k in range(n)
    ]
    made, report = blind_pairs_queue(
        project=project,
        rows=rows,
        batch="duel",
        votes=votes,
        most_each=most_each,
        priority=priority,
    )
    assert report.n_created == n
    return made


def vote(person: User, side: str, lease: Lease) -> VoteResult:
    return services.vote_cast(
        slot=lease.slot, annotator=person, idempotency_key=lease.key, side=side
    )


def answers_of(evaluation: EvaluationSet) -> Any:
    return Answer.objects.filter(
        task__gte=evaluation.first_task, task__lte=evaluation.last_task, is_current=True
    )


def nothing(project: Project, person: User) -> str:
    got = services.slot_lease_next(project=project, annotator=person)
    assert isinstance(got, NothingReason), got
    return got.code


def test_an_answer_decides_nothing_and_is_no_vote(project: Project, ana: User) -> None:
    evaluation = queued(project, 3)
    for _ in range(3):
        lease = leased(project, ana)
        assert (lease.kind, bool(lease.left and lease.right)) == ("blind", True)
        result = vote(ana, "left", lease)
        assert result.decision is None
    assert answers_of(evaluation).count() == 3
    tasks = Task.objects.filter(project=project)
    assert set(tasks.values_list("state", flat=True)) == {"decided"}
    assert not Vote.objects.exists()
    assert not Comparison.objects.exists()
    assert not Decision.objects.exists()
    assert not has_rating_tasks(project)
    assert nothing(project, ana) in ("empty", "done", "all_done")


def test_no_more_are_left_for_a_person_than_one_may_answer(
    project: Project,
) -> None:
    ana, ben = annotators_make(project, 2)

    def left(person: User, n_today: int = 0) -> int:
        cache.clear()
        return selectors.remaining_for(project=project, annotator=person, n_today=n_today)

    evaluation = queued(project, 20, votes=2, most_each=3)
    vote(ana, "left", leased(project, ana))  # which hands her a second one
    pairs_make(project, 4)
    assert (left(ana, 1), left(ben)) == (4 + 1, 4 + 3)
    blind_pairs_close(evaluation_set=evaluation)
    assert (left(ana, 1), left(ben)) == (4, 4)


def test_agreement_does_not_read_it(project: Project) -> None:
    pairs_make(project, 4, overlap=2, max_overlap=5)
    people = annotators_make(project, 2)
    for person in people:
        for _ in range(4):
            vote(person, "left", leased(project, person))
    report_refresh(project=project)
    before = report_get(project=project)
    queued(project, 6, votes=2)
    for person in people:
        for _ in range(6):
            vote(person, "right", leased(project, person))
    report_refresh(project=project)
    after = report_get(project=project)
    assert before is not None
    assert after is not None
    assert after.figures | {"seconds": 0} == before.figures | {"seconds": 0}  # what it took differs


def test_each_person_sees_the_first_system_left_half_of_the_time(project: Project) -> None:
    evaluation = queued(project, 60, votes=2)
    ana, ben = annotators_make(project, 2)
    for person in (ana, ben):
        for _ in range(31):
            vote(person, "tie", leased(project, person))
        sides = list(
            answers_of(evaluation).filter(annotator=person).values_list("left_is", flat=True)
        )
        assert abs(sides.count("a") - sides.count("b")) == 1


def test_nobody_gives_more_answers_than_one_may(project: Project) -> None:
    evaluation = queued(project, 10, most_each=4)
    ana, ben = annotators_make(project, 2)
    for _ in range(4):
        vote(ana, "left", leased(project, ana))
    assert nothing(project, ana)
    assert leased(project, ben).kind == "blind"
    pairs_make(project, 1)
    assert leased(project, ana).kind == "pair"  # other work is not closed to them
    assert answers_of(evaluation).count() == 4


def test_what_has_ended_is_asked_no_more_and_keeps_what_is_in_hand(project: Project) -> None:
    evaluation = queued(project, 5)
    ana, ben = annotators_make(project, 2)
    held = leased(project, ana)
    assert blind_pairs_close(evaluation_set=evaluation) == 4
    assert blind_pairs_close(evaluation_set=evaluation) == 0
    assert nothing(project, ben)
    vote(ana, "left", held)
    assert answers_of(evaluation).count() == 1


def test_it_is_changed_and_taken_back_like_any_answer(project: Project, ana: User) -> None:
    evaluation = queued(project, 2)
    first = vote(ana, "left", leased(project, ana)).vote
    assert selectors.undo_query(project=project, annotator=ana) == f"answer={first.pk}"
    shown = selectors.answered_pair(project=project, annotator=ana, vote=first.pk)
    assert shown.side == "left"
    assert [a.pk for a in selectors.answers_of(project=project, annotator=ana)] == [first.pk]
    changed = services.vote_revise(
        vote=first.pk, annotator=ana, idempotency_key="again", side="right"
    ).vote
    assert answers_of(evaluation).get().pk == changed.pk
    assert answers_of(evaluation).get().choice != first.choice
    services.vote_withdraw(vote=changed.pk, annotator=ana)
    assert not answers_of(evaluation).exists()
    assert Task.objects.get(pk=first.task_id).state == "open"


def test_a_skip_says_which_system_stood_left(project: Project, ana: User) -> None:
    queued(project, 2)
    lease = leased(project, ana)
    services.slot_skip(slot=lease.slot, annotator=ana, reason="hard")
    assert Skip.objects.get().left_is == lease.left_is


def test_it_is_never_a_hidden_repeat_or_an_audit(project: Project, ana: User) -> None:
    labeling = selectors.settings_get(project=project)
    labeling.repeat_share, labeling.audit_share, labeling.audit_rate = 0.2, 0.2, 1.0
    labeling.save()
    queued(project, 40)
    for _ in range(40):
        vote(ana, "left", leased(project, ana))
    assert nothing(project, ana)
    assert set(Slot.objects.values_list("kind", flat=True)) == {"regular"}


def test_whoever_shows_pairs_by_program_shows_these(project: Project, ana: User) -> None:
    queued(project, 1)
    got = services.slot_lease_next(project=project, annotator=ana, kinds=("pair",))
    assert not isinstance(got, NothingReason)
    assert got.kind == "blind"


def test_the_page_shows_it_as_a_pair_without_naming_a_system(
    project: Project, ana: User, client: Client
) -> None:
    queued(project, 3)
    client.force_login(ana)
    page = client.get(reverse("labeling:label", args=[project.slug])).content.decode()
    assert "system says" in page or "system answers" in page
    assert "blind" not in page
    assert "sigma-7" not in page
    assert "tau-9" not in page
    assert "duel" not in page
    lease = leased(project, ana)
    response = client.post(
        reverse("labeling:vote", args=[project.slug]),
        {"slot": lease.slot, "key": lease.key, "answer": "left"},
    )
    assert response.status_code == 302
    mine = client.get(reverse("labeling:answers", args=[project.slug])).content.decode()
    assert "Question" in mine


def test_it_has_no_gold_and_two_answers(project: Project) -> None:
    queued(project, 1)
    task = Task.objects.get()
    for change in ({"gold": "a"}, {"response_b": None}, {"low": 1, "high": 2}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Task.objects.filter(pk=task.pk).update(**change)
    assert Response.objects.filter(origin="model").count() == 2


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("votes_each", {"votes": 0}),
        ("votes_each", {"votes": 21}),
        ("most_each", {"most_each": 0}),
        ("priority", {"priority": -1.0}),
    ],
)
def test_what_cannot_be_asked_is_refused(
    project: Project, field: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(DomainError) as refused:
        queued(project, 2, **settings)
    assert refused.value.field == field
    assert not EvaluationSet.objects.exists()
