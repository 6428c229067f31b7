"""The scheduler: any number may run, one leads, and what is due is sent once.

Whoever holds a lock in Redis leads. The lock expires unless it is renewed, so another scheduler
leads within SCHEDULER_LEAD_SECONDS and a third after the leader was killed, stopped or cut off.
Redis is where tasks are sent to, so who cannot reach it can send nothing. PostgreSQL is not asked.

To hold the lock is not enough, since a process may be stopped between looking and sending. So each
sending is first claimed, by a script that looks at the lock and writes down when the task was sent:
nobody else sends it for that turn, and the next leader continues there. What was claimed and is
sent late, by a process that was stopped in between, expires counted from the claim.
"""

import copy
import logging
import os
import secrets
import socket
import time
from datetime import UTC, datetime
from typing import Any

import redis
from celery import beat
from django.conf import settings
from redis.exceptions import LockError
from redis.lock import Lock

from apps.common.redis_now import redis_now
from apps.common.scheduler_signs import ALL_KEY, LEAD_KEY, SENT_KEY
from workers.alive import Pulse
from workers.contract.wire import ALIVE_SECONDS, BEAT_EVERY_SECONDS, SCHEDULER

# KEYS lead, sent; ARGV name, lead in milliseconds, task of the schedule, Unix time
CLAIM = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
return 1
"""
log = logging.getLogger(__name__)


class LeadScheduler(beat.Scheduler):
    """Celery's scheduler, which sends while it leads and otherwise waits to."""

    def __init__(self, app: Any, *, max_interval: float | None = None, **more: Any) -> None:
        lead_s = settings.SCHEDULER_LEAD_SECONDS
        self._renew_s = lead_s / 3
        self._lead_ms = lead_s * 1000
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._client = redis_now()
        self._lock = Lock(self._client, LEAD_KEY, timeout=lead_s, thread_local=False)
        self._claim = self._client.register_script(CLAIM)
        self._pulse = Pulse(settings.REDIS_URL)
        self._leads = False
        self._renewed_at = self._said_at = float("-inf")
        super().__init__(app, max_interval=min(max_interval or lead_s, self._renew_s), **more)

    def tick(self, *args: Any, **more: Any) -> float:
        leads = self._lead()
        self._give_signs(leads)
        return super().tick(*args, **more) if leads else self.max_interval

    def _lead(self) -> bool:
        """Whether this one leads; takes the lead where nobody has it."""
        now = time.monotonic()
        if self._leads and now - self._renewed_at < self._renew_s:
            return True
        try:
            if self._leads:
                self._renew()
            if not self._leads and self._lock.acquire(blocking=False, token=self.name):
                self._take_over()
        except (redis.RedisError, OSError) as error:
            # The lead may still be ours; nothing is sent before that is known.
            log.warning("scheduler %s: Redis does not answer: %s", self.name, error)
            return False
        self._renewed_at = now
        return self._leads

    def _renew(self) -> None:
        try:
            self._lock.reacquire()
        except LockError:
            self._lost()

    def _take_over(self) -> None:
        """Continue where the last leader stopped."""
        sent = {name.decode(): float(at) for name, at in self._client.hgetall(SENT_KEY).items()}
        for name, entry in self.schedule.items():
            at = sent.get(name)
            entry.last_run_at = (
                entry.default_now() if at is None else datetime.fromtimestamp(at, UTC)
            )
        self.populate_heap()
        self._leads = True
        log.info("scheduler %s leads now", self.name)

    def _lost(self) -> None:
        self._leads = False
        log.warning("scheduler %s has lost the lead", self.name)

    def apply_entry(self, entry: beat.ScheduleEntry, producer: Any = None) -> None:
        at = time.time()
        try:
            keys, given = [LEAD_KEY, SENT_KEY], [self.name, self._lead_ms, entry.name, at]
            if not self._claim(keys=keys, args=given):
                self._lost()
                return
        except (redis.RedisError, OSError) as error:
            log.warning("scheduler %s: %s was not sent: %s", self.name, entry.name, error)
            return
        due = copy.copy(entry)
        if expires := entry.options.get("expires"):
            due.options = entry.options | {"expires": datetime.fromtimestamp(at + expires, UTC)}
        super().apply_entry(due, producer=producer)

    def _give_signs(self, leads: bool) -> None:
        """That this process lives; only of the leader, that there is a scheduler."""
        self._pulse.names = [SCHEDULER] if leads else []
        self._pulse.beat()
        now = time.time()
        if not 0 <= now - self._said_at < BEAT_EVERY_SECONDS:
            self._said_at = now
            try:
                pipe = self._client.pipeline(transaction=False)
                pipe.zadd(ALL_KEY, {self.name: now})
                pipe.zremrangebyscore(ALL_KEY, "-inf", now - ALIVE_SECONDS)
                pipe.execute()
            except (redis.RedisError, OSError):
                return

    def close(self) -> None:
        """Let another lead at once."""
        super().close()
        try:
            if self._leads:
                self._leads = False
                self._lock.release()
            self._client.zrem(ALL_KEY, self.name)
        except (redis.RedisError, OSError) as error:
            log.warning("scheduler %s: the lead will expire: %s", self.name, error)
