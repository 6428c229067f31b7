"""The lease protocol on a real Redis: one trainer per run, whatever is lost or doubled."""

import os
import random
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from workers.contract import Log, wire
from workers.contract.lease import FENCE
from workers.emitter import Emitter
from workers.supervisor.connection import Lease, Line
from workers.supervisor.relay import CROWDED_QUEUE, IN_FLIGHT_EVENTS, Relay, Spool

LONG_AGO = 0.0


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    yield client
    client.close()


@pytest.fixture
def run() -> str:
    return f"lease-{secrets.token_hex(4)}"


class OldRedis:
    """The real Redis, which says that it has been up for `up` seconds, and forgets at a restart
    unless it has an append-only file."""

    def __init__(self, client: redis.Redis, up: float = 10_000, aof: int = 0) -> None:
        self._client = client
        self.up, self.aof = up, aof

    def info(self, section: str) -> dict[str, Any]:
        return {"server": {"uptime_in_seconds": self.up}, "persistence": {"aof_enabled": self.aof}}[
            section
        ]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def lease(client: redis.Redis, run: str, attempt: int = 1, seconds: float = 30) -> Lease:
    return Lease(OldRedis(client), run=run, attempt=attempt, seconds=seconds)


def claim(client: redis.Redis, run: str, attempt: int = 1) -> str:
    return lease(client, run, attempt).claim(created_at=LONG_AGO)


