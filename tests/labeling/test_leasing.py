"""Who gets which pair, and for how long."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from apps.accounts.models import Membership, Project, User
from apps.common.errors import Missing, Refused
from apps.labeling import services
from apps.labeling.models import Annotator, Comparison, LabelingSettings, Skip, Slot, Vote
from apps.labeling.services import Lease, NothingReason, leasing, statements
from apps.labeling.services.eligibility import Eligibility
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
    lease = leased(project, ana)
    reason = nothing(project, ben)
    assert reason.code == "held"
    assert "15 minutes" in reason.text
    assert reason.back_at == lease.leased_until
    lapse(lease.slot)
    assert leased(project, ben).slot == lease.slot


def test_an_own_lapsed_lease_is_taken_up_again(project: Project, ana: User) -> None:
    pairs_make(project, 5)
    lease = leased(project, ana)
    lapse(lease.slot)
    again = leased(project, ana)
    assert again.slot == lease.slot
    assert Slot.objects.get(pk=lease.slot).leased_until == lease.leased_until  # time stands still


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
    Slot.objects.filter(task=urgent).update(priority=5.0)
    drawn = [vote(project, ana).vote.comparison_id for _ in range(10)]
    assert urgent.pk in drawn  # missed with probability 0.01**10


def test_the_random_share_follows_the_shuffle_whatever_the_priorities(
    project: Project, ana: User
) -> None:
    pairs = pairs_make(project, 10, random_share=1.0)
    Slot.objects.filter(task=pairs[-1]).update(priority=5.0)
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
    lease = leased(project, ana)
    lapse(lease.slot)
    leased(project, ben)
    reason = services.slot_skip(slot=lease.slot, annotator=ana)
    assert isinstance(reason, NothingReason)
    assert not Skip.objects.exists()
    assert Slot.objects.get(pk=lease.slot).annotator == ben


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
    lease = leased(project, ana)
    services.comparison_drop(comparison=pair, by=ada)
    lapse(lease.slot)
    [ben] = annotators_make(project, 1)
    assert nothing(project, ben).code == "all_done"
    status = services.labeling_status(project=project, annotator=ben)
    assert status.nothing is not None
    assert status.nothing.code == "all_done"


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


# What the queue is mixed from: gold, hidden repeats, audit re-votes, limits; and who gets what.


# Audits are of votes on decided comparisons.
ONE_DECIDES = {"overlap": 1, "max_overlap": 1, "least_votes": 1, "least_agreeing": 1}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`always("gold")`: every hand-out comes from that stream first."""

    def choose(stream: str) -> None:
        monkeypatch.setattr(Eligibility, "stream", lambda self, draw: stream)

    monkeypatch.setattr(leasing, "REPEAT_AFTER", 0)
    return choose


def gold_make(project: Project, n: int = 2) -> None:
    rows = [
        row | {"stratum": "gold", "gold": "a", "id": f"gold-{number}"}
        for number, row in enumerate(rows_make(n, start=500))
    ]
    services.comparisons_import(project=project, rows=rows)


def kinds(project: Project, state: str = "done") -> Counter[str]:
    return Counter(Slot.objects.filter(project=project, state=state).values_list("kind", flat=True))


def test_shares_of_the_streams_are_those_the_project_sets() -> None:
    row = (
        "reviewer",
        "",
        None,
        0,
        None,
        0,
        0,
        [],
        [],
        [],
        False,
        [],
        0,
        0,
        900,
        0.5,
        0.1,
        0.2,
        0.05,
        0.1,
    )
    draws = [(number + 0.5) / 1000 for number in range(1000)]
    reviewer = Eligibility(*row)
    assert Counter(map(reviewer.stream, draws)) == {
        "gold": 100,
        "repeat": 200,
        "audit": 50,
        "queue": 650,
    }
    annotator = Eligibility("annotator", *row[1:])
    assert Counter(map(annotator.stream, draws)) == {"gold": 100, "repeat": 200, "queue": 700}


