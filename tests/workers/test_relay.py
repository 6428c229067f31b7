"""The relay: every event arrives, in order, however often batches and answers are lost."""

import random
from pathlib import Path
from typing import Any

import pytest

from workers.contract import Log
from workers.emitter import Emitter
from workers.supervisor.relay import CROWDED_QUEUE, IN_FLIGHT_EVENTS, Relay, Spool


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
            self.web,  # type: ignore[arg-type]
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

    case.web.acked = late  # type: ignore[method-assign]
    for _ in range(300):
        case.emit(1)
        case.pass_time(0.1)
    sent = [batch for batch in case.web.batches if batch["events"]]
    assert len(sent) <= 20, "60 half seconds"
    case.web.acked = lambda run, attempt: case.web.last  # type: ignore[method-assign]
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
