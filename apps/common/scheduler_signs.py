"""What schedulers leave in Redis (scheduling), and which of them leads; without Celery's beat."""

import time
from dataclasses import dataclass

import redis

from workers.contract.wire import ALIVE_SECONDS

LEAD_KEY = "concord:scheduler:lead"  # the name of the one that leads; expires
SENT_KEY = "concord:scheduler:sent"  # task of the schedule -> Unix time of its last sending
ALL_KEY = "concord:scheduler:all"  # names of those that run, by the Unix time of their last sign


@dataclass(frozen=True, slots=True)
class Schedulers:
    """Those that were heard in the last half minute, as host:process:id. `leads`: one of them or
    ""; `sent_at`: Unix time at which any of them has last sent something."""

    leads: str = ""
    stand_by: tuple[str, ...] = ()
    sent_at: float | None = None

    @property
    def leader(self) -> str:
        """In words: where the leader runs."""
        host, process, _ = self.leads.rsplit(":", 2)
        return f"Process {process} on {host}"

    def told(self) -> dict[str, str | int | None]:
        """For somebody who has not signed in: no host and no process, only the id in the logs."""
        return {"leads": self.leads.rpartition(":")[2] or None, "stand_by": len(self.stand_by)}


def schedulers_now(client: redis.Redis) -> Schedulers:
    """`client` gives text. Raises what Redis raises when it is away."""
    pipe = client.pipeline(transaction=False)
    pipe.get(LEAD_KEY)
    pipe.zrangebyscore(ALL_KEY, time.time() - ALIVE_SECONDS, "+inf")
    pipe.hvals(SENT_KEY)
    leads, names, sent = pipe.execute()
    return Schedulers(
        leads=leads or "",
        stand_by=tuple(name for name in names if name != leads),
        sent_at=max(map(float, sent), default=None),
    )
