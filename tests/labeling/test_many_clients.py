"""Thirty-two annotators at once who stall, crash and submit again, on tasks of every kind: nothing
lost, nothing twice."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.common.errors import Conflict
from apps.labeling import services
from apps.labeling.models import Answer, Comparison, Decision, Slot, Task, Vote
from apps.labeling.services import Lease, NothingReason
from tests.labeling.pairs import annotators_make, pairs_make, tasks_make

CLIENTS, PAIRS, GRADINGS, RANKINGS, VOTES = 32, 1600, 200, 200, 3
Given = str | tuple[int, ...]  # a choice, or values by the stored places
FINGERS = 6
GIVE_UP = 300.0  # seconds


@dataclass
class Client:
    """A browser with a bad connection and an impatient person."""

    project: Project
    annotator: User
    fingers: ThreadPoolExecutor  # shared: what impatient people press with at the same moment
    random: random.Random
    acknowledged: dict[int, Given] = field(default_factory=dict)  # task: answer
    lost_leases: int = 0
    did: Counter[str] = field(default_factory=Counter)

    def work(self, deadline: float) -> NothingReason:
        while time.monotonic() < deadline:
            got = services.slot_lease_next(project=self.project, annotator=self.annotator)
            while isinstance(got, Lease):
                got = self.answer(got)
            if got is not None and got.code != "held":
                return got
            time.sleep(0.005)
        raise AssertionError("the queue did not run dry in time")

    def answer(self, lease: Lease) -> Lease | NothingReason | None:
        """Answer a task in one of the ways clients do; None means: start again."""
        way = self.random.choices(
            ("plain", "crash before", "crash after", "double", "parallel", "stall"),
            weights=(8, 1, 1, 1, 1, 2),
        )[0]
        self.did[way] += 1
        if way == "crash before":
            return None
        if way == "stall":
            Slot.objects.filter(pk=lease.slot, annotator=self.annotator, state="leased").update(
                leased_until=timezone.now() - timedelta(days=1)
            )
            time.sleep(self.random.uniform(0, 0.02))
        said: dict[str, Any] = {"choice": self.random.choice("ab")}
        if lease.kind != Task.Kind.PAIR:
            said = {"values": self.random.choices((1, 2, 3), k=len(lease.responses))}
        times = {"double": 2, "parallel": 3}.get(way, 1)
        try:
            if way == "parallel":
                results = list(self.fingers.map(self.submit, [lease] * times, [said] * times))
            else:
                results = [self.submit(lease, said) for _ in range(times)]
        except Conflict as error:
            if (error.code, way) != ("lease_lost", "stall"):
                raise
            self.lost_leases += 1
            return None
        assert len({result.vote.pk for result in results}) == 1
        assert sum(not result.replayed for result in results) == 1
        assert lease.task not in self.acknowledged
        stored = results[0].vote
        self.acknowledged[lease.task] = said.get("choice") or tuple(stored.values)
        return None if way == "crash after" else results[-1].next

    def submit(self, lease: Lease, said: dict[str, Any]) -> services.VoteResult:
        return services.vote_cast(
            slot=lease.slot, annotator=self.annotator, idempotency_key=lease.key, **said
        )


@contextmanager
def hands() -> Iterator[ThreadPoolExecutor]:
    """Threads that keep their connection to the database, as a web server's do, until the end."""
    with ThreadPoolExecutor(FINGERS) as pool:
        yield pool
        everybody = threading.Barrier(FINGERS)  # so that each thread gets one of these tasks

        def leave() -> None:
            everybody.wait(timeout=10)
            connection.close()

        for task in [pool.submit(leave) for _ in range(FINGERS)]:
            task.result()


@pytest.mark.spread
@pytest.mark.django_db(transaction=True)
def test_thirty_two_unruly_clients_lose_double_and_over_assign_nothing() -> None:
    project = Project.objects.create(slug="crowd", name="Crowd")
    exact = {"max_overlap": VOTES, "repeat_share": 0, "gold_share": 0}
    pairs_make(project, PAIRS, overlap=VOTES, max_overlap=VOTES)
    tasks_make(project, GRADINGS, overlap=VOTES, settings=exact)
    tasks_make(project, RANKINGS, overlap=VOTES, kind="rank", name="rank")
    people = annotators_make(project, CLIENTS)
    deadline = time.monotonic() + GIVE_UP

    def run(client: Client) -> NothingReason:
        try:
            return client.work(deadline)
        finally:
            connection.close()

    with hands() as fingers, ThreadPoolExecutor(CLIENTS) as pool:
        clients = [
            Client(project, person, fingers, random.Random(number))
            for number, person in enumerate(people)
        ]
        reasons = list(pool.map(run, clients))

    assert {reason.code for reason in reasons} == {"all_done"}
    answers = Answer.objects.values_list("task_id", "annotator_id", "choice", "values")
    stored = [(task, who, choice or tuple(values)) for task, who, choice, values in answers]
    acknowledged = {
        (task, client.annotator.pk, given)
        for client in clients
        for task, given in client.acknowledged.items()
    }
    assert set(stored) == acknowledged  # nothing lost, nothing invented
    tasks = PAIRS + GRADINGS + RANKINGS
    assert len(stored) == len(acknowledged) == tasks * VOTES  # nothing twice, nothing too many
    assert Counter(row[0] for row in stored) == dict.fromkeys(
        Task.objects.values_list("pk", flat=True), VOTES
    )
    assert Vote.objects.count() == PAIRS * VOTES
    assert set(Slot.objects.values_list("state", flat=True)) == {"done"}
    assert Comparison.objects.count() == PAIRS
    assert set(Task.objects.values_list("n_votes", flat=True)) == {VOTES}
    tallies = Counter((comparison, choice) for comparison, _, choice in stored)
    for decision in Decision.objects.all():
        assert decision.n_a == tallies[(decision.comparison_id, "a")]
        assert decision.n_b == tallies[(decision.comparison_id, "b")]
    did = sum((client.did for client in clients), Counter[str]())
    # each way of misbehaving did happen, and some who stalled did find their pair gone
    assert min(did.values()) > 10, did
    assert sum(client.lost_leases for client in clients) > 0
