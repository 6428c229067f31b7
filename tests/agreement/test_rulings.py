"""What a ruling does to a comparison, what it leaves alone, and who may not rule at once."""

import threading
from collections import Counter
from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client

from apps.accounts.models import AuditEvent, Project, User
from apps.agreement.models import Ruling
from apps.agreement.selectors.disputes import ruling_newest
from apps.agreement.services.rulings import (
    Expected,
    dispute_adjudicate,
    dispute_drop,
    dispute_make_gold,
    dispute_reopen,
    dispute_send_again,
    disputes_send_again,
)
from apps.common.errors import Conflict, DomainError
from apps.labeling import services as labeling
from apps.labeling.models import Comparison, Decision, LabelingSettings, Skip, Slot, Vote
from apps.labeling.services import Lease, NothingReason, leasing
from tests.agreement.crowd import cast, disputed_make, newer_guideline
from tests.labeling.pairs import annotators_make, lapse, leased, rows_make
from tests.people import person_make

SAID = {"cause": "guideline_gap", "note": "Length is not said to matter.", "seen": 0}


def decision(pair: Comparison) -> tuple[str, str, str]:
    pair.refresh_from_db()
    found = Decision.objects.get(comparison=pair)
    return pair.state, found.outcome, found.winner


def places(pair: Comparison) -> Counter[tuple[str, str]]:
    return Counter(Slot.objects.filter(task=pair).values_list("kind", "state"))


def test_adjudicating_settles_a_comparison_and_keeps_its_votes(
    project: Project, rita: User
) -> None:
    (pair,), _ = disputed_make(project)
    assert decision(pair) == ("contested", "contested", "")
    ruling = dispute_adjudicate(comparison=pair, choice="b", by=rita, **SAID)
    assert decision(pair) == ("decided", "adjudicated", "b")
    stored = Decision.objects.get(comparison=pair)
    assert (stored.n_a, stored.n_b) == (1, 1)
    assert stored.reason == f"adjudicated, guideline gap: {SAID['note']}"
    assert "Rita" not in stored.reason
    assert ruling.votes_before == {"a": 1, "b": 1, "tie": 0, "both_bad": 0}
    assert (ruling.by, ruling.cause, ruling.choice) == (rita, "guideline_gap", "b")
    assert AuditEvent.objects.filter(action="comparison.adjudicated", actor=rita).exists()


def test_no_more_votes_are_asked_for_once_it_is_settled(project: Project, rita: User) -> None:
    person_make("Third", project, "annotator")  # who is still to vote
    (pair,), people = disputed_make(project, votes="ab", max_overlap=5, least_agreeing=3)
    assert pair.state == "open"
    dispute_adjudicate(comparison=pair, choice="a", by=rita, **SAID)
    assert not Slot.objects.filter(state="free").exists()
    last = Ruling.objects.get()
    dispute_reopen(comparison=pair, note="", by=rita, seen=last.pk)
    assert decision(pair) == ("open", "needs_votes", "")
    assert Slot.objects.filter(state="free").count() == 1
    assert isinstance(leased(project, rita), Lease)
    assert people


def test_a_dropped_comparison_has_a_decision_that_says_so(project: Project, rita: User) -> None:
    (pair,), _ = disputed_make(project)
    dispute_drop(comparison=pair, by=rita, cause="", note="Broken.", seen=0)
    assert decision(pair) == ("dropped", "dropped", "")
    last = Ruling.objects.get()
    dispute_reopen(comparison=pair, note="", by=rita, seen=last.pk)
    assert decision(pair) == ("contested", "contested", "")
    assert [r.action for r in Ruling.objects.order_by("pk")] == ["dropped", "reopened"]


def test_skips_that_send_it_to_review_tell_the_decision(
    project: Project, ana: User, rita: User
) -> None:
    (pair,), _ = disputed_make(project, votes="a", overlap=2, max_overlap=2, skips_to_review=1)
    lease = leased(project, ana)
    labeling.slot_skip(slot=lease.slot, annotator=ana, reason="Prompt is unclear")
    assert decision(pair) == ("review", "needs_review", "")
    assert Decision.objects.get().reason.endswith(" 1 person")
    dispute_reopen(comparison=pair, note="", by=rita, seen=0)
    assert decision(pair) == ("open", "needs_votes", "")
    assert places(pair)["regular", "free"] == 1


