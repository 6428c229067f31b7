"""Trainers that only report, with the supervisors' own relays: many runs from one process."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from apps.training.signing import secret_of
from workers.context import RunContext
from workers.contract.events import Opened
from workers.emitter import EVENTS_FILE, Emitter
from workers.supervisor.connection import Line
from workers.supervisor.relay import Relay, Spool

METRICS, STEPS_A_SECOND = 50, 10
BATCH_S, HEARTBEAT_S = 0.5, 5.0  # as workers.supervisor.supervise has them for the shipped lease


def names(count: int = METRICS) -> list[str]:
    groups = ("objective", "policy", "val", "reward", "behaviour", "time", "eval", "rollout")
    return [f"{groups[i % len(groups)]}/figure_{i:02d}" for i in range(count)]


def curves(steps: int, metrics: int = METRICS, seed: int = 0) -> np.ndarray:
    """(steps, metrics) float64: noisy walks. Four fifths are what torch gives (float32), one fifth
    are double, as times and ratios computed in Python are."""
    chance = np.random.default_rng(seed)
    walk = np.cumsum(chance.normal(0, 0.01, (steps, metrics)), axis=0)
    noisy = walk + chance.normal(0, 0.1, (steps, metrics))
    single = noisy.astype(np.float32).astype(np.float64)
    return np.where(np.arange(metrics) % 5 == 0, noisy, single)


@dataclass
class Trainer:
    """One run: its context, its spool, its supervisor's relay."""

    run: str
    folder: Path
    line: Line
    values: list[list[float]]
    step: int = 0
    acked: int = 0
    written: list[float] = field(default_factory=list)  # when event n + 1 was written
    delays: list[float] = field(default_factory=list)  # s from written to acknowledged

    def __post_init__(self) -> None:
        self.path = self.folder / EVENTS_FILE
        self.emitter = Emitter(self.path, run=self.run, attempt=1)
        write = self.emitter.write
        self.emitter.write = self._noted(write)
        nothing = cast(Any, None)
        self.context = RunContext(nothing, nothing, self.folder, writer=self.emitter)
        self.relay = Relay(
            Spool(self.path, run=self.run, attempt=1),
            self.line,
            run=self.run,
            attempt=1,
            secret=secret_of(self.run, 1),
            batch_s=BATCH_S,
            heartbeat_s=HEARTBEAT_S,
            clock=time.monotonic,
        )
        self.names = names(len(self.values[0]))
        self.context.emit(Opened(total_steps=len(self.values)))

    def _noted(self, write: Any) -> Any:
        def noted(event: Any) -> None:
            self.written.append(time.monotonic())
            write(event)

        return noted

    def take_step(self) -> None:
        values = self.values[self.step % len(self.values)]
        self.step += 1
        self.context.metrics(self.step, dict(zip(self.names, values, strict=True)))
        self.context.progress(self.step, None, "update")

    def tick(self, *, at_once: bool = False) -> None:
        self.relay.tick(now_or_never=at_once)
        acked, now = self.relay._acked, time.monotonic()
        self.delays += [now - at for at in self.written[self.acked : acked]]
        self.acked = max(self.acked, acked)

    def is_drained(self) -> bool:
        return self.acked >= len(self.written)


def drive(trainers: list[Trainer], seconds: float) -> None:
    """Ten steps a second of each, spread evenly over each tenth of a second."""
    start = time.monotonic()
    beat = 1 / STEPS_A_SECOND
    for tick in range(int(seconds * STEPS_A_SECOND)):
        for place, trainer in enumerate(trainers):
            due = start + tick * beat + place * beat / len(trainers)
            time.sleep(max(0.0, due - time.monotonic()))
            trainer.take_step()
            trainer.tick()


def drain(trainers: list[Trainer], limit_s: float = 60) -> float:
    """Seconds until everything is acknowledged."""
    start = time.monotonic()
    for trainer in trainers:
        trainer.context.flush()
    while not all(trainer.is_drained() for trainer in trainers):
        if time.monotonic() - start > limit_s:
            raise SystemExit(f"after {limit_s:.0f} s events still wait")
        for trainer in trainers:
            trainer.tick()
        time.sleep(0.02)
    return time.monotonic() - start
