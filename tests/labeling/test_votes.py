"""One vote: what is stored, what it decides, and what happens when things come twice or late."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError, Missing, Refused
from apps.labeling import services
from apps.labeling.models import Comparison, Decision, Guideline, LabelingSettings, Slot, Vote
from apps.labeling.services import Lease, NothingReason
from tests.labeling.pairs import annotators_make, lapse, leased, pairs_make, vote


def test_a_vote_stores_the_response_the_side_and_the_guideline(project: Project, ana: User) -> None:
    pairs_make(project)
    lease = leased(project, ana)
    result = services.vote_cast(
        slot=lease.slot,
        annotator=ana,
        idempotency_key=lease.key,
        side="left",
        flags=["unsafe", "unsafe"],
        rationale="  It answers.  ",
        active_ms=1200,
        wall_ms=1500,
    )
    stored = Vote.objects.get()
    assert stored.pk == result.vote.pk
    comparison = Comparison.objects.get(pk=lease.comparison)
    shown_left = comparison.response_a if lease.left_is == "a" else comparison.response_b
    assert stored.chosen == shown_left
    assert shown_left.messages == lease.left
    assert (stored.choice, stored.left_is) == (lease.left_is, lease.left_is)
    assert stored.guideline == Guideline.objects.get()
    assert (stored.flags, stored.rationale) == (["unsafe"], "It answers.")
    assert comparison.n_votes == 1
    assert Slot.objects.get(pk=lease.slot).state == "done"


def test_the_answer_to_a_vote_carries_the_next_pair(project: Project, ana: User) -> None:
    pairs_make(project, 2)
    result = vote(project, ana)
    assert isinstance(result.next, Lease)
    assert result.next.comparison != result.vote.comparison_id
    assert result.next.n_today == 1
    assert leased(project, ana).slot == result.next.slot


def test_flipping_every_display_gives_the_same_decisions(project: Project) -> None:
    """Everyone prefers the answer that names a number, wherever it stands."""
    pairs_make(project, 4)
    outcomes = []
    for flip in (False, True):
        for person in _crowd(project, flip):
            for _ in range(4):
                lease = leased(project, person)
                if flip:
                    other = "b" if lease.left_is == "a" else "a"
                    Slot.objects.filter(pk=lease.slot).update(left_is=other)
                    lease = leased(project, person)
                better = "left" if "Twenty-four" in lease.left[0]["content"] else "right"
                services.vote_cast(
                    slot=lease.slot, annotator=person, idempotency_key=lease.key, side=better
                )
        outcomes.append(
            list(
                Decision.objects.order_by("comparison").values_list(
                    "comparison__external_id", "outcome", "winner"
                )
            )
        )
        Vote.objects.all().delete()
        Decision.objects.all().delete()
        Slot.objects.all().update(state="free", annotator=None, leased_until=None, left_is="")
        Comparison.objects.all().update(n_votes=0, state="open")
    assert outcomes[0] == outcomes[1]
    assert {winner for _, _, winner in outcomes[0]} == {"a"}


def _crowd(project: Project, flip: bool) -> list[User]:
    people = list(User.objects.filter(username__startswith="annotator-"))
    return people if flip else annotators_make(project, 3)


def test_the_third_agreeing_vote_decides(project: Project) -> None:
    (pair,) = pairs_make(project, 1)
    for person in annotators_make(project, 3):
        vote(project, person, "b")
    pair.refresh_from_db()
    decision = Decision.objects.get(comparison=pair)
    assert (pair.state, pair.n_votes) == ("decided", 3)
    assert (decision.outcome, decision.winner, decision.n_b) == ("accepted", "b", 3)
    assert decision.rule["least_share"] == 0.6
    assert "B has 3 of 3 votes" in decision.reason


def test_a_contested_pair_gets_extra_votes_up_to_the_maximum(project: Project) -> None:
    (pair,) = pairs_make(project, 1, overlap=3, max_overlap=5)
    people = annotators_make(project, 6)
    for person, choice in zip(people[:3], ("a", "b", "tie"), strict=True):
        vote(project, person, choice)
    pair.refresh_from_db()
    # one more slot, not two: after 1–1–1 two more votes can still make three of five
    assert (pair.state, pair.overlap) == ("open", 4)
    vote(project, people[3], "a")
    vote(project, people[4], "b")
    pair.refresh_from_db()
    assert (pair.state, pair.overlap, pair.n_votes) == ("contested", 5, 5)
    reason = services.slot_lease_next(project=project, annotator=people[5])
    assert isinstance(reason, NothingReason)
    assert reason.code == "all_done"


def test_an_easy_pair_gets_no_extra_vote(project: Project) -> None:
    (pair,) = pairs_make(project, 1, overlap=3, max_overlap=5)
    for person in annotators_make(project, 3):
        vote(project, person, "a")
    assert pair.slots.count() == 3


def test_a_double_submit_returns_what_was_stored(project: Project, ana: User) -> None:
    pairs_make(project, 3)
    lease = leased(project, ana)
    submit = {"slot": lease.slot, "annotator": ana, "idempotency_key": lease.key, "side": "left"}
    first = services.vote_cast(**submit)
    second = services.vote_cast(**submit)
    assert second.replayed
    assert second.vote == first.vote
    assert second.decision == first.decision
    assert second.next.slot == first.next.slot
    assert Vote.objects.count() == 1


def test_a_different_vote_under_the_same_key_is_refused(project: Project, ana: User) -> None:
    pairs_make(project, 3)
    lease = leased(project, ana)
    services.vote_cast(slot=lease.slot, annotator=ana, idempotency_key=lease.key, side="left")
    with pytest.raises(Conflict) as caught:
        services.vote_cast(slot=lease.slot, annotator=ana, idempotency_key=lease.key, side="right")
    assert caught.value.code == "key_reused"
    following = leased(project, ana)
    with pytest.raises(Conflict) as caught:
        services.vote_cast(
            slot=following.slot, annotator=ana, idempotency_key=lease.key, side="left"
        )
    assert caught.value.code == "key_reused"
    assert Slot.objects.get(pk=following.slot).state == "leased"
    assert Vote.objects.count() == 1


def test_a_second_vote_on_an_answered_pair_is_refused(project: Project, ana: User) -> None:
    pairs_make(project)
    lease = leased(project, ana)
    services.vote_cast(slot=lease.slot, annotator=ana, idempotency_key="one", side="left")
    with pytest.raises(Conflict) as caught:
        services.vote_cast(slot=lease.slot, annotator=ana, idempotency_key="two", side="left")
    assert caught.value.code == "already_voted"


def test_a_lease_that_ran_out_is_still_good_while_nobody_took_it(
    project: Project, ana: User
) -> None:
    pairs_make(project)
    lease = leased(project, ana)
    lapse(lease.slot)
    services.vote_cast(slot=lease.slot, annotator=ana, idempotency_key=lease.key, side="left")
    assert Vote.objects.get().slot_id == lease.slot


def test_a_lost_slot_is_replaced_by_a_free_one_of_the_same_pair(
    project: Project, ana: User, ben: User
) -> None:
    (pair,) = pairs_make(project, 1, overlap=2, max_overlap=2, least_votes=2, least_agreeing=2)
    lease = leased(project, ana)
    lapse(lease.slot)
    assert leased(project, ben).slot == lease.slot
    result = services.vote_cast(
        slot=lease.slot, annotator=ana, idempotency_key=lease.key, side="left"
    )
    assert result.vote.slot_id != lease.slot
    assert result.vote.choice == lease.left_is
    assert pair.slots.filter(state="done").count() == 1


def test_a_lost_lease_counts_nothing_and_says_so(project: Project, ana: User, ben: User) -> None:
    pairs_make(project, 1, overlap=1, max_overlap=1, least_votes=1, least_agreeing=1)
    lease = leased(project, ana)
    lapse(lease.slot)
    vote(project, ben)
    with pytest.raises(Conflict, match="not counted") as caught:
        services.vote_cast(slot=lease.slot, annotator=ana, idempotency_key=lease.key, side="left")
    assert caught.value.code == "lease_lost"
    assert Vote.objects.get().annotator == ben


def test_a_slot_one_never_held_cannot_be_voted_on(project: Project, ana: User, ben: User) -> None:
    pairs_make(project)
    lease = leased(project, ben)
    for key in ("made-up", lease.key):  # Ben's key proves nothing for Ana
        with pytest.raises(Conflict) as caught:
            services.vote_cast(slot=lease.slot, annotator=ana, idempotency_key=key, side="left")
        assert caught.value.code == "lease_lost"
    assert not Vote.objects.exists()


def test_an_outsider_learns_nothing_and_an_engineer_may_not_vote(
    project: Project, ana: User, olga: User, emil: User
) -> None:
    pairs_make(project)
    lease = leased(project, ana)
    with pytest.raises(Missing):
        services.vote_cast(slot=lease.slot, annotator=olga, idempotency_key="k", side="left")
    with pytest.raises(Missing):
        services.vote_cast(slot=10**9, annotator=ana, idempotency_key="k", side="left")
    with pytest.raises(Refused):
        services.vote_cast(slot=lease.slot, annotator=emil, idempotency_key="k", side="left")


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        ({}, "choice"),
        ({"choice": "a", "side": "left"}, "choice"),
        ({"choice": "c"}, "choice"),
        ({"side": "up"}, "side"),
        ({"side": "left", "strength": 3}, "strength"),
        ({"side": "tie", "strength": 1}, "strength"),
        ({"side": "left", "rationale": "x" * 4001}, "rationale"),
        ({"side": "left", "flags": ["rude"]}, "flags"),
        ({"side": "left", "active_ms": -1}, "active_ms"),
        ({"side": "left", "wall_ms": 10**12}, "wall_ms"),
    ],
)
def test_a_malformed_answer_names_its_field_and_stores_nothing(
    project: Project, ana: User, answer: dict, field: str
) -> None:
    pairs_make(project)
    lease = leased(project, ana)
    with pytest.raises(DomainError) as caught:
        services.vote_cast(slot=lease.slot, annotator=ana, idempotency_key=lease.key, **answer)
    assert caught.value.field == field
    assert not Vote.objects.exists()


def test_a_choice_the_project_does_not_offer_is_refused(project: Project, ana: User) -> None:
    pairs_make(project, show_tie=False)
    with pytest.raises(Refused) as caught:
        vote(project, ana, "tie")
    assert caught.value.field == "choice"


def test_nobody_looked_longer_than_they_held_the_pair(project: Project, ana: User) -> None:
    pairs_make(project)
    lease = leased(project, ana)
    Slot.objects.filter(pk=lease.slot).update(leased_at=lease.leased_at - timedelta(seconds=10))
    vote(project, ana, active_ms=3_600_000, wall_ms=86_400_000)
    stored = Vote.objects.get()
    assert (stored.active_ms, stored.wall_ms) == (10_000, 10_000)


def test_gold_pairs_look_and_count_like_any_other(project: Project, ana: User) -> None:
    LabelingSettings.objects.create(project=project, overlap=1)
    services.comparisons_import(
        project=project,
        rows=[
            {"prompt": "p", "response_a": "1", "response_b": "2", "stratum": "gold", "gold": "a"}
        ],
    )
    lease = leased(project, ana)
    assert Slot.objects.get(pk=lease.slot).kind == "gold"
    assert vote(project, ana).decision.n_votes == 1


def test_a_stored_vote_cannot_be_overwritten(project: Project, ana: User) -> None:
    pairs_make(project)
    stored = vote(project, ana).vote
    with pytest.raises(IntegrityError, match="never overwritten"), transaction.atomic():
        Vote.objects.filter(pk=stored.pk).update(choice="b")


# Changing one's mind: history is added to, never overwritten.


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
    *people, _ = annotators_make(project, 4)  # one of whom is still to vote
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
    assert Slot.objects.filter(task=pair, state="done").count() == 1