def test_a_gold_pair_measures_people_from_then_on(project: Project, ana: User, rita: User) -> None:
    (pair,), _ = disputed_make(project, gold_share=0.4, random_share=1.0)
    dispute_make_gold(comparison=pair, choice="b", by=rita, **SAID)
    assert decision(pair) == ("decided", "adjudicated", "b")
    pair.refresh_from_db()
    assert (pair.stratum, pair.gold, pair.gold_explanation) == ("gold", "b", SAID["note"])
    # the votes it had stay what they were; whoever has not met it gets it in a slot of its own
    assert places(pair) == {("regular", "done"): 2}
    got = {type(labeling.slot_lease_next(project=project, annotator=ana)) for _ in range(40)}
    assert got == {Lease, NothingReason} or got == {Lease}
    assert places(pair)["gold", "leased"] == 1


def test_putting_a_gold_pair_back_restores_what_it_was(project: Project, rita: User) -> None:
    (pair,), _ = disputed_make(project)
    Comparison.objects.filter(pk=pair.pk).update(gold="b")  # a published label
    with pytest.raises(Conflict) as caught:
        dispute_make_gold(comparison=pair, choice="a", by=rita, **SAID)
    assert caught.value.code == "labelled_otherwise"
    ruling = dispute_make_gold(comparison=pair, choice="b", by=rita, **SAID)
    dispute_reopen(comparison=pair, note="", by=rita, seen=ruling.pk)
    assert decision(pair) == ("contested", "contested", "")
    pair.refresh_from_db()
    assert (pair.stratum, pair.gold, pair.gold_explanation) == ("random", "b", "")


@pytest.mark.parametrize("act", ["adjudicate", "drop", "gold", "review"])
def test_a_late_vote_changes_the_counts_and_nothing_that_was_ruled(
    project: Project, ana: User, rita: User, act: str
) -> None:
    (pair,), _ = disputed_make(project, votes="ab", max_overlap=3, least_agreeing=2)
    lease = leased(project, ana)  # the third vote, which would accept A
    if act == "adjudicate":
        dispute_adjudicate(comparison=pair, choice="b", by=rita, **SAID)
    elif act == "drop":
        dispute_drop(comparison=pair, by=rita, **SAID)
    elif act == "gold":
        dispute_make_gold(comparison=pair, choice="b", by=rita, **SAID)
    else:
        LabelingSettings.objects.update(skips_to_review=1)
        leasing.skip_record(project=project.pk, task=pair.pk, annotator=rita.pk, reason="unclear")
    before = decision(pair)
    labeling.vote_cast(
        slot=lease.slot, annotator=ana, idempotency_key=lease.key, choice="a", lease_next=False
    )
    assert decision(pair) == before
    stored = Decision.objects.get()
    assert (stored.n_a, stored.n_b) == (2, 1)
    assert not Slot.objects.filter(state="free").exists()
    if act == "review":
        dispute_reopen(comparison=pair, note="", by=rita, seen=0)
        assert decision(pair) == ("decided", "accepted", "a")


def test_an_imported_pair_that_waits_for_review_is_told_so_by_its_decision(
    project: Project,
) -> None:
    labeling.labeling_set_up(project=project)
    LabelingSettings.objects.update(constraint_phrases=["it depends"])
    labeling.comparisons_import(project=project, rows=rows_make(2))
    assert set(Comparison.objects.values_list("state", flat=True)) == {"review"}
    told = Decision.objects.values_list("outcome", "winner", "n_a", "reason")
    assert [row[:3] for row in told] == [("needs_review", "", 0)] * 2
    assert told[0][3].startswith("needs review: Answer")


# --- a new round of votes -------------------------------------------------------------------------


def test_sending_again_keeps_the_votes_as_history_and_asks_for_new_ones(
    project: Project, rita: User, ada: User
) -> None:
    (pair,), people = disputed_make(project)
    newest = newer_guideline(project, ada)
    ruling = dispute_send_again(comparison=pair, by=rita, version=newest.version, **SAID)
    assert decision(pair) == ("open", "needs_votes", "")
    pair.refresh_from_db()
    assert (pair.n_votes, pair.overlap) == (0, 2)
    assert places(pair) == {("former", "done"): 2, ("regular", "free"): 2}
    assert Vote.objects.filter(is_current=True).count() == 2
    assert ruling.votes_before == {"a": 1, "b": 1, "tie": 0, "both_bad": 0}
    assert ruling.guideline == newest
    # the same people may judge it again, and now it is decided
    for person in people:
        result = cast(project, person, "a")
        assert result.vote.guideline == newest
    assert decision(pair) == ("decided", "accepted", "a")
    stored = Decision.objects.get()
    assert (stored.n_a, stored.n_b) == (2, 0)
    assert isinstance(labeling.slot_lease_next(project=project, annotator=people[0]), NothingReason)


