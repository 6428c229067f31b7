"""Rating tasks: handed out exactly, shown blind, kept whole."""

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import IntegrityError, connection, transaction

from apps.accounts.models import Membership, Project, Role, User
from apps.common.errors import Conflict, DomainError, Missing, Refused
from apps.labeling.models import (
    Annotator,
    Answer,
    Guideline,
    Skip,
    Slot,
    Task,
    TaskItem,
)
from apps.labeling.selectors.ratings import pair_counts, rater_scales, results_of, results_sorted
from apps.labeling.services import slot_lease_next, slot_skip, vote_cast, vote_revise
from apps.labeling.services.results import Lease
from apps.labeling.services.review import task_drop, task_reopen
from tests.labeling.pairs import annotators_make, rate, rating_lapse, rating_leased, tasks_make

pytestmark = pytest.mark.django_db


def submit(lease: Lease, who: User, values: list[int], key: str = "") -> Answer:
    return vote_cast(
        slot=lease.slot, annotator=who, idempotency_key=key or lease.key, values=values
    ).vote


def test_a_reload_shows_the_same_task_in_the_same_order(project: Project, ana: User) -> None:
    tasks_make(project, k=9)
    first = rating_leased(project, ana)
    rating_lapse(first.slot)
    again = rating_leased(project, ana)
    assert (again.slot, again.responses, again.key) == (first.slot, first.responses, first.key)
    assert again.leased_until == first.leased_until  # prolonged again: now stands still here


def test_the_order_shown_differs_between_people_and_stays_with_the_rating(
    project: Project, ana: User
) -> None:
    (task,) = tasks_make(project, n=1, k=5, overlap=30)
    orders = Counter()
    for person in [ana, *annotators_make(project, 19)]:
        lease = rating_leased(project, person)
        rating = submit(lease, person, [1, 2, 3, 4, 5])
        orders[tuple(rating.shown)] += 1
        texts = {i.position: i.response.messages for i in task.items.select_related("response")}
        assert [texts[place] for place in rating.shown] == list(lease.responses)
        # what was given to the first answer shown is stored with the response that stood there
        assert rating.values[rating.shown[0] - 1] == 1
    assert len(orders) > 12  # of 20 draws from 120 orders
    assert len({order[0] for order in orders}) >= 3  # fewer once in ten million runs


def test_a_lease_says_nothing_of_where_answers_come_from(project: Project, ana: User) -> None:
    answers = [{"text": "One.", "model": "secret-7b"}, {"text": "Two.", "model": "other-9b"}]
    tasks_make(project, n=1, responses=answers)
    lease = rating_leased(project, ana)
    assert "secret" not in repr(lease)
    assert {m["content"] for r in lease.responses for m in r} == {"One.", "Two."}


def test_nobody_rates_a_task_twice_and_no_task_gets_more_than_its_overlap(
    project: Project, ana: User, ben: User, rita: User
) -> None:
    (task,) = tasks_make(project, n=1, overlap=2)
    rate(project, ana, [1, 2, 3])
    assert slot_lease_next(project=project, annotator=ana).code == "yours_done"
    rating_leased(project, ben)
    assert slot_lease_next(project=project, annotator=rita).code == "held"
    rate(project, ben, [1, 2, 3])
    assert slot_lease_next(project=project, annotator=rita).code == "all_done"
    task.refresh_from_db()
    assert (task.n_votes, task.state) == (2, "decided")


def test_the_same_submit_again_is_stored_once(project: Project, ana: User) -> None:
    tasks_make(project)
    lease = rating_leased(project, ana)
    results = [
        vote_cast(
            slot=lease.slot,
            annotator=ana,
            idempotency_key=lease.key,
            values=[1, 2, 3],
            rationale=" x ",
        )
        for _ in range(2)
    ]
    assert [result.replayed for result in results] == [False, True]
    assert results[0].next.slot == results[1].next.slot != lease.slot
    assert Answer.objects.count() == 1
    with pytest.raises(Conflict) as refused:
        submit(lease, ana, [3, 2, 1])
    assert refused.value.code == "key_reused"
    with pytest.raises(Conflict) as refused:
        submit(lease, ana, [3, 2, 1], key="another")
    assert refused.value.code == "already_rated"