def test_every_annotator_gets_each_gold_pair_once_beside_the_overlap(
    project: Project,
    ana: User,
    always: Any,
) -> None:
    pairs_make(
        project, 1, overlap=1, max_overlap=1, least_votes=1, least_agreeing=1, gold_share=0.2
    )
    gold_make(project)
    assert not Slot.objects.filter(kind="gold").exists()  # made when handed out
    always("gold")
    ben = annotators_make(project, 1)[0]
    for person in (ana, ben):
        seen = {vote(project, person).vote.comparison.external_id for _ in range(2)}
        assert seen == {"gold-0", "gold-1"}
    assert vote(project, ana).vote.comparison.external_id == "pair-1"  # then the queue
    assert kinds(project) == {"gold": 4, "regular": 1}
    assert isinstance(services.slot_lease_next(project=project, annotator=ben), NothingReason)


def test_a_gold_share_takes_gold_pairs_out_of_the_common_queue(
    project: Project, ana: User, ada: User
) -> None:
    pairs_make(project, 1)
    gold_make(project)
    assert Slot.objects.filter(kind="gold", state="free").count() == 6
    services.labeling_settings_update(project=project, by=ada, gold_share=0.1)
    assert not Slot.objects.filter(kind="gold", state="free").exists()
    assert vote(project, ana)


def test_a_hidden_repeat_is_mirrored_and_decides_nothing(
    project: Project, ana: User, always: Any
) -> None:
    pairs_make(project, 1)
    first = vote(project, ana, "a").vote
    always("repeat")
    again = leased(project, ana)
    assert again.comparison == first.comparison_id
    assert again.left_is != first.left_is
    result = services.vote_cast(
        slot=again.slot, annotator=ana, idempotency_key=again.key, choice="b"
    )
    slot = Slot.objects.get(pk=again.slot)
    assert (slot.kind, slot.measures_id) == ("repeat", first.pk)
    assert result.decision.n_votes == 1  # the first vote alone
    assert Comparison.objects.get().n_votes == 1
    # each pair comes back once
    assert isinstance(services.slot_lease_next(project=project, annotator=ana), NothingReason)


