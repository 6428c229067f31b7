"""Eight people at once who crash, stall and submit again: no rating lost, none twice."""

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from apps.accounts.models import Project, User
from apps.common.errors import Conflict
from apps.labeling.models import Rating, RatingSlot, RatingTask
from apps.labeling.services.ratings import RatingLease, rating_lease_next, rating_submit
from tests.labeling.pairs import annotators_make
from tests.labeling.rating_tasks import lapse, tasks_make

CLIENTS, TASKS, OVERLAP, K = 8, 40, 3, 3
GIVE_UP = 60.0  # seconds


@pytest.mark.django_db(transaction=True)
def test_eight_unruly_clients_lose_double_and_over_assign_nothing() -> None:
    project = Project.objects.create(slug="crowd", name="Crowd")
    tasks_make(project, n=TASKS, k=K, overlap=OVERLAP)
    people = annotators_make(project, CLIENTS)
    acknowledged: set[tuple[int, int, tuple[int, ...]]] = set()
    did: Counter[str] = Counter()
    lock = threading.Lock()
    deadline = time.monotonic() + GIVE_UP

    def answer(who: User, lease: RatingLease, dice: random.Random) -> None:
        way = dice.choices(("plain", "crash", "double", "stall"), weights=(4, 1, 1, 2))[0]
        if way == "crash":
            return
        if way == "stall":
            lapse(lease.slot)
            time.sleep(dice.uniform(0, 0.05))
        values = [dice.randint(1, 7) for _ in range(K)]
        try:
            results = [
                rating_submit(
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
            assert len({result.rating.pk for result in results}) == 1
            stored = results[0].rating
            by_place = tuple(value for _, value in sorted(zip(stored.shown, values, strict=True)))
            with lock:
                acknowledged.add((lease.task, who.pk, by_place))
        with lock:
            did[way] += 1

    def work(number: int) -> str:
        who, dice = people[number], random.Random(number)
        try:
            while time.monotonic() < deadline:
                got = rating_lease_next(project=project, annotator=who)
                if isinstance(got, RatingLease):
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
        for task, who, values in Rating.objects.values_list("task_id", "annotator_id", "values")
    ]
    assert len(stored) == len(acknowledged) == TASKS * OVERLAP
    assert set(stored) == acknowledged
    assert Counter(task for task, _, _ in stored) == dict.fromkeys(
        RatingTask.objects.values_list("pk", flat=True), OVERLAP
    )
    assert set(RatingSlot.objects.values_list("state", flat=True)) == {"done"}
    assert set(RatingTask.objects.values_list("n_ratings", "state")) == {(OVERLAP, "rated")}
    assert min(did[way] for way in ("plain", "double", "stall")) > 3, did


@pytest.mark.django_db(transaction=True)
def test_a_task_that_somebody_is_just_taking_is_held_and_not_done() -> None:
    project = Project.objects.create(slug="crowd", name="Crowd")
    tasks_make(project, n=1, overlap=1)
    (ana,) = annotators_make(project, 1)

    def ask() -> str:
        try:
            return rating_lease_next(project=project, annotator=ana).code
        finally:
            connection.close()

    with transaction.atomic(), ThreadPoolExecutor(1) as pool:
        RatingSlot.objects.select_for_update(no_key=True).get()
        assert pool.submit(ask).result() == "held"
