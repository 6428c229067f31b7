"""What so many annotators and runs ask of web, PostgreSQL and Redis."""

from dataclasses import dataclass

HOUR_S, DAY_H = 3600.0, 24.0
WORKED = 0.5  # of a core's time: above that, waits grow faster than work
BATCHES_PER_RUN_S = 0.2  # a step of five seconds, told when it ends; at most 2 are sent
REDIS_COMMANDS_PER_RUN_S = 4.0  # lease, commands, acknowledgements; docs/jobs.md has their times
LABELS_PER_HOUR = 240.0  # of somebody at work: one in 15 s
WORKDAY_H = 6.0  # of labeling, of those who come


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one label page cycle (a vote, answered with the next pair) and of one batch of events (50
    metrics of one step). CPU in ms, the rest in bytes or counts."""

    vote_web_ms: float
    vote_postgres_ms: float
    vote_redis_ms: float
    vote_redis_commands: float
    vote_wal_bytes: float
    vote_stored_bytes: float
    batch_web_ms: float
    batch_postgres_ms: float
    batch_redis_commands: float
    batch_wal_bytes: float
    batch_points: int
    million_points_bytes: float


@dataclass(frozen=True, slots=True)
class Crowd:
    """`at_once`: the share that is at work in the busiest hour; `days`: that come on a day."""

    annotators: int
    at_once: float
    comes: float

    @property
    def votes_per_s(self) -> float:
        return self.annotators * self.at_once * LABELS_PER_HOUR / HOUR_S

    @property
    def votes_per_day(self) -> float:
        return self.annotators * self.comes * LABELS_PER_HOUR * WORKDAY_H


@dataclass(frozen=True, slots=True)
class Load:
    """Cores that are busy half of the time, commands and megabytes a second, gigabytes a day."""

    web_cores: float
    event_cores: float
    postgres_cores: float
    postgres_wal_mb_s: float
    postgres_gb_day: float
    redis_commands_s: float
    redis_cores: float


CROWDS = (Crowd(10, 1.0, 1.0), Crowd(1_000, 0.3, 0.5), Crowd(100_000, 0.2, 0.3))


def load_of(found: Measured, crowd: Crowd, runs: int) -> Load:
    """What `crowd` in its busiest hour and `runs` trainings at once ask for."""
    votes, batches = crowd.votes_per_s, runs * BATCHES_PER_RUN_S
    points_per_day = batches * found.batch_points * HOUR_S * DAY_H
    redis_s = votes * found.vote_redis_commands + runs * (
        REDIS_COMMANDS_PER_RUN_S + BATCHES_PER_RUN_S * found.batch_redis_commands
    )
    redis_ms = found.vote_redis_ms / max(found.vote_redis_commands, 1e-9)
    return Load(
        web_cores=votes * found.vote_web_ms / 1000 / WORKED,
        event_cores=batches * found.batch_web_ms / 1000 / WORKED,
        postgres_cores=(votes * found.vote_postgres_ms + batches * found.batch_postgres_ms)
        / 1000
        / WORKED,
        postgres_wal_mb_s=(votes * found.vote_wal_bytes + batches * found.batch_wal_bytes) / 1e6,
        postgres_gb_day=(
            crowd.votes_per_day * found.vote_stored_bytes
            + points_per_day / 1e6 * found.million_points_bytes
        )
        / 1e9,
        redis_commands_s=redis_s,
        redis_cores=redis_s * redis_ms / 1000 / WORKED,
    )