def test_a_repeat_comes_no_sooner_than_twenty_votes_later(
    project: Project, ana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs_make(project, leasing.REPEAT_AFTER + 2)
    monkeypatch.setattr(Eligibility, "stream", lambda self, draw: "repeat")
    order = [vote(project, ana).vote for _ in range(leasing.REPEAT_AFTER + 1)]
    again = leased(project, ana)
    assert again.comparison == order[0].comparison_id
    assert kinds(project) == {"regular": leasing.REPEAT_AFTER + 1}


def test_a_reviewer_audits_a_sampled_vote_without_seeing_it(
    project: Project, ana: User, rita: User, always: Any
) -> None:
    pairs_make(project, 3, audit_share=0.1, audit_rate=1.0, **ONE_DECIDES)
    audited = [vote(project, ana).vote for _ in range(3)]
    Slot.objects.filter(state="free").update(state="withdrawn")  # nothing_else else is to do
    always("audit")
    seen = {}
    for _ in range(3):
        lease = leased(project, rita)
        slot = Slot.objects.get(pk=lease.slot)
        assert slot.kind == "audit"
        seen[slot.measures_id] = vote(project, rita, "b").decision.n_votes
    assert seen == {a.pk: 1 for a in audited}  # once each, and the decision rests on Ana's vote
    assert isinstance(services.slot_lease_next(project=project, annotator=rita), NothingReason)


def test_the_audit_sample_is_the_share_of_votes_the_project_sets(
    project: Project, ana: User, rita: User, always: Any
) -> None:
    pairs_make(project, 60, audit_share=0.1, audit_rate=0.25, **ONE_DECIDES)
    for _ in range(60):
        vote(project, ana)
    Slot.objects.filter(state="free").update(state="withdrawn")
    always("audit")
    n_audited = 0
    while isinstance(services.slot_lease_next(project=project, annotator=rita), Lease):
        vote(project, rita)
        n_audited += 1
    assert 5 <= n_audited <= 26  # 15 expected; a tenth of a percent lies outside
    assert kinds(project)["audit"] == n_audited


def test_an_audit_that_was_left_lying_goes_to_another_reviewer(
    project: Project, ana: User, ada: User, rita: User, always: Any
) -> None:
    pairs_make(project, 1, audit_share=0.1, audit_rate=1.0, **ONE_DECIDES)
    vote(project, ana)
    Slot.objects.filter(state="free").update(state="withdrawn")
    always("audit")
    lease = leased(project, rita)
    assert isinstance(services.slot_lease_next(project=project, annotator=ada), NothingReason)
    Slot.objects.filter(pk=lease.slot).update(leased_until="2020-01-01T00:00Z")
    assert leased(project, ada).comparison == lease.comparison


def test_what_measures_people_looks_like_work(project: Project, ana: User, always: Any) -> None:
    pairs_make(project, 2, gold_share=0.1)
    gold_make(project, 1)
    plain = leased(project, ana)
    vote(project, ana)
    shapes = {frozenset(vars_of(plain))}
    for stream in ("gold", "repeat"):
        always(stream)
        lease = leased(project, ana)
        shapes.add(frozenset(vars_of(lease)))
        assert stream not in repr(vars_of(lease))
        vote(project, ana)
    assert len(shapes) == 1


def vars_of(lease: Lease) -> dict[str, Any]:
    return {name: getattr(lease, name) for name in lease.__dataclass_fields__}


# --- gates and limits ----------------------------------------------------------------------------


def nothing_else(project: Project, person: User) -> NothingReason:
    got = services.slot_lease_next(project=project, annotator=person)
    assert isinstance(got, NothingReason), got
    assert services.labeling_status(project=project, annotator=person).nothing == got
    return got


def test_a_major_version_waits_to_be_read_and_the_pair_in_hand_counts_under_the_old_one(
    project: Project, ana: User, ada: User
) -> None:
    pairs_make(project, 2)
    lease = leased(project, ana)
    minor = services.guideline_publish(project=project, body="A comma.", by=ada)
    major = services.guideline_publish(project=project, body="All new.", by=ada, is_major=True)
    result = services.vote_cast(
        slot=lease.slot, annotator=ana, idempotency_key=lease.key, choice="a"
    )
    assert result.vote.guideline_id == minor.pk
    assert isinstance(result.next, NothingReason)
    assert result.next.code == "guideline"
    assert nothing_else(project, ana).code == "guideline"
    Annotator.objects.filter(user=ana).update(acknowledged_version=major.version)
    assert vote(project, ana).vote.guideline_id == major.pk


def test_admins_write_the_guidelines_and_need_not_acknowledge_them(
    project: Project, ada: User
) -> None:
    pairs_make(project, 1)
    services.guideline_publish(project=project, body="All new.", by=ada, is_major=True)
    assert leased(project, ada)


def test_a_project_may_leave_acknowledging_out(project: Project, ana: User, ada: User) -> None:
    pairs_make(project, 1, acknowledge_guidelines=False)
    services.guideline_publish(project=project, body="All new.", by=ada, is_major=True)
    assert leased(project, ana)


def test_qualification_comes_before_real_work_for_annotators_only(
    project: Project, ana: User, rita: User
) -> None:
    pairs_make(project, 1, qualification_pairs=5)
    assert nothing_else(project, ana).code == "qualification"
    assert leased(project, rita)
    Annotator.objects.filter(user=ana).update(qualified_at="2026-01-01T00:00Z")
    assert leased(project, ana)


def test_the_cap_of_a_day_holds_and_ends_with_it(project: Project, ana: User) -> None:
    pairs_make(project, 4, daily_cap=2)
    first = vote(project, ana)
    assert isinstance(first.next, Lease)
    assert first.next.n_today == 1
    second = vote(project, ana)
    assert isinstance(second.next, NothingReason)
    assert (second.next.code, second.next.n_today) == ("daily_cap", 2)
    assert nothing_else(project, ana).code == "daily_cap"
    Annotator.objects.filter(user=ana).update(votes_day="2020-01-01")  # that was another day
    assert leased(project, ana)


def test_a_persons_own_cap_goes_before_the_projects(project: Project, ana: User) -> None:
    pairs_make(project, 4, daily_cap=1)
    Annotator.objects.filter(user=ana).update(daily_cap=2)
    assert isinstance(vote(project, ana).next, Lease)
    assert isinstance(vote(project, ana).next, NothingReason)


def test_a_revision_is_no_further_vote_of_the_day(project: Project, ana: User) -> None:
    pairs_make(project, 2)
    stored = vote(project, ana).vote
    services.vote_revise(vote=stored.pk, annotator=ana, idempotency_key="again", choice="b")
    assert Annotator.objects.get(user=ana).votes_of_day == 1


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"topics": ["food"]}, {"soup", "suppe"}),
        ({"languages": ["de"]}, {"suppe", "regen"}),
        ({"topics": ["food"], "languages": ["de"]}, {"suppe"}),
        ({"topics": ["tax"]}, set()),
        ({}, {"soup", "suppe", "rain", "regen"}),
    ],
)
def test_an_annotator_gets_their_topics_and_languages_only(
    project: Project, ana: User, limits: dict[str, list[str]], expected: set[str]
) -> None:
    rows = [
        {
            "id": name,
            "prompt": f"About {name}?",
            "response_a": "1",
            "response_b": "2",
            "topic": topic,
            "language": language,
        }
        for name, topic, language in (
            ("soup", "food", "en"),
            ("suppe", "food", "de"),
            ("rain", "weather", "en"),
            ("regen", "weather", "de"),
        )
    ]
    services.comparisons_import(project=project, rows=rows)
    Annotator.objects.filter(user=ana).update(**limits)
    got = set()
    while isinstance(services.slot_lease_next(project=project, annotator=ana), Lease):
        got.add(vote(project, ana).vote.comparison.external_id)
    assert got == expected
    assert nothing_else(project, ana).code == "yours_done"


