"""Changing one's mind: history is added to, never overwritten."""

import pytest

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, Missing
from apps.labeling import services
from apps.labeling.models import Comparison, Decision, Slot, Vote
from apps.labeling.services import NothingReason
from tests.labeling.pairs import annotators_make, pairs_make, vote


def test_a_revision_adds_a_row_and_the_old_one_stays(project: Project, ana: User) -> None:
    pairs_make(project)
    first = vote(project, ana, "a").vote
    result = services.vote_revise(
        vote=first.pk,
        annotator=ana,
        idempotency_key="again",
        choice="tie",
        rationale="Hm.",
    )
    first.refresh_from_db()
    assert (first.choice, first.is_current) == ("a", False)
    second = Vote.objects.get(is_current=True)
    assert second == result.vote
    assert (second.choice, second.revision, second.supersedes) == ("tie", 2, first)
    assert (second.slot, second.left_is) == (first.slot, first.left_is)
    assert Comparison.objects.get(pk=first.comparison_id).n_votes == 1


def test_a_revision_changes_the_decision(project: Project) -> None:
    (pair,) = pairs_make(project, 1)
    people = annotators_make(project, 3)
    cast = [vote(project, person, "a").vote for person in people]
    assert Decision.objects.get(comparison=pair).winner == "a"
    services.vote_revise(vote=cast[0].pk, annotator=people[0], idempotency_key="again", choice="b")
    decision = Decision.objects.get(comparison=pair)
    assert (decision.outcome, decision.winner, decision.n_a, decision.n_b) == (
        "needs_votes",
        "",
        2,
        1,
    )
    pair.refresh_from_db()
    assert (pair.state, pair.overlap) == ("open", 4)
    services.vote_revise(
        vote=Vote.objects.get(annotator=people[0], is_current=True).pk,
        annotator=people[0],
        idempotency_key="and back",
        choice="a",
    )
    pair.refresh_from_db()
    # the extra vote that had been asked for is not needed any more
    assert (pair.state, pair.overlap) == ("decided", 3)
    assert pair.slots.get(position=4).state == "withdrawn"


def test_revising_twice_by_the_same_key_changes_nothing(project: Project, ana: User) -> None:
    pairs_make(project)
    first = vote(project, ana, "a").vote
    change = {"vote": first.pk, "annotator": ana, "idempotency_key": "again", "choice": "b"}
    once = services.vote_revise(**change)
    twice = services.vote_revise(**change)
    assert twice.replayed
    assert twice.vote == once.vote
    assert Vote.objects.count() == 2


def test_only_the_current_revision_can_be_revised(project: Project, ana: User) -> None:
    pairs_make(project)
    first = vote(project, ana, "a").vote
    services.vote_revise(vote=first.pk, annotator=ana, idempotency_key="one", choice="b")
    with pytest.raises(Conflict) as caught:
        services.vote_revise(vote=first.pk, annotator=ana, idempotency_key="two", choice="tie")
    assert caught.value.code == "not_current"
    assert Vote.objects.get(is_current=True).choice == "b"


def test_nobody_revises_or_withdraws_the_answer_of_another(
    project: Project, ana: User, ben: User
) -> None:
    pairs_make(project)
    anas = vote(project, ana, "a").vote
    with pytest.raises(Missing):
        services.vote_revise(vote=anas.pk, annotator=ben, idempotency_key="k", choice="b")
    with pytest.raises(Missing):
        services.vote_withdraw(vote=anas.pk, annotator=ben)
    assert Vote.objects.get().is_current


def test_a_withdrawn_answer_leaves_the_count_and_goes_to_others(
    project: Project, ana: User, ben: User
) -> None:
    (pair,) = pairs_make(project, 1, overlap=1, max_overlap=1, least_votes=1, least_agreeing=1)
    cast = vote(project, ana, "a").vote
    decision = services.vote_withdraw(vote=cast.pk, annotator=ana)
    assert decision.n_votes == 0
    pair.refresh_from_db()
    assert (pair.state, pair.n_votes) == ("open", 0)
    assert Decision.objects.get(comparison=pair).outcome == "needs_votes"
    assert not Vote.objects.get(pk=cast.pk).is_current
    assert isinstance(services.slot_lease_next(project=project, annotator=ana), NothingReason)
    assert vote(project, ben, "b").vote.slot_id == cast.slot_id
    assert AuditEvent.objects.filter(action="vote.withdrawn", actor=ana).exists()
    with pytest.raises(Conflict):
        services.vote_withdraw(vote=cast.pk, annotator=ana)


def test_votes_leave_an_adjudicated_outcome_alone(project: Project, ana: User, ben: User) -> None:
    (pair,) = pairs_make(project, 1)
    vote(project, ana, "a")
    Decision.objects.filter(comparison=pair).update(
        outcome="adjudicated", winner="b", reason="Rita: the source says so."
    )
    vote(project, ben, "a")
    decision = Decision.objects.get(comparison=pair)
    assert (decision.outcome, decision.winner, decision.n_a) == ("adjudicated", "b", 2)
    assert decision.reason == "Rita: the source says so."


def test_a_dropped_comparison_is_not_revived_by_a_vote_in_hand(project: Project, ana: User) -> None:
    (pair,) = pairs_make(project, 1)
    services.slot_lease_next(project=project, annotator=ana)
    Comparison.objects.filter(pk=pair.pk).update(state="dropped")
    vote(project, ana, "a")
    pair.refresh_from_db()
    assert pair.state == "dropped"
    assert Slot.objects.filter(comparison=pair, state="done").count() == 1
