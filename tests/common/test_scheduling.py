"""Of several schedulers one leads, another takes over, and nothing is sent twice."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

import pytest
import redis
from celery import Celery
from django.conf import settings as django_settings
from kombu import Exchange, Queue

from apps.common import environment as env
from apps.common import health
from apps.common.scheduler_signs import ALL_KEY, LEAD_KEY, SENT_KEY, schedulers_now
from apps.common.scheduling import LeadScheduler
from tests.common.ticks import EVERY_S, EXPIRES_S, QUEUE
from workers.contract.broker import broker_settings
from workers.contract.wire import SCHEDULER, alive_key

DATABASE = 9  # of Redis: what these schedulers send is nobody else's
LEAD_S = 2


@pytest.fixture
def place(settings) -> Iterator[redis.Redis]:
    settings.REDIS_URL = f"{django_settings.REDIS_URL.partition('?')[0]}?db={DATABASE}"
    client = redis.Redis.from_url(settings.REDIS_URL, decode_responses=True)
    client.flushdb()
    yield client
    client.flushdb()
    client.close()


def wait_for(condition: Callable[[], Any], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


# Real processes.


@contextmanager
def schedulers(*urls: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """As `manage.py start scheduler` starts them, one for each address of Redis."""
    argv = (sys.executable, "-m", "celery", "-A", "tests.common.ticking", "beat")
    own = {"SCHEDULER_LEAD_SECONDS": str(LEAD_S), "LOG_LEVEL": "ERROR"}
    running = [
        subprocess.Popen(argv, cwd=env.ROOT, env=os.environ | own | {"REDIS_URL": url})
        for url in urls
    ]
    try:
        yield running
    finally:
        for one in running:
            with suppress(ProcessLookupError):
                one.kill()
            one.wait()


def sent(place: redis.Redis) -> list[tuple[int, float]]:
    """(process that sent it, Unix time of its end) of every message, oldest first."""
    found = []
    for text in reversed(place.lrange(QUEUE, 0, -1)):
        headers = json.loads(text)["headers"]
        pid = int(headers["origin"].removeprefix("gen").partition("@")[0])
        found.append((pid, datetime.fromisoformat(headers["expires"]).timestamp()))
    return found


def senders(place: redis.Redis) -> list[int]:
    return [pid for pid, _ in sent(place)]


def led(place: redis.Redis) -> int:
    """The process that leads; 0 when none does."""
    return int((place.get(LEAD_KEY) or "::").split(":")[1] or 0)


def both_tick(place: redis.Redis) -> int:
    """Waits until two run and one of them sends; returns that one's process."""
    wait_for(lambda: place.zcard(ALL_KEY) == 2 and place.llen(QUEUE) > 3)
    return led(place)


def heard(place: redis.Redis, pid: int) -> float:
    return max(
        at for name, at in place.zrange(ALL_KEY, 0, -1, withscores=True) if f":{pid}:" in name
    )


def test_one_of_two_sends_and_the_other_takes_over_when_it_is_killed(place, settings):
    with schedulers(settings.REDIS_URL, settings.REDIS_URL) as (one, other):
        first = both_tick(place)
        assert set(senders(place)) == {first}
        second = ({one.pid, other.pid} - {first}).pop()
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: senders(place).count(second) > 3)
    found = sent(place)
    assert senders(place) == sorted(senders(place), key=[first, second].index), "never both"
    last = max(at for pid, at in found if pid == first)
    assert next(at for pid, at in found if pid == second) - last >= EVERY_S, "no turn twice"


def test_a_stopped_one_sends_nothing_after_it_has_lost_the_lead(place, settings):
    with schedulers(settings.REDIS_URL, settings.REDIS_URL) as (one, other):
        first = both_tick(place)
        second = ({one.pid, other.pid} - {first}).pop()
        os.kill(first, signal.SIGSTOP)
        wait_for(lambda: senders(place).count(second) > 3)
        taken_over_at = time.time()
        os.kill(first, signal.SIGCONT)
        wait_for(lambda: heard(place, first) > taken_over_at)
        before = len(sent(place))
        wait_for(lambda: len(sent(place)) > before + 5)
        assert led(place) == second
    found = sent(place)
    late = found[next(n for n, (pid, _) in enumerate(found) if pid == second) :]
    # At most the one that it was just about to send when it was stopped, which nobody takes.
    assert all(at < taken_over_at for pid, at in late if pid == first)
    assert [pid for pid, _ in late].count(first) <= 1


class Line:
    """A way to Redis over TCP that can be cut."""

    def __init__(self, url: str) -> None:
        self._path = url.removeprefix("unix://").partition("?")[0]
        self._listener = self._listen(0)
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()
        return listener

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._path)
            self._open += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=_copy, args=(source, target), daemon=True).start()

    def cut(self) -> None:
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._open.clear()

    def restore(self) -> None:
        self._listener = self._listen(self.port)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def test_one_that_is_cut_off_from_redis_is_replaced_and_comes_back_behind(place, settings):
    line = Line(settings.REDIS_URL)
    try:
        with schedulers(f"redis://127.0.0.1:{line.port}/{DATABASE}") as (far,):
            wait_for(lambda: place.llen(QUEUE) > 3)
            with schedulers(settings.REDIS_URL) as (near,):
                both_tick(place)
                line.cut()
                wait_for(lambda: senders(place).count(near.pid) > 3)
                taken_over_at = time.time()
                line.restore()
                wait_for(lambda: heard(place, far.pid) > taken_over_at)
                wait_for(lambda: senders(place).count(near.pid) > 10)
                assert led(place) == near.pid
        found = sent(place)
        late = found[senders(place).index(near.pid) :]
        assert all(at < taken_over_at for pid, at in late if pid == far.pid)
    finally:
        line.cut()