def test_an_expired_lease_is_good_until_others_have_the_task(
    project: Project, ana: User, ben: User
) -> None:
    tasks_make(project, n=1, overlap=1)
    lease = rating_leased(project, ana)
    rating_lapse(lease.slot)
    assert submit(lease, ana, [1, 2, 3]).task_id == lease.task
    assert Task.objects.get().state == "decided"
    assert slot_lease_next(project=project, annotator=ben).code == "all_done"


def test_a_rating_that_comes_after_others_took_the_only_slot_is_not_counted(
    project: Project, ana: User, ben: User
) -> None:
    tasks_make(project, n=1, overlap=1, settings={"overlap": 1, "max_overlap": 1})
    lease = rating_leased(project, ana)
    rating_lapse(lease.slot)
    assert rating_leased(project, ben).slot == lease.slot
    with pytest.raises(Conflict) as refused:
        submit(lease, ana, [1, 2, 3])
    assert refused.value.code == "lease_lost"
    assert not Answer.objects.exists()


def test_after_a_lost_lease_another_slot_is_taken_and_the_order_is_the_one_seen(
    project: Project, ana: User, ben: User
) -> None:
    (task,) = tasks_make(project, n=1, k=6, overlap=2)
    lease = rating_leased(project, ana)
    shown = Slot.objects.get(pk=lease.slot).shown
    rating_lapse(lease.slot)
    assert rating_leased(project, ben).slot == lease.slot
    with pytest.raises(Conflict):  # a key we did not make proves nothing
        submit(lease, ana, [1, 2, 3, 4, 5, 6], key=f"rating{lease.slot}.1:forged")
    rating = vote_cast(
        slot=lease.slot,
        annotator=ana,
        idempotency_key=lease.key,
        values=[1, 2, 3, 4, 5, 6],
        active_ms=4000,
        wall_ms=5000,
    ).vote
    assert (rating.shown, rating.slot_id != lease.slot) == (shown, True)
    assert (rating.active_ms, rating.wall_ms) == (None, None)  # the new lease tells no time
    assert rating_leased(project, ben).task == task.pk


def test_a_change_of_mind_is_a_new_row_and_the_old_one_cannot_be_touched(
    project: Project, ana: User, ben: User
) -> None:
    tasks_make(project)
    first = rate(project, ana, [1, 2, 3]).vote
    change = {"vote": first.pk, "annotator": ana, "idempotency_key": "k2"}
    second = vote_revise(**change, values=[7, 7, 7]).vote
    assert vote_revise(**change, values=[7, 7, 7]).replayed
    assert (second.revision, second.supersedes_id) == (2, first.pk)
    assert list(Answer.objects.filter(is_current=True)) == [second]
    assert Task.objects.get(pk=first.task_id).n_votes == 1
    with pytest.raises(Conflict) as refused:
        vote_revise(vote=first.pk, annotator=ana, idempotency_key="k3", values=[1, 1, 1])
    assert refused.value.code == "not_current"
    with pytest.raises(Missing):
        vote_revise(vote=second.pk, annotator=ben, idempotency_key="k4", values=[1, 1, 1])
    for change in ({"values": [1, 1, 1]}, {"rationale": "x"}, {"is_current": True}):
        with pytest.raises(IntegrityError, match="never overwritten"), transaction.atomic():
            Answer.objects.filter(pk=first.pk).update(**change)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 2], "2 values for 3 responses"),
        ([1, 2, 8], "Response 3 has 8; from 1 to 7"),
        ([0, 2, 3], "Response 1 has 0"),
        ([1, 2, True], "Whole numbers"),
        ([1, 2, 2.5], "Whole numbers"),
    ],
)
def test_values_that_do_not_fit_are_refused_with_a_reason(
    project: Project, ana: User, values: list[int], message: str
) -> None:
    tasks_make(project)
    with pytest.raises(DomainError, match=message) as refused:
        submit(rating_leased(project, ana), ana, values)
    assert refused.value.field == "values"
    assert not Answer.objects.exists()