def test_a_pair_can_be_sent_again_and_again(project: Project, rita: User, ada: User) -> None:
    (pair,), people = disputed_make(project)
    seen = 0
    for number in range(8):
        newest = newer_guideline(project, ada, f"Sentence {number}.")
        ruling = dispute_send_again(
            comparison=pair, by=rita, version=newest.version, **SAID | {"seen": seen}
        )
        seen = ruling.pk
        for person, choice in zip(people, "ab", strict=True):
            cast(project, person, choice)
    assert places(pair) == {("former", "done"): 16, ("regular", "done"): 2}
    assert Slot.objects.order_by("-position")[0].position == 8002
    assert decision(pair) == ("contested", "contested", "")
    assert sorted(Slot.objects.filter(kind="regular").values_list("position", flat=True)) == [1, 2]


def test_it_takes_a_guideline_newer_than_the_votes(project: Project, rita: User, ada: User) -> None:
    (pair,), _ = disputed_make(project)
    with pytest.raises(Conflict) as caught:
        dispute_send_again(comparison=pair, by=rita, version=1, **SAID)
    assert caught.value.code == "not_sent_newer"
    newer_guideline(project, ada, "Two.")
    newer_guideline(project, ada, "Three.")
    with pytest.raises(Conflict) as caught:
        dispute_send_again(comparison=pair, by=rita, version=2, **SAID)
    assert caught.value.code == "guideline_outdated"
    with pytest.raises(DomainError, match="no version 9"):
        dispute_send_again(comparison=pair, by=rita, version=9, **SAID)
    assert not Ruling.objects.exists()
    assert decision(pair) == ("contested", "contested", "")


def test_an_answer_in_hand_joins_the_earlier_round(
    project: Project, ana: User, rita: User, ada: User
) -> None:
    (pair,), _ = disputed_make(project, votes="ab", max_overlap=3, least_agreeing=2)
    lease = leased(project, ana)  # the third vote, asked for since the first two differ
    newest = newer_guideline(project, ada)
    dispute_send_again(comparison=pair, by=rita, version=newest.version, **SAID)
    result = labeling.vote_cast(
        slot=lease.slot, annotator=ana, idempotency_key=lease.key, choice="a", lease_next=False
    )
    assert result.vote.is_current
    assert places(pair) == {("former", "done"): 3, ("regular", "free"): 2}
    pair.refresh_from_db()
    assert pair.n_votes == 0
    assert Decision.objects.get().n_a == 0
    # it may be met again, as by those who answered in time
    assert leased(project, ana).comparison == pair.pk


def test_a_lease_that_had_run_out_counts_nowhere(
    project: Project, ana: User, rita: User, ada: User
) -> None:
    (pair,), _ = disputed_make(project, votes="ab", max_overlap=3, least_agreeing=2)
    lease = leased(project, ana)
    lapse(lease.slot)
    newest = newer_guideline(project, ada)
    dispute_send_again(comparison=pair, by=rita, version=newest.version, **SAID)
    with pytest.raises(Conflict) as caught:
        labeling.vote_cast(slot=lease.slot, annotator=ana, idempotency_key=lease.key, choice="a")
    assert caught.value.code == "lease_lost"
    assert Vote.objects.count() == 2


def test_a_skip_of_the_earlier_round_leaves_no_free_place_in_it(
    project: Project, ana: User, rita: User, ada: User
) -> None:
    (pair,), _ = disputed_make(project, votes="ab", max_overlap=3, least_agreeing=2)
    lease = leased(project, ana)
    newest = newer_guideline(project, ada)
    dispute_send_again(comparison=pair, by=rita, version=newest.version, **SAID)
    labeling.slot_skip(slot=lease.slot, annotator=ana)
    assert places(pair) == {
        ("former", "done"): 2,
        ("former", "withdrawn"): 1,
        ("regular", "free"): 2,
    }


def test_a_vote_of_an_earlier_round_can_be_neither_changed_nor_taken_back(
    project: Project, rita: User, ada: User
) -> None:
    (pair,), people = disputed_make(project)
    old = Vote.objects.get(annotator=people[0])
    newest = newer_guideline(project, ada)
    dispute_send_again(comparison=pair, by=rita, version=newest.version, **SAID)
    for act in (
        lambda: labeling.vote_revise(
            vote=old.pk, annotator=people[0], idempotency_key="again", choice="b"
        ),
        lambda: labeling.vote_withdraw(vote=old.pk, annotator=people[0]),
    ):
        with pytest.raises(Conflict, match="re-annotation") as caught:
            act()
        assert caught.value.code == "earlier_round"
    old.refresh_from_db()
    assert old.is_current
    assert places(pair)["former", "done"] == 2


