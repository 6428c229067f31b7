"""Who gets which pair, and for how long."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from apps.accounts.models import Membership, Project, User
from apps.common.errors import Missing, Refused
from apps.labeling import services
from apps.labeling.models import Comparison, LabelingSettings, Skip, Slot
from apps.labeling.services import NothingReason
from tests.labeling.pairs import annotators_make, lapse, leased, pairs_make, rows_make, vote


def nothing(project: Project, annotator: User) -> NothingReason:
    reason = services.slot_lease_next(project=project, annotator=annotator)
    assert isinstance(reason, NothingReason), reason
    return reason


def test_a_reload_shows_the_same_pair_on_the_same_sides(project: Project, ana: User) -> None:
    pairs_make(project, 20)
    first = leased(project, ana)
    for _ in range(5):
        again = leased(project, ana)
        assert (again.slot, again.left_is, again.key) == (first.slot, first.left_is, first.key)
        assert again.left == first.left
    assert Slot.objects.filter(state="leased").count() == 1


def test_the_side_is_a_fair_coin_that_the_server_throws(project: Project) -> None:
    pairs_make(project, 40)
    shown = [leased(project, person).left_is for person in annotators_make(project, 40)]
    assert 8 <= shown.count("a") <= 32  # outside with probability 0.0002 if the coin is fair


def test_the_side_stays_when_a_lapsed_pair_comes_back(project: Project, ana: User) -> None:
    pairs_make(project, 1, overlap=1, max_overlap=5)
    first = leased(project, ana)
    lapse(first.slot)
    again = leased(project, ana)
    assert (again.comparison, again.left_is) == (first.comparison, first.left_is)


def test_two_people_never_hold_the_same_slot(project: Project, ana: User, ben: User) -> None:
    pairs_make(project, 1, overlap=2, max_overlap=5)
    assert leased(project, ana).slot != leased(project, ben).slot


def test_nobody_gets_a_pair_again_after_voting_or_skipping(project: Project, ana: User) -> None:
    pairs_make(project, 6)
    seen = []
    for number in range(6):
        lease = leased(project, ana)
        seen.append(lease.comparison)
        if number % 2:
            services.slot_skip(slot=lease.slot, annotator=ana, reason="not my subject")
        else:
            vote(project, ana)
    assert len(set(seen)) == 6
    assert nothing(project, ana).code == "yours_done"
    assert Skip.objects.count() == 3


def test_a_lapsed_lease_goes_to_the_next_who_asks(project: Project, ana: User, ben: User) -> None:
    pairs_make(project, 1, overlap=1, max_overlap=5)
    held = leased(project, ana)
    reason = nothing(project, ben)
    assert reason.code == "held"
    assert "in at most 15 minutes" in reason.text
    assert reason.back_at == held.leased_until
    lapse(held.slot)
    assert leased(project, ben).slot == held.slot


def test_an_own_lapsed_lease_is_taken_up_again(project: Project, ana: User) -> None:
    pairs_make(project, 5)
    held = leased(project, ana)
    lapse(held.slot)
    again = leased(project, ana)
    assert again.slot == held.slot
    assert Slot.objects.get(pk=held.slot).leased_until == held.leased_until  # time stands still


def test_what_others_need_to_do_is_told_from_what_is_done(
    project: Project, ana: User, ben: User
) -> None:
    LabelingSettings.objects.create(
        project=project, overlap=2, max_overlap=2, least_votes=2, least_agreeing=2
    )
    assert nothing(project, ana).code == "empty"
    services.comparisons_import(project=project, rows=rows_make(1))
    vote(project, ana)
    assert nothing(project, ana).code == "yours_done"
    vote(project, ben)
    assert nothing(project, ana).code == "all_done"
    assert nothing(project, ben).code == "all_done"


def test_a_paused_annotator_is_told_why(project: Project, ana: User) -> None:
    pairs_make(project)
    Membership.objects.filter(user=ana).update(paused_reason="Please read the new guidelines.")
    reason = nothing(project, ana)
    assert reason.code == "paused"
    assert "Please read the new guidelines." in reason.text


def test_a_paused_annotator_may_finish_the_pair_in_hand(project: Project, ana: User) -> None:
    pairs_make(project)
    lease = leased(project, ana)
    Membership.objects.filter(user=ana).update(paused_reason="Lunch.")
    result = services.vote_cast(
        slot=lease.slot, annotator=ana, idempotency_key=lease.key, choice="a"
    )
    assert isinstance(result.next, NothingReason)
    assert result.next.code == "paused"


def test_outsiders_and_engineers_get_no_pair(project: Project, olga: User, emil: User) -> None:
    pairs_make(project)
    with pytest.raises(Missing):
        services.slot_lease_next(project=project, annotator=olga)
    with pytest.raises(Refused):
        services.slot_lease_next(project=project, annotator=emil)


def test_the_most_urgent_pair_comes_first_in_the_priority_share(
    project: Project, ana: User
) -> None:
    pairs_make(project, 30, random_share=0.01)
    urgent = Comparison.objects.order_by("-shuffle").first()
    Slot.objects.filter(comparison=urgent).update(priority=5.0)
    drawn = [vote(project, ana).vote.comparison_id for _ in range(10)]
    assert urgent.pk in drawn  # missed with probability 0.01**10


def test_the_random_share_follows_the_shuffle_whatever_the_priorities(
    project: Project, ana: User
) -> None:
    pairs = pairs_make(project, 10, random_share=1.0)
    Slot.objects.filter(comparison=pairs[-1]).update(priority=5.0)
    drawn = [vote(project, ana).vote.comparison_id for _ in range(9)]
    assert drawn == [pair.pk for pair in pairs[:9]]


def test_after_the_end_of_the_shuffle_comes_what_was_left_behind(
    project: Project, ana: User, ben: User
) -> None:
    pairs = pairs_make(project, 3, overlap=1, max_overlap=5, random_share=1.0)
    bens = leased(project, ben)
    assert bens.comparison == pairs[0].pk
    vote(project, ana)
    services.slot_skip(slot=bens.slot, annotator=ben)
    vote(project, ana)
    assert leased(project, ana).comparison == pairs[0].pk


def test_the_third_skip_by_different_people_calls_for_an_admin(project: Project) -> None:
    (pair,) = pairs_make(project, 1)
    for person in annotators_make(project, 3):
        services.slot_skip(
            slot=leased(project, person).slot, annotator=person, reason="cut off in the middle"
        )
    pair.refresh_from_db()
    assert pair.state == "review"
    assert set(pair.slots.values_list("state", flat=True)) == {"withdrawn"}


def test_skipping_what_one_no_longer_holds_changes_nothing(
    project: Project, ana: User, ben: User
) -> None:
    pairs_make(project, 1, overlap=1, max_overlap=5)
    held = leased(project, ana)
    lapse(held.slot)
    leased(project, ben)
    reason = services.slot_skip(slot=held.slot, annotator=ana)
    assert isinstance(reason, NothingReason)
    assert not Skip.objects.exists()
    assert Slot.objects.get(pk=held.slot).annotator == ben


def test_a_given_comparison_gets_another_slot_up_to_the_maximum(project: Project) -> None:
    (pair,) = pairs_make(project, 1, overlap=1, max_overlap=2, least_votes=2, least_agreeing=2)
    people = annotators_make(project, 3)
    slots = [services.slot_lease_for(comparison=pair, annotator=person) for person in people[:2]]
    assert len(set(slots)) == 2
    pair.refresh_from_db()
    assert pair.overlap == 2
    with pytest.raises(services.leasing.Conflict, match="at most 2") as caught:
        services.slot_lease_for(comparison=pair, annotator=people[2])
    assert caught.value.code == "comparison_full"
    with pytest.raises(services.leasing.Conflict) as caught:
        services.slot_lease_for(comparison=pair, annotator=people[0])
    assert caught.value.code == "already_met"


def test_a_lapsed_pair_that_was_dropped_meanwhile_goes_to_nobody(
    project: Project, ana: User, ada: User
) -> None:
    pair = pairs_make(project, 1, overlap=1, max_overlap=1)[0]
    held = leased(project, ana)
    services.comparison_drop(comparison=pair, by=ada)
    lapse(held.slot)
    [ben] = annotators_make(project, 1)
    assert nothing(project, ben).code == "all_done"
    standing = services.standing_of(project=project, annotator=ben)
    assert standing.nothing is not None
    assert standing.nothing.code == "all_done"


@pytest.mark.django_db(transaction=True)
def test_a_pair_that_somebody_is_just_taking_is_held_and_not_done() -> None:
    project = Project.objects.create(slug="crowd", name="Crowd")
    pairs_make(project, 1, overlap=1, max_overlap=1)
    [ben] = annotators_make(project, 1)
    taking, look = threading.Event(), threading.Event()

    def take() -> None:
        try:
            with transaction.atomic():
                Slot.objects.select_for_update(no_key=True).get()
                taking.set()
                assert look.wait(timeout=10)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(take)
        assert taking.wait(timeout=10)
        reason = nothing(project, ben)
        look.set()
        other.result()
    assert reason.code == "held"
    assert reason.back_at is not None