def test_the_database_refuses_what_services_never_write(project: Project, ana: User) -> None:
    task, other = tasks_make(project, n=2, overlap=2)
    rating = rate(project, ana, [1, 2, 3]).vote
    row = {
        name: getattr(rating, name) for name in ("project", "annotator", "cast_at", "shown", "kind")
    }
    slot = Slot.objects.filter(task_id=rating.task_id, state="free").get()
    for values, name in (([1, 2, 9], "takes 3 values"), ([1, 2], "takes 3 values|of_its_kind")):
        with pytest.raises(IntegrityError, match=name), transaction.atomic():
            Answer.objects.create(
                **row, task_id=rating.task_id, slot=slot, values=values, idempotency_key="z"
            )
    with pytest.raises(IntegrityError, match="places for answers"), transaction.atomic():
        Slot.objects.create(project=project, task=task, position=3)
    with pytest.raises(IntegrityError, match="places for answers"), transaction.atomic():
        Task.objects.filter(pk=other.pk).update(overlap=1)
    with pytest.raises(IntegrityError, match="meets_task_once"), transaction.atomic():
        Slot.objects.filter(pk=slot.pk).update(
            state="leased", annotator=ana, leased_until=rating.cast_at
        )
    assert TaskItem.objects.filter(task=task).count() == 3


def test_a_ranking_is_stored_in_one_form_and_its_ties_are_kept(project: Project, ana: User) -> None:
    tasks_make(project, n=1, k=4, kind="ranking")
    lease = rating_leased(project, ana)
    assert list(lease.scale.points) == [1, 2, 3, 4]
    rating = rate(project, ana, [2, 1, 2, 3]).vote
    assert rating.values == [2, 1, 2, 4]


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ("pause", "paused"),
        ("guideline", "guideline"),
        ("qualify", "qualification"),
        ("cap", "daily_cap"),
    ],
)
def test_what_keeps_people_from_pairs_keeps_them_from_ratings(
    project: Project, ana: User, gate: str, code: str
) -> None:
    settings = {"qualify": {"qualification_pairs": 5}, "cap": {"daily_cap": 1}}.get(gate, {})
    tasks_make(project, settings=settings)
    if gate == "pause":
        Membership.objects.filter(user=ana).update(paused_reason="a holiday")
    if gate == "guideline":
        Guideline.objects.create(project=project, version=2, body="New.", is_major=True)
    if gate == "cap":
        rate(project, ana, [1, 2, 3])
    got = slot_lease_next(project=project, annotator=ana)
    assert got.code == code


def test_engineers_do_not_rate_and_outsiders_learn_nothing(
    project: Project, ana: User, emil: User, olga: User
) -> None:
    tasks_make(project)
    slot = rating_leased(project, ana).slot
    with pytest.raises(Refused):
        slot_lease_next(project=project, annotator=emil)
    for call in (
        lambda: slot_lease_next(project=project, annotator=olga),
        lambda: slot_skip(slot=slot, annotator=olga),
        lambda: vote_cast(slot=slot, annotator=olga, idempotency_key="k", values=[1, 2, 3]),
    ):
        with pytest.raises(Missing):
            call()
    Membership.objects.filter(user=emil).update(role=Role.ANNOTATOR)
    with pytest.raises(Conflict):  # in Ana's hands, not in Emil's
        vote_cast(slot=slot, annotator=emil, idempotency_key="k", values=[1, 2, 3])


def test_limits_to_topics_and_languages_hold(project: Project, ana: User) -> None:
    tasks_make(project, n=1, topic="law", language="en")
    Annotator.objects.filter(user=ana).update(topics=["medicine"])
    assert "medicine" in slot_lease_next(project=project, annotator=ana).text
    Annotator.objects.filter(user=ana).update(topics=["law"], languages=["de"])
    assert slot_lease_next(project=project, annotator=ana).code == "yours_done"
    Annotator.objects.filter(user=ana).update(languages=["de", "en"])
    assert isinstance(slot_lease_next(project=project, annotator=ana), Lease)


