"""Thirty-two annotators at once who stall, crash and submit again: nothing lost, nothing twice."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.common.errors import Conflict
from apps.labeling import services
from apps.labeling.models import Comparison, Decision, Slot, Vote
from apps.labeling.services import Lease, NothingReason
from tests.labeling.pairs import annotators_make, pairs_make

CLIENTS, PAIRS, VOTES = 32, 2000, 3
FINGERS = 6
GIVE_UP = 300.0  # seconds


@dataclass
class Client:
    """A browser with a bad connection and an impatient person."""

    project: Project
    annotator: User
    fingers: ThreadPoolExecutor  # shared: what impatient people press with at the same moment
    random: random.Random
    acknowledged: dict[int, str] = field(default_factory=dict)  # comparison: choice
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
        """Vote on a pair in one of the ways clients do; None means: start again."""
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
        choice = self.random.choice("ab")
        times = {"double": 2, "parallel": 3}.get(way, 1)
        try:
            if way == "parallel":
                results = list(self.fingers.map(self.submit, [lease] * times, [choice] * times))
            else:
                results = [self.submit(lease, choice) for _ in range(times)]
        except Conflict as error:
            if (error.code, way) != ("lease_lost", "stall"):
                raise
            self.lost_leases += 1
            return None
        assert len({result.vote.pk for result in results}) == 1
        assert sum(not result.replayed for result in results) == 1
        assert lease.comparison not in self.acknowledged
        self.acknowledged[lease.comparison] = choice
        return None if way == "crash after" else results[-1].next

    def submit(self, lease: Lease, choice: str) -> services.VoteResult:
        return services.vote_cast(
            slot=lease.slot, annotator=self.annotator, idempotency_key=lease.key, choice=choice
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


@pytest.mark.django_db(transaction=True)
def test_thirty_two_unruly_clients_lose_double_and_over_assign_nothing() -> None:
    project = Project.objects.create(slug="crowd", name="Crowd")
    pairs_make(project, PAIRS, overlap=VOTES, max_overlap=VOTES)
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
    stored = list(Vote.objects.values_list("comparison_id", "annotator_id", "choice", "is_current"))
    acknowledged = {
        (comparison, client.annotator.pk, choice)
        for client in clients
        for comparison, choice in client.acknowledged.items()
    }
    assert {row[:3] for row in stored} == acknowledged  # nothing lost, nothing invented
    assert len(stored) == len(acknowledged) == PAIRS * VOTES  # nothing twice, nothing too many
    assert Counter(row[0] for row in stored) == dict.fromkeys(
        Comparison.objects.values_list("pk", flat=True), VOTES
    )
    assert set(Slot.objects.values_list("state", flat=True)) == {"done"}
    assert set(Comparison.objects.values_list("n_votes", flat=True)) == {VOTES}
    tallies = Counter((comparison, choice) for comparison, _, choice, _ in stored)
    for decision in Decision.objects.all():
        assert decision.n_a == tallies[(decision.comparison_id, "a")]
        assert decision.n_b == tallies[(decision.comparison_id, "b")]
    did = sum((client.did for client in clients), Counter[str]())
    # each way of misbehaving did happen, and some who stalled did find their pair gone
    assert min(did.values()) > 10, did
    assert sum(client.lost_leases for client in clients) > 0
