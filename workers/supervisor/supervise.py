"""One attempt, from its claim to the last acknowledged event.

    claim the lease -> start the trainer -> renew, relay, listen for commands, until it is dead
    -> give its end a name if it had no last word -> relay the rest -> release the lease

The lease is kept until the web side has every event: an attempt whose outcome is still on its
way must not be taken for a lost one.
"""

import errno
import json
import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from workers.artifacts import Store, StoreUnreachable
from workers.contract.events import Cancelled, Event, Failed, Fault, Log
from workers.contract.jobs import PLAIN, JobSpec, Limits, spec_to_json
from workers.contract.wire import ContractError, is_run_id
from workers.control import CANCEL, CONTROL_FILE, STOP, Command, command_write
from workers.emitter import EVENTS_FILE
from workers.launchers import CannotStart, Machine, hears_signals, rank_environment, trainer_argv
from workers.printed import OUTPUT_FILE
from workers.rank_ends import end_of_ranks
from workers.supervisor import connection as leases
from workers.supervisor.child import Trainer
from workers.supervisor.connection import Lease, Line
from workers.supervisor.relay import Relay, Spool

# What is said of an attempt whose trainer could not say it. `docs/jobs.md` explains each kind.

INTERRUPTED = Failed(
    "interrupted",
    Fault.MACHINE,
    "The worker shuts down; the run continues from its checkpoint on the next one.",
    retryable=True,
)
SUPERSEDED = Failed("superseded", Fault.MACHINE, "A later attempt of this run took over.")
LEASE_LOST = Failed(
    "lease_lost",
    Fault.MACHINE,
    "The worker lost its line to Redis for so long that another one might have taken the run.",
    retryable=True,
)
STOPPED_BY_FORCE = Failed(
    "stop_forced",
    Fault.USER,
    "The run was asked to stop, did not save and end in time, and was killed. Its last checkpoint "
    "is kept.",
)
WORKER_LOST = Failed(
    "killed", Fault.MACHINE, "The worker died while it supervised this attempt.", retryable=True
)


def time_limit(seconds: float) -> Failed:
    return Failed(
        "time_limit", Fault.CONFIGURATION, f"The attempt took longer than its {seconds:g} s."
    )


# Seconds between this and that, nearly all of them fractions of the lease.


@dataclass(frozen=True, slots=True)
class Timing:
    lease_s: float
    grace_s: float  # between a polite command and the kill
    stop_s: float  # the same after a person's stop, which is to lose nothing
    max_s: float

    @classmethod
    def of(cls, limits: Limits) -> "Timing":
        return cls(
            float(limits.lease_s),
            float(limits.grace_s),
            max(float(limits.stop_s), float(limits.grace_s)),
            float(limits.max_s),
        )

    @property
    def renew_s(self) -> float:
        return self.lease_s / 6

    @property
    def retry_s(self) -> float:
        return min(1.0, self.renew_s)

    @property
    def batch_s(self) -> float:
        """Between two batches of events."""
        return min(0.5, self.lease_s / 10)

    @property
    def heartbeat_s(self) -> float:
        return min(5.0, self.lease_s / 3)

    @property
    def polite_age_s(self) -> float:
        """Age of an unrenewed lease at which the trainer is asked to save and end."""
        return self.lease_s * 2 / 3

    @property
    def kill_age_s(self) -> float:
        """Age at which it is killed: before anybody else can claim the run."""
        return self.lease_s * 0.9

    @property
    def drain_s(self) -> float:
        """How long to wait for the web side after the trainer's end; then the spool stays."""
        return self.lease_s * 10

    @property
    def drain_at_shutdown_s(self) -> float:
        return min(3.0, self.lease_s)


TICK_S = 0.1
STORE_PATIENCE_S = 60.0
log = logging.getLogger(__name__)


@dataclass
class _Ending:
    """The trainer was asked to end: until when it may, and what is said if it says nothing."""

    word: str
    kill_at: float
    last_word: Event


def _why(error: Exception) -> Failed:
    """What kept us from supervising, and whose turn it is."""
    text = f"{type(error).__name__}: {error}"[:2000]
    if isinstance(error, StoreUnreachable):
        return Failed("store_unreachable", Fault.MACHINE, str(error)[:2000], retryable=True)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failed("disk_full", Fault.MACHINE, text)
    return Failed("worker_error", Fault.BUG, text, retryable=True)


def _is_no_cause(outcome: Event) -> bool:
    """What becomes of ranks that are ended by force is not why they were."""
    return isinstance(outcome, Failed) and outcome.kind in ("terminated", "rank_lost")


def attempt_folder(work: Path, spec: JobSpec) -> Path:
    """Where the attempt works, and what is removed after it: below `work`, whatever a message
    says its run is called. Raises `ContractError`."""
    if not is_run_id(spec.run) or type(spec.attempt) is not int:
        raise ContractError(f"job.run: {spec.run!r:.60} is no id of a run")
    folder = work / spec.run / f"attempt-{spec.attempt}"
    if not folder.resolve().is_relative_to(work.resolve()):
        raise ContractError(f"job.run: {spec.run} leads out of the work folder")
    return folder