def test_a_task_with_priority_comes_first(project: Project, ana: User) -> None:
    tasks_make(project, n=6, settings={"random_share": 0.001})
    Slot.objects.filter(task__external_id="task-4").update(priority=2)
    task = Task.objects.get(external_id="task-4")
    assert rating_leased(project, ana).task == task.pk


def test_a_skipped_task_goes_to_others_and_after_enough_skips_to_review(
    project: Project, ana: User, ben: User, ada: User
) -> None:
    (task,) = tasks_make(project, n=1, settings={"skips_to_review": 2})
    assert slot_skip(slot=rating_leased(project, ana).slot, annotator=ana, reason="broken").code
    assert Skip.objects.get().reason == "broken"
    assert Task.objects.get().state == "open"
    slot_skip(slot=rating_leased(project, ben).slot, annotator=ben)
    task.refresh_from_db()
    assert (task.state, task.review_reason) == ("review", "skipped by 2 people")
    assert slot_lease_next(project=project, annotator=ada).code == "all_done"
    task_reopen(task=task, by=ada)
    assert rating_leased(project, ada).task == task.pk
    assert slot_lease_next(project=project, annotator=ana).code == "yours_done"


def test_a_dropped_task_is_not_handed_on_when_its_lease_lapses(
    project: Project, ana: User, ben: User, ada: User
) -> None:
    (task,) = tasks_make(project, n=1)
    lease = rating_leased(project, ana)
    task_drop(task=task, by=ada)
    rating_lapse(lease.slot)
    assert slot_lease_next(project=project, annotator=ben).code == "all_done"
    submit(lease, ana, [1, 2, 3])  # what she had in hand still counts
    task.refresh_from_db()
    assert (task.state, task.n_votes) == ("dropped", 1)
    with pytest.raises(Conflict):
        task_drop(task=task, by=ada)


def test_readers_see_means_spread_and_who_would_win(project: Project, ana: User, ben: User) -> None:
    graded, other = tasks_make(project, n=2, k=2, settings={"random_share": 0.0001})
    Slot.objects.filter(task=graded).update(priority=1)
    rate(project, ana, [2, 6])
    rate(project, ben, [4, 6])
    found = {result.task.pk: result.spread for result in results_of([graded, other])}
    assert found[graded.pk].means == (3.0, 6.0)
    assert found[graded.pk].between_raters == pytest.approx(1.0)  # squares 1 + 1 over (2 − 1)·2
    assert (found[other.pk].n_ratings, found[other.pk].mean) == (0, None)
    assert [r.task.pk for r in results_sorted(results_of([other, graded]), "spread")] == [
        graded.pk,
        other.pk,
    ]
    assert pair_counts([graded, other]) == {
        graded.pk: [{"a": 1, "b": 2, "n_a": 0, "n_b": 2, "n_tie": 0}],
        other.pk: [],
    }


def test_a_rater_of_twice_the_scale_counts_no_more_than_others(
    project: Project, ana: User, ben: User
) -> None:
    """Planted: Ben strays twice as far from the middle, about other answers."""
    tasks = tasks_make(project, n=2, k=2)
    for who, first, second in ((ana, [3, 5], [3, 5]), (ben, [6, 2], [2, 6])):
        done = {}
        for _ in range(2):
            task = Task.objects.get(pk=rating_leased(project, who).task)
            done[task.pk] = rate(project, who, first if task == tasks[0] else second)
        assert len(done) == 2
    raw = results_of(tasks)[0].spread.means
    assert raw[0] > raw[1]  # Ben's wide strokes decide
    z = rater_scales(project=project).z
    assert z[tasks[0].pk, 1] == pytest.approx(z[tasks[0].pk, 2])  # one against one
    assert z[tasks[1].pk, 1] == pytest.approx(-1)