def test_my_answers_say_that_a_pair_is_judged_again(
    project: Project, rita: User, ada: User, signed_in: Callable[[User], Client]
) -> None:
    (pair,), people = disputed_make(project)
    old = Vote.objects.get(annotator=people[0])
    client = signed_in(people[0])
    assert client.get(f"/p/arguments/label/?answer={old.pk}").status_code == 200
    newest = newer_guideline(project, ada)
    dispute_send_again(comparison=pair, by=rita, version=newest.version, **SAID)
    page = client.get("/p/arguments/answers/").content.decode()
    assert "re-annotated since" in page
    assert f"answer={old.pk}" not in page
    assert client.get(f"/p/arguments/label/?answer={old.pk}").status_code == 404
    refused = client.post(
        f"/p/arguments/answers/{old.pk}/revise/", {"key": "again", "answer": "left"}
    )
    assert refused.status_code == 409
    assert refused.headers["Concord-Refused"] == "earlier_round"


def test_who_skipped_it_may_get_it_again(
    project: Project, ana: User, rita: User, ada: User
) -> None:
    (pair,), _ = disputed_make(project, votes="ab", max_overlap=3, least_agreeing=2)
    labeling.slot_skip(slot=leased(project, ana).slot, annotator=ana, reason="Prompt is unclear")
    assert isinstance(labeling.slot_lease_next(project=project, annotator=ana), NothingReason)
    newest = newer_guideline(project, ada)
    dispute_send_again(comparison=pair, by=rita, version=newest.version, **SAID)
    assert leased(project, ana).comparison == pair.pk
    assert not Skip.objects.exists()
    event = AuditEvent.objects.get(action="comparisons.sent_again")
    assert event.details["skips"] == ["Prompt is unclear"]


def test_audits_and_repeats_of_the_earlier_round_stay(
    project: Project, rita: User, ada: User
) -> None:
    (pair,), people = disputed_make(project, votes="ab")
    old = Vote.objects.get(annotator=people[0])
    Slot.objects.create(
        project=project,
        task=pair,
        position=3,
        kind="audit",
        state="done",
        annotator=rita,
        measures_id=old.pk,
    )
    LabelingSettings.objects.update(overlap=3, max_overlap=3)  # the new round reaches place 3
    newest = newer_guideline(project, ada)
    dispute_send_again(comparison=pair, by=rita, version=newest.version, **SAID)
    assert places(pair) == {
        ("former", "done"): 2,
        ("audit", "done"): 1,
        ("regular", "free"): 3,
    }


def test_many_are_sent_at_once_in_the_numbers_that_were_confirmed(
    project: Project, ada: User
) -> None:
    pairs, _ = disputed_make(project, n=4)
    newest = newer_guideline(project, ada)
    ids = [pair.pk for pair in pairs]
    labeling.comparison_drop(comparison=pairs[0], by=ada)
    said = {"cause": "guideline_gap", "note": "", "by": ada, "version": newest.version}
    with pytest.raises(Conflict) as caught:
        disputes_send_again(project=project, comparisons=ids, expected=Expected(4, 8), **said)
    assert caught.value.code == "numbers_changed"
    assert "3 comparisons with 6 votes" in caught.value.message
    assert not Ruling.objects.exists()
    assert not Slot.objects.filter(kind="former").exists()
    sent = disputes_send_again(project=project, comparisons=ids, expected=Expected(3, 6), **said)
    assert (sent.n_votes, sent.n_wanted, sent.left_out) == (6, 6, {"dropped": 1})
    assert Ruling.objects.filter(action="sent_again", guideline=newest).count() == 3
    assert Slot.objects.filter(kind="regular", state="free").count() == 6


def test_another_projects_comparisons_are_not_sent(project: Project, olga: User, ada: User) -> None:
    (pair,), _ = disputed_make(project)
    elsewhere = Project.objects.get(slug="elsewhere")
    labeling.labeling_set_up(project=elsewhere)
    theirs = newer_guideline(elsewhere, olga)
    with pytest.raises(DomainError):
        labeling.comparisons_send_again(
            project=elsewhere, comparisons=[pair.pk], guideline=theirs, by=olga
        )
    assert places(pair) == {("regular", "done"): 2}
    assert ada


# --- at the same time -----------------------------------------------------------------------------