class Supervisor:
    """Supervises one attempt in this thread, which must be the main one (see `Trainer`).

    `leaving` answers whether this worker shuts down; `created_at` is when the attempt came to be.
    """

    def __init__(
        self,
        spec: JobSpec,
        *,
        line: Line,
        work: Path,
        created_at: float = 0.0,
        leaving: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec = spec
        self._line = line
        self._created_at = created_at
        self._leaving = leaving
        self._clock = clock
        self._timing = Timing.of(spec.limits)
        self._folder = attempt_folder(work, spec)
        self._lease = Lease(
            line.redis, run=spec.run, attempt=spec.attempt, seconds=self._timing.lease_s
        )
        self._spool = Spool(self._folder / EVENTS_FILE, run=spec.run, attempt=spec.attempt)
        self._relay = Relay(
            self._spool,
            line,
            run=spec.run,
            attempt=spec.attempt,
            secret=spec.secret,
            batch_s=self._timing.batch_s,
            heartbeat_s=self._timing.heartbeat_s,
            clock=clock,
        )
        self._trainer: Trainer | None = None
        self._ending: _Ending | None = None
        self._asked_lease_at = self._asked_command_at = float("-inf")
        self._reachable = True

    def run(self) -> str:
        """What became of the attempt: superseded, held or left (never started here), done (every
        event is acknowledged) or kept (the rest of the events stays in the spool)."""
        claim = self._claim()
        if claim != leases.CLAIMED:
            return claim
        try:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                if self._was_started_before():
                    self._spool.close_with(WORKER_LOST)
                else:
                    self._train()
            except Exception as error:
                log.exception("%s/%s: supervising failed", self._spec.run, self._spec.attempt)
                self._kill_trainer()
                self._spool.close_with(_why(error))
            self._store_files()
            return self._drain()
        finally:
            self._kill_trainer()
            self._lease.release()

    def _kill_trainer(self) -> None:
        if self._trainer is not None:
            self._trainer.kill()

    # --- claim ---

    def _claim(self) -> str:
        """Wait for the lease, patiently while Redis is away, not for ever while others hold it:
        the web side sends the job again."""
        patience = 2 * self._timing.lease_s + self._timing.grace_s
        give_up_at = self._clock() + patience
        while not self._leaving():
            answer = self._lease.claim(created_at=self._created_at)
            if answer in (leases.CLAIMED, leases.SUPERSEDED):
                return answer
            if answer == leases.UNREACHABLE:
                give_up_at = self._clock() + patience
            elif self._clock() > give_up_at:
                return leases.HELD
            else:
                self._relay.tick()
            time.sleep(self._timing.retry_s)
        return "left"

    # --- the trainer's life ---

    def _was_started_before(self) -> bool:
        """An attempt starts once. Events of this one exist: its worker died, and a Redis that lost
        its memory let us claim it again."""
        store = Store(self._spec.artifacts_url)
        if not self._spool.path.exists() and self._is_stored(store, self._stored(EVENTS_FILE)):
            self._spool.path.write_bytes(store.read_bytes(self._stored(EVENTS_FILE)))
        return self._spool.path.exists() and self._spool.path.stat().st_size > 0

    def _is_stored(self, store: Store, name: str) -> bool:
        """Whether the store has it, asked for a while where it does not answer; the lease is kept
        meanwhile."""
        give_up_at = self._clock() + STORE_PATIENCE_S
        while True:
            try:
                return store.exists(name)
            except StoreUnreachable:
                self._keep_lease()
                if self._ending or self._leaving() or self._clock() > give_up_at:
                    raise
            time.sleep(self._timing.retry_s)

    def _train(self) -> None:
        job = self._folder / "job.json"
        job.write_text(json.dumps(spec_to_json(replace(self._spec, secret=""))))
        self._share_spool()
        here = Machine()
        try:
            argv = trainer_argv(
                self._spec, job, self._folder, silence_s=self._timing.kill_age_s, here=here
            )
        except CannotStart as error:
            self._spool.close_with(error.failure)
            return
        self._relay.say_alive()
        self._trainer = Trainer(
            argv,
            run=self._spec.run,
            attempt=self._spec.attempt,
            output=self._folder / OUTPUT_FILE,
            environment=rank_environment(self._spec, here),
        )
        log.info("%s/%s: trainer %s", self._spec.run, self._spec.attempt, self._trainer.pid)
        ends_at = self._clock() + self._timing.max_s
        while (status := self._trainer.wait(TICK_S)) is None:
            self._keep_lease()
            self._listen()
            if self._leaving():
                self._end(Command(STOP, INTERRUPTED))
            if self._clock() >= ends_at:
                self._end(Command(STOP, time_limit(self._timing.max_s)))
            if self._ending is not None and self._clock() >= self._ending.kill_at:
                self._trainer.kill()
            if self._reachable:
                self._relay.tick()
                self._reachable = not self._line.down
        self._trainer.kill()  # what it may have left behind
        self._name_its_end(self._trainer, status)

    def _keep_lease(self) -> None:
        now = self._clock()
        every = self._timing.renew_s if self._reachable else self._timing.retry_s
        if now - self._asked_lease_at >= every:
            self._asked_lease_at = now
            self._handle(self._lease.renew())
        age = self._lease.age()
        if age >= self._timing.polite_age_s:
            self._end(Command(STOP, LEASE_LOST), within_s=self._timing.kill_age_s - age)

    def _handle(self, answer: str) -> None:
        """What the lease script said."""
        self._reachable = answer != leases.UNREACHABLE
        if self._reachable:
            self._line.down = False
        if answer in (leases.RENEWED, leases.WANTED) and self._trainer is not None:
            self._trainer.reassure()
        if answer == leases.WANTED:
            self._end(Command(STOP, SUPERSEDED))
        elif answer == leases.LOST:
            self._end(Command(STOP, SUPERSEDED), within_s=0.0)

    def _listen(self) -> None:
        """Pass on what people command."""
        now = self._clock()
        if not self._reachable or now - self._asked_command_at < self._timing.retry_s:
            return
        self._asked_command_at = now
        word = self._line.command(self._spec.run)
        self._reachable = not self._line.down
        if word is not None:
            self._end(Command(word), within_s=self._timing.stop_s if word == STOP else None)

    def _end(self, command: Command, *, within_s: float | None = None) -> None:
        """Ask the trainer to end; it is killed when it has not after `within_s` (else the grace
        time). Asked again, a cancel replaces a stop; else the earlier time to kill counts."""
        kill_at = self._clock() + (self._timing.grace_s if within_s is None else within_s)
        before = self._ending
        if before is not None and command.word in (STOP, before.word):
            before.kill_at = min(before.kill_at, kill_at)
            return
        if command.word == CANCEL:
            last_word: Event = Cancelled(by_force=True)
        else:
            last_word = command.outcome or STOPPED_BY_FORCE
        self._ending = _Ending(command.word, kill_at, last_word)
        # The file first: the signal says to look at it.
        command_write(self._folder / CONTROL_FILE, command)
        if self._trainer is not None and hears_signals(self._spec):
            self._trainer.terminate()

    def _name_its_end(self, trainer: Trainer, status: int) -> None:
        """A last word for a trainer that had none of its own."""
        command = self._ending
        outcome: Event | None = end_of_ranks(self._folder, out_of_memory=trainer.lacked_memory())
        if command is not None and (
            outcome is None or command.word == CANCEL or _is_no_cause(outcome)
        ):
            outcome = command.last_word
        if outcome is None:
            called = "trainer" if self._spec.launcher == PLAIN else "launcher of the ranks"
            kind, message = trainer.died_of(status, called=called)
            outcome = Failed(kind, Fault.MACHINE, message, retryable=True)
        printed = trainer.tail() if isinstance(outcome, Failed) else []
        log_of_it = [Log(lines=printed, level="error")] if printed else []
        self._spool.close_with(*log_of_it, outcome)

    # --- afterwards ---

    def _drain(self) -> str:
        """Relay until the web side has all, still holding the lease; not for ever."""
        started_at = self._clock()
        while True:
            self._relay.tick(now_or_never=True)
            if self._relay.is_drained():
                shutil.rmtree(self._folder, ignore_errors=True)
                return "done"
            patience = self._timing.drain_at_shutdown_s if self._leaving() else self._timing.drain_s
            if self._clock() - started_at > patience:
                log.warning(
                    "%s/%s: the web side has not taken all events; they stay in %s",
                    *(self._spec.run, self._spec.attempt, self._spool.path),
                )
                return "kept"
            now = self._clock()
            if now - self._asked_lease_at >= self._timing.renew_s:
                self._asked_lease_at = now
                self._lease.renew()
            time.sleep(TICK_S)

    def _share_spool(self) -> None:
        """Let a store on this disk hold the spool from its first line: a second name for the same
        file. What the web side can read there, it need not be told by us."""
        stored = Store(self._spec.artifacts_url).local_path(self._stored(EVENTS_FILE))
        self._spool.path.touch()
        if stored is None:
            return
        try:
            stored.parent.mkdir(parents=True, exist_ok=True)
            os.link(self._spool.path, stored)
        except OSError as error:  # another disk: copied at the end
            log.info("%s: the spool is not shared: %s", self._spec.run, error)

    def _store_files(self) -> None:
        """Leave spool and printed output beside the checkpoints."""
        for name in (EVENTS_FILE, OUTPUT_FILE):
            path = self._folder / name
            try:
                store = Store(self._spec.artifacts_url)
                stored = store.local_path(self._stored(name))
                if stored is not None and stored.exists() and path.samefile(stored):
                    continue
                store.write_bytes(self._stored(name), path.read_bytes())
            except FileNotFoundError:
                continue
            except Exception as error:  # whatever a store may raise, the events still go out
                log.warning("%s: %s could not be stored: %s", self._spec.run, name, error)

    def _stored(self, name: str) -> str:
        return f"{self._spec.folder}/{name}"