def test_of_many_who_claim_an_attempt_at_once_one_gets_it(client: redis.Redis, run: str) -> None:
    answers: list[str] = []
    gate = threading.Barrier(20)

    def try_it() -> None:
        mine = lease(client, run)
        gate.wait()
        answers.append(mine.claim(created_at=LONG_AGO))

    threads = [threading.Thread(target=try_it) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["claimed"] + ["superseded"] * 19


def test_an_attempt_never_starts_again_even_after_its_lease(client: redis.Redis, run: str) -> None:
    first = lease(client, run)
    assert first.claim(created_at=LONG_AGO) == "claimed"
    first.release()
    assert claim(client, run, attempt=1) == "superseded"


def test_a_lower_attempt_never_starts(client: redis.Redis, run: str) -> None:
    second = lease(client, run, attempt=2)
    assert second.claim(created_at=LONG_AGO) == "claimed"
    second.release()
    assert claim(client, run, attempt=1) == "superseded"


def test_a_higher_attempt_waits_while_the_older_one_lives(client: redis.Redis, run: str) -> None:
    first = lease(client, run, 1)
    first.claim(created_at=LONG_AGO)
    second = lease(client, run, 2)
    assert second.claim(created_at=LONG_AGO) == "held"
    assert first.renew() == "wanted", "the older one hears that it should make room"
    first.release()
    assert second.claim(created_at=LONG_AGO) == "claimed"
    assert first.renew() == "lost"


def test_a_higher_attempt_gets_in_when_the_lease_ran_out(client: redis.Redis, run: str) -> None:
    lease(client, run, 1, seconds=0.1).claim(created_at=LONG_AGO)
    assert claim(client, run, 2) == "held"
    time.sleep(0.15)
    assert claim(client, run, 2) == "claimed"


def test_a_claim_whose_answer_was_lost_can_be_asked_again(client: redis.Redis, run: str) -> None:
    mine = lease(client, run)
    assert [mine.claim(created_at=LONG_AGO) for _ in range(2)] == ["claimed", "claimed"]


def test_renewing_keeps_the_lease_from_running_out(client: redis.Redis, run: str) -> None:
    mine = lease(client, run, seconds=0.3)
    mine.claim(created_at=LONG_AGO)
    for _ in range(5):
        time.sleep(0.1)
        assert mine.renew() == "renewed"
    assert client.pttl(wire.lease_key(run)) > 0


def test_a_redis_that_forgot_everything_is_told_again_by_renewing(
    client: redis.Redis, run: str
) -> None:
    mine = lease(client, run)
    mine.claim(created_at=LONG_AGO)
    client.delete(wire.lease_key(run), wire.fence_key(run))
    assert mine.renew() == "renewed"
    assert claim(client, run, attempt=1) == "superseded"


def test_a_redis_that_remembers_is_believed_at_once_after_its_restart(
    client: redis.Redis, run: str
) -> None:
    fresh = OldRedis(client, up=1, aof=1)
    mine = Lease(fresh, run=run, attempt=1, seconds=30)
    assert mine.claim(created_at=time.time() - 60) == "claimed"


def test_the_embedded_redis_remembers(client: redis.Redis) -> None:
    assert client.info("persistence")["aof_enabled"] == 1


def test_an_attempt_from_before_a_restart_of_redis_waits_for_one_lease(
    client: redis.Redis, run: str
) -> None:
    fresh = OldRedis(client, up=10)
    mine = Lease(fresh, run=run, attempt=1, seconds=30)
    assert mine.claim(created_at=time.time() - 60) == "held"
    assert client.exists(wire.fence_key(run)) == 0, "nothing was claimed meanwhile"
    fresh.up = 32
    assert mine.claim(created_at=time.time() - 60) == "claimed"


def test_an_attempt_that_is_newer_than_the_restart_need_not_wait(
    client: redis.Redis, run: str
) -> None:
    fresh = OldRedis(client, up=10)
    mine = Lease(fresh, run=run, attempt=1, seconds=30)
    assert mine.claim(created_at=time.time() - 1) == "claimed"


def test_a_fenced_attempt_never_starts_and_a_started_one_cannot_be_fenced(
    client: redis.Redis, run: str
) -> None:
    assert client.eval(FENCE, 1, wire.fence_key(run), 1) == b"fenced"
    assert claim(client, run, attempt=1) == "superseded"
    assert claim(client, run, attempt=2) == "claimed"
    assert client.eval(FENCE, 1, wire.fence_key(run), 2) == b"claimed"


def test_releasing_leaves_the_lease_of_another_alone(client: redis.Redis, run: str) -> None:
    first = lease(client, run, 1, seconds=0.05)
    first.claim(created_at=LONG_AGO)
    time.sleep(0.1)
    assert claim(client, run, 2) == "claimed"
    first.release()
    assert client.get(wire.lease_key(run)).startswith(b"2:")


def test_the_age_of_a_lease_counts_from_before_the_question(client: redis.Redis, run: str) -> None:
    now = [100.0]

    class Slow(OldRedis):
        def eval(self, *args: Any) -> Any:
            now[0] += 7  # the answer takes seven seconds
            return self._client.eval(*args)

    mine = Lease(Slow(client), run=run, attempt=1, seconds=30, clock=lambda: now[0])
    assert mine.age() == float("inf")
    mine.claim(created_at=LONG_AGO)
    assert mine.age() == 7


def test_without_redis_it_says_unreachable_and_grows_old(run: str) -> None:
    away = Line("unix:///nonexistent/redis.sock?db=0").redis
    mine = Lease(away, run=run, attempt=1, seconds=30)
    assert mine.claim(created_at=LONG_AGO) == "unreachable"
    assert mine.renew() == "unreachable"
    assert mine.age() == float("inf")
    mine.release()


# The relay: every event arrives, in order, however often batches and answers are lost.


class Web:
    """The web side by its rules: known events are skipped, a gap is refused. Loses what it is told
    to lose."""

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []
        self.seen: list[int] = []
        self.last = 0
        self.loses_batch = self.loses_answer = lambda: False
        self.takes = True
        self.waiting = 0

    def send(self, batch: dict[str, Any]) -> bool:
        if not self.takes:
            return False
        self.batches.append(batch)
        if self.loses_batch():
            return True
        for event in batch["events"]:
            if event["seq"] == self.last + 1:
                self.last += 1
                self.seen.append(event["seq"])
        return True

    def acked(self, run: str, attempt: int) -> int | None:
        return None if self.loses_answer() or not self.last else self.last

    def batches_waiting(self) -> int | None:
        return self.waiting


class Case:
    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.web = Web()
        self.emitter = Emitter(folder / "events.jsonl", run="r", attempt=1)
        self.relay = Relay(
            Spool(folder / "events.jsonl", run="r", attempt=1),
            self.web,
            run="r",
            attempt=1,
            batch_s=0.5,
            heartbeat_s=5.0,
            clock=lambda: self.now,
        )

    def emit(self, count: int, size: int = 1) -> None:
        for _ in range(count):
            self.emitter.write(Log(lines=["x" * size]))

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.relay.tick()


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_events_go_out_in_batches_at_most_every_half_second(case: Case) -> None:
    for _ in range(50):
        case.emit(1)
        case.pass_time(0.1)
    case.pass_time(2)
    assert case.web.seen == list(range(1, 51))
    assert len(case.web.batches) <= 15
    assert case.relay.is_drained()


def test_a_batch_is_limited_in_events_and_in_bytes(case: Case) -> None:
    case.emit(500)
    case.emit(5, size=300_000)
    case.pass_time(10)
    sizes = [len(batch["events"]) for batch in case.web.batches if batch["events"]]
    assert sizes == [200, 200, 101, 1, 1, 1, 1]
    assert case.web.last == 505


def test_a_lost_batch_comes_again_though_new_events_keep_coming(case: Case) -> None:
    lost = iter([True])
    case.web.loses_batch = lambda: next(lost, False)
    for _ in range(40):
        case.emit(1)
        case.pass_time(0.1)
    case.pass_time(1)
    assert case.web.seen == list(range(1, 41))


def test_nothing_is_lost_on_a_line_that_loses_half_of_everything(case: Case) -> None:
    chance = random.Random(1)
    case.web.loses_batch = case.web.loses_answer = lambda: chance.random() < 0.5
    case.emit(700)
    case.pass_time(600)
    assert case.web.seen == list(range(1, 701))
    assert case.relay.is_drained()


def test_it_is_not_drained_before_the_last_answer(case: Case) -> None:
    case.web.loses_answer = lambda: True
    case.emit(3)
    case.pass_time(10)
    assert case.web.last == 3
    assert not case.relay.is_drained()


def test_a_web_side_that_is_slow_gets_fewer_batches_and_every_event(case: Case) -> None:
    """It answers three seconds late: what came meanwhile goes out as one batch, not as six."""
    told: list[tuple[float, int]] = []

    def late(run: str, attempt: int) -> int | None:
        told.append((case.now, case.web.last))
        return max((last for at, last in told if at <= case.now - 3), default=0) or None

    case.web.acked = late
    for _ in range(300):
        case.emit(1)
        case.pass_time(0.1)
    sent = [batch for batch in case.web.batches if batch["events"]]
    assert len(sent) <= 20, "60 half seconds"
    case.web.acked = lambda run, attempt: case.web.last
    case.pass_time(5)
    assert case.web.seen == list(range(1, 301))


def test_a_web_side_that_is_away_is_not_flooded(case: Case) -> None:
    case.web.loses_batch = lambda: True  # they wait in the queue, and nobody takes them
    case.emit(5000)
    case.pass_time(3600)
    assert len(case.web.batches) < 60 * 10, "about once a minute what is in flight comes again"
    assert max(e["seq"] for b in case.web.batches for e in b["events"]) <= IN_FLIGHT_EVENTS
    case.web.loses_batch = lambda: False
    case.pass_time(200)
    assert case.web.last == 5000


def test_what_an_earlier_worker_had_brought_is_not_waited_for(case: Case) -> None:
    """More than fits in flight, and all but the end of it known to the web side."""
    case.emit(6000)
    case.web.last = 5990
    case.web.seen = list(range(1, 5991))
    case.pass_time(60)
    assert case.web.seen == list(range(1, 6001))
    assert case.relay.is_drained()


def test_a_silent_trainer_is_reported_alive(case: Case) -> None:
    case.pass_time(60)
    assert 10 <= len(case.web.batches) <= 13
    assert all(batch["events"] == [] for batch in case.web.batches)


def test_signs_of_life_do_not_fill_a_crowded_queue(case: Case) -> None:
    case.web.waiting = CROWDED_QUEUE
    case.pass_time(60)
    assert case.web.batches == []


def test_a_broker_that_is_away_gets_everything_when_it_is_back(case: Case) -> None:
    case.web.takes = False
    case.emit(300)
    case.pass_time(30)
    case.web.takes = True
    case.pass_time(10)
    assert case.web.seen == list(range(1, 301))


def test_what_is_not_acknowledged_does_not_fill_the_memory(case: Case) -> None:
    case.web.loses_batch = lambda: True
    case.emit(20_000)
    case.pass_time(10)
    # One read brings up to a megabyte, so the bound is a little above twice what is in flight.
    assert len(case.relay._pending) < 20_000 / 2