def test_a_page_that_is_out_of_date_rules_nothing(project: Project, rita: User, ada: User) -> None:
    (pair,), _ = disputed_make(project)
    dispute_adjudicate(comparison=pair, choice="b", by=rita, **SAID)
    with pytest.raises(Conflict) as caught:
        dispute_adjudicate(comparison=pair, choice="a", by=ada, **SAID)
    assert caught.value.code == "ruled_meanwhile"
    assert "Rita" in caught.value.message
    assert "“B is better”" in caught.value.message
    with pytest.raises(Conflict, match="You have ruled"):  # a double click
        dispute_adjudicate(comparison=pair, choice="b", by=rita, **SAID)
    assert Ruling.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_who_rule_at_once_make_one_ruling(project: Project, rita: User, ada: User) -> None:
    (pair,), _ = disputed_make(project)
    outcomes = at_once(
        lambda: dispute_adjudicate(comparison=pair, choice="a", by=rita, **SAID),
        lambda: dispute_adjudicate(comparison=pair, choice="b", by=ada, **SAID),
    )
    assert sorted(outcomes) == ["done", "ruled_meanwhile"]
    ruling = Ruling.objects.get()
    assert decision(pair) == ("decided", "adjudicated", ruling.choice)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("attempt", range(4))
def test_a_vote_that_arrives_while_it_is_sent_again_is_history_either_way(
    project: Project, ana: User, rita: User, ada: User, attempt: int
) -> None:
    (pair,), _ = disputed_make(project, votes="ab", max_overlap=3, least_agreeing=2)
    lease = leased(project, ana)
    newest = newer_guideline(project, ada)
    outcomes = at_once(
        lambda: labeling.vote_cast(
            slot=lease.slot,
            annotator=ana,
            idempotency_key=lease.key,
            choice="a",
            lease_next=False,
        ),
        lambda: dispute_send_again(comparison=pair, by=rita, version=newest.version, **SAID),
    )
    assert outcomes == ["done", "done"]
    assert places(pair) == {("former", "done"): 3, ("regular", "free"): 2}
    stored = Decision.objects.get()
    assert (stored.outcome, stored.n_a, stored.n_b) == ("needs_votes", 0, 0)
    assert ruling_newest(comparison=pair).votes_before["b"] == 1


@pytest.mark.django_db(transaction=True)
def test_rounds_begin_while_a_crowd_votes_and_nothing_is_lost_or_counted_twice(
    project: Project, rita: User, ada: User
) -> None:
    """Four people vote on 24 pairs while these are sent again, one by one and all at once."""
    rule = {"overlap": 2, "max_overlap": 4, "least_votes": 2, "least_agreeing": 2}
    LabelingSettings.objects.create(project=project, random_share=1.0, **rule)
    labeling.labeling_set_up(project=project)
    labeling.comparisons_import(project=project, rows=rows_make(24))
    people = annotators_make(project, 4)
    for person, choice in zip(people[:2], "ab", strict=True):
        for _ in range(24):
            cast(project, person, choice)
    newest = newer_guideline(project, ada)
    pairs = list(Comparison.objects.order_by("pk"))

    def vote_on(person: User) -> None:
        for number in range(30):
            lease = labeling.slot_lease_next(project=project, annotator=person)
            if isinstance(lease, NothingReason):
                return
            labeling.vote_cast(
                slot=lease.slot,
                annotator=person,
                idempotency_key=lease.key,
                choice="ab"[number % 2],
                lease_next=False,
            )

    def send_each() -> None:
        for pair in pairs[::2]:
            dispute_send_again(comparison=pair, by=rita, version=newest.version, **SAID)

    def send_rest() -> None:
        labeling.comparisons_send_again(
            project=project, comparisons=[p.pk for p in pairs[1::2]], guideline=newest, by=ada
        )

    crowd = [lambda person=person: vote_on(person) for person in people]
    assert at_once(*crowd, send_each, send_rest) == ["done"] * 6
    for pair in Comparison.objects.select_related("decision"):
        counting = Vote.objects.filter(
            comparison=pair, is_current=True, slot__kind__in=("regular", "gold")
        )
        told = pair.decision
        assert counting.count() == pair.n_votes == told.n_a + told.n_b + told.n_tie
        assert counting.filter(choice="a").count() == told.n_a
        live = pair.slots.filter(kind="regular").exclude(state="withdrawn").count()
        assert live <= pair.overlap
        assert pair.slots.filter(kind="former", state="done").count() >= 2
    assert Vote.objects.filter(is_current=True).count() == Slot.objects.filter(state="done").count()


def at_once(*acts: Callable[[], object]) -> list[str]:
    """What came of each: "done", or the code of its refusal."""
    said = [""] * len(acts)
    start = threading.Barrier(len(acts))

    def run(place: int) -> None:
        try:
            start.wait(timeout=10)
            acts[place]()
            said[place] = "done"
        except DomainError as error:
            said[place] = error.code
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    return said