def test_handing_out_and_rating_cost_few_statements(
    project: Project, ana: User, django_assert_max_num_queries: object
) -> None:
    tasks_make(project, n=3)
    lease = rating_leased(project, ana)
    with django_assert_max_num_queries(17):
        submit(lease, ana, [1, 2, 3])


# Eight people at once who crash, stall and submit again: no rating lost, none twice.


CLIENTS, TASKS, OVERLAP, K = 8, 40, 3, 3
GIVE_UP = 60.0  # seconds


@pytest.mark.django_db(transaction=True)
def test_eight_unruly_clients_lose_double_and_over_assign_nothing() -> None:
    project = Project.objects.create(slug="crowd", name="Crowd")
    exact = {"max_overlap": OVERLAP, "repeat_share": 0, "gold_share": 0}
    tasks_make(project, n=TASKS, k=K, overlap=OVERLAP, settings=exact)
    people = annotators_make(project, CLIENTS)
    acknowledged: set[tuple[int, int, tuple[int, ...]]] = set()
    did: Counter[str] = Counter()
    lock = threading.Lock()
    deadline = time.monotonic() + GIVE_UP

    def answer(who: User, lease: Lease, dice: random.Random) -> None:
        way = dice.choices(("plain", "crash", "double", "stall"), weights=(4, 1, 1, 2))[0]
        if way == "crash":
            return
        if way == "stall":
            rating_lapse(lease.slot)
            time.sleep(dice.uniform(0, 0.05))
        values = [dice.randint(1, 7) for _ in range(K)]
        try:
            results = [
                vote_cast(
                    slot=lease.slot,
                    annotator=who,
                    idempotency_key=lease.key,
                    values=values,
                    lease_next=False,
                )
                for _ in range(2 if way == "double" else 1)
            ]
        except Conflict as error:
            if (error.code, way) != ("lease_lost", "stall"):
                raise
            way = "lost"
        else:
            assert len({result.vote.pk for result in results}) == 1
            stored = results[0].vote
            by_place = tuple(value for _, value in sorted(zip(stored.shown, values, strict=True)))
            with lock:
                acknowledged.add((lease.task, who.pk, by_place))
        with lock:
            did[way] += 1

    def work(number: int) -> str:
        who, dice = people[number], random.Random(number)
        try:
            while time.monotonic() < deadline:
                got = slot_lease_next(project=project, annotator=who)
                if isinstance(got, Lease):
                    answer(who, got, dice)
                elif got.code != "held":
                    return got.code
                else:
                    time.sleep(0.005)
            return "gave up"
        finally:
            connection.close()

    with ThreadPoolExecutor(CLIENTS) as pool:
        ends = set(pool.map(work, range(CLIENTS)))

    # whoever was quick may have met every task that is still open for others
    assert "all_done" in ends
    assert ends <= {"all_done", "yours_done"}
    stored = [
        (task, who, tuple(values))
        for task, who, values in Answer.objects.values_list("task_id", "annotator_id", "values")
    ]
    assert len(stored) == len(acknowledged) == TASKS * OVERLAP
    assert set(stored) == acknowledged
    assert Counter(task for task, _, _ in stored) == dict.fromkeys(
        Task.objects.values_list("pk", flat=True), OVERLAP
    )
    assert set(Slot.objects.values_list("state", flat=True)) == {"done"}
    assert set(Task.objects.values_list("n_votes", "state")) == {(OVERLAP, "decided")}
    assert min(did[way] for way in ("plain", "double", "stall")) > 3, did


@pytest.mark.django_db(transaction=True)
def test_a_task_that_somebody_is_just_taking_is_held_and_not_done() -> None:
    project = Project.objects.create(slug="crowd", name="Crowd")
    tasks_make(project, n=1, overlap=1)
    (ana,) = annotators_make(project, 1)

    def ask() -> str:
        try:
            return slot_lease_next(project=project, annotator=ana).code
        finally:
            connection.close()

    with transaction.atomic(), ThreadPoolExecutor(1) as pool:
        Slot.objects.select_for_update(no_key=True).get()
        assert pool.submit(ask).result() == "held"