def test_one_that_is_asked_to_end_leaves_the_lead_at_once(place, settings):
    with schedulers(settings.REDIS_URL) as (one,):
        wait_for(lambda: place.llen(QUEUE) > 0)
        one.terminate()
        one.wait(60)
        assert (place.get(LEAD_KEY), place.zcard(ALL_KEY)) == (None, 0)


# One scheduler in this process, with a lead so long that it looks at the lock seldom.


@pytest.fixture
def scheduler(place, settings) -> Iterator[LeadScheduler]:
    settings.SCHEDULER_LEAD_SECONDS = 300
    app = Celery("ticks", set_as_current=False, fixups=[])
    app.conf.update(broker_settings(settings.REDIS_URL))
    app.conf.task_queues = [Queue(QUEUE, Exchange(QUEUE, type="direct"), routing_key=QUEUE)]
    options = {"queue": QUEUE, "expires": EXPIRES_S}
    app.conf.beat_schedule = {
        "tick": {"task": "tests.tick", "schedule": EVERY_S, "options": options},
        "hourly": {"task": "tests.hourly", "schedule": 3600.0, "options": options},
    }
    made = LeadScheduler(app)
    yield made
    made.close()
    app.close()


def run_until_sent(scheduler: LeadScheduler, place: redis.Redis) -> None:
    def tick() -> int:
        scheduler.tick()
        return place.llen(QUEUE)

    wait_for(tick)


def test_the_lead_is_looked_at_again_right_before_each_sending(scheduler, place):
    run_until_sent(scheduler, place)
    place.delete(QUEUE)
    place.set(LEAD_KEY, "elsewhere:1:abc")  # it was stopped for a while
    time.sleep(EVERY_S)
    for _ in range(3):
        scheduler.tick()
    assert place.llen(QUEUE) == 0
    assert place.get(LEAD_KEY) == "elsewhere:1:abc"


def test_a_message_that_is_sent_late_expires_by_when_it_was_due(scheduler, place, monkeypatch):
    claim = scheduler._claim
    claimed = []

    def slow(**given: Any) -> Any:
        answer = claim(**given)
        time.sleep(EVERY_S)  # stopped between claim and sending
        claimed.append(time.time())
        return answer

    monkeypatch.setattr(scheduler, "_claim", slow)
    run_until_sent(scheduler, place)
    [(_, ends_at)] = sent(place)[:1]
    assert ends_at <= claimed[0] - EVERY_S + EXPIRES_S


def test_the_next_leader_goes_on_where_the_last_one_stopped(scheduler, place):
    now = time.time()
    place.hset(SENT_KEY, "hourly", now - 3_590)
    place.hset(SENT_KEY, "tick", now)
    scheduler.tick()
    due, in_s = scheduler.schedule["hourly"].is_due()
    assert not due
    assert in_s <= 10
    place.hset(SENT_KEY, "hourly", now - 3_700)
    scheduler._take_over()
    assert scheduler.schedule["hourly"].is_due()[0]


def test_what_no_scheduler_ever_sent_is_due_after_its_time(scheduler):
    scheduler.tick()
    due, in_s = scheduler.schedule["hourly"].is_due()
    assert not due
    assert in_s > 3_500


def test_without_redis_it_waits_and_does_not_end(settings):
    settings.REDIS_URL = "unix:///nonexistent/redis.sock"
    lone = LeadScheduler(Celery("lone", set_as_current=False, fixups=[]))
    assert lone.tick() == lone.max_interval
    lone.close()


def test_a_moment_without_redis_costs_nobody_the_lead(scheduler, place, monkeypatch):
    scheduler.tick()
    scheduler._renewed_at = float("-inf")
    with monkeypatch.context() as patch:
        patch.setattr(scheduler._lock, "reacquire", _away)
        scheduler.tick()
    scheduler.tick()
    assert place.get(LEAD_KEY) == scheduler.name
    assert scheduler._leads


def _away() -> None:
    raise redis.ConnectionError("away")


def test_one_that_stands_by_gives_a_sign_but_not_that_of_a_scheduler(scheduler, place):
    place.set(LEAD_KEY, "elsewhere:1:abc")
    scheduler.tick()
    assert schedulers_now(place).stand_by == (scheduler.name,)
    assert not place.exists(alive_key(SCHEDULER))
    place.delete(LEAD_KEY)
    scheduler._pulse._due = 0.0
    scheduler.tick()
    assert place.exists(alive_key(SCHEDULER))


# Who is told.


@pytest.mark.django_db
def test_healthz_says_which_one_leads_and_tells_strangers_no_host(client, place):
    now = time.time()
    place.zadd(ALL_KEY, {"web-1:12:aaaa": now, "web-2:7:bbbb": now, "web-3:7:cccc": now - 3_600})
    place.set(LEAD_KEY, "web-1:12:aaaa")
    answer = client.get("/healthz")
    assert answer.json()["scheduler"] == {"leads": "aaaa", "stand_by": 1}
    assert "web-1" not in answer.content.decode()


@pytest.mark.django_db
def test_healthz_complains_of_schedulers_of_which_none_leads(client, place):
    assert client.get("/healthz").json()["checks"]["scheduler"] == health.NO_SIGN
    now = time.time()
    place.zadd(ALL_KEY, {"web-1:12:aaaa": now, "web-2:7:bbbb": now})
    place.hset(SENT_KEY, "tick", now - 600)
    answer = client.get("/healthz")
    assert answer.status_code == 503
    said = answer.json()["checks"]["scheduler"]
    assert said != health.NO_SIGN
    assert " 2 " in said
    assert "60" in said  # the seconds since anything was sent
    assert answer.json()["scheduler"] == {"leads": None, "stand_by": 2}