def test_reading_ones_status_takes_nothing(project: Project, ana: User) -> None:
    pairs_make(project, 1)
    status = services.labeling_status(project=project, annotator=ana)
    assert (status.nothing, status.leased_until) == (None, None)
    assert not Slot.objects.exclude(state="free").exists()
    lease = leased(project, ana)
    assert (
        services.labeling_status(project=project, annotator=ana).leased_until == lease.leased_until
    )


# --- what the database refuses -------------------------------------------------------------------


def test_no_place_for_a_vote_beyond_the_overlap_can_be_stored(project: Project) -> None:
    pair = pairs_make(project, 1, overlap=2)[0]
    with pytest.raises(IntegrityError, match="its overlap is 2"), transaction.atomic():
        Slot.objects.create(project=project, task=pair, position=9)
    with pytest.raises(IntegrityError, match="its overlap is 1"), transaction.atomic():
        Comparison.objects.filter(pk=pair.pk).update(overlap=1)
    spare = Slot.objects.create(project=project, task=pair, position=9, state=Slot.State.WITHDRAWN)
    with pytest.raises(IntegrityError, match="its overlap is 2"), transaction.atomic():
        Slot.objects.filter(pk=spare.pk).update(state=Slot.State.FREE)


def test_shares_that_leave_too_little_work_cannot_be_stored(project: Project) -> None:
    with pytest.raises(IntegrityError, match="labeling_shares_leave_work"), transaction.atomic():
        LabelingSettings.objects.create(project=project, gold_share=0.3, repeat_share=0.3)


def test_an_improved_answer_is_kept_as_a_response_by_a_person(project: Project, ana: User) -> None:
    pairs_make(project, 3, show_improve=True)
    better = vote(project, ana, "a", improvement="Exactly 24 hours.").vote
    assert better.improvement.messages == [{"role": "assistant", "content": "Exactly 24 hours."}]
    assert (better.improvement.origin, better.improvement.prompt_id) == (
        "edit",
        better.comparison.prompt_id,
    )
    lease = leased(project, ana)
    same = (lease.left if lease.left_is == "a" else lease.right)[-1]["content"]
    assert vote(project, ana, "a", improvement=same).vote.improvement is None
    assert Vote.objects.filter(improvement__isnull=False).count() == 1


def test_statements_on_the_path_of_a_vote_stay_short_enough_to_be_kept_parsed() -> None:
    for name in ("DRAW", "LOCK_FOR_VOTE", "INSERT_ANSWER", "STORE_DECISION"):
        assert len(getattr(statements, name)) <= 4096, name


def test_an_extra_vote_on_a_contested_pair_reaches_those_of_its_topic(
    project: Project, ana: User
) -> None:
    LabelingSettings.objects.create(
        project=project, overlap=2, max_overlap=3, least_votes=2, least_agreeing=2
    )
    services.comparisons_import(
        project=project, rows=[row | {"topic": "food"} for row in rows_make(1)]
    )
    for person, choice in zip(annotators_make(project, 2), "ab", strict=True):
        vote(project, person, choice)
    Annotator.objects.filter(user=ana).update(topics=["food"])
    assert leased(project, ana)
