"""The program: `python -m workers.scoring`.

REDIS_URL is where requests wait, CACHE_URL where scores are remembered. SCORER_RETAKE_SECONDS: how
long a request may lie untouched before another scorer takes it over. SIGTERM ends it after the
batch at hand.
"""

import logging
import os
import signal
import sys
import threading
import time

import redis

from workers.alive import Pulse
from workers.contract.scores import SCORER
from workers.rewards.cache import ScoreCache
from workers.scoring.queue import RETAKE_S, RequestQueue
from workers.scoring.scorer import Models, PrecisionGate, Scorer
from workers.tasks import work_folder

log = logging.getLogger("workers.scoring")
STUCK_S = 600.0  # longer in one turn, and others may have its requests
_PAUSE_S = 1.0


class Keeper(threading.Thread):
    """Gives signs of life and keeps what is being worked on, as long as turns come to an end."""

    def __init__(self, queue: RequestQueue, redis_url: str) -> None:
        super().__init__(daemon=True, name="keeper")
        self.turned_at = time.monotonic()
        self._queue = queue
        self._pulse = Pulse(redis_url)
        self._pulse.names = [SCORER]

    def run(self) -> None:
        while True:
            if time.monotonic() - self.turned_at < STUCK_S:
                self._pulse.beat()
                try:
                    self._queue.refresh()
                except (redis.RedisError, OSError) as error:
                    log.warning("Redis: %s", error)
            time.sleep(min(_PAUSE_S, self._queue.retake_s / 4))


def main() -> int:
    logging.basicConfig(
        level=os.environ.get("LOG_LEVEL") or "INFO", format="%(levelname)s %(name)s %(message)s"
    )
    url = os.environ.get("REDIS_URL", "")
    if not url:
        log.error("REDIS_URL is not set: nobody can ask")
        return 2
    leaving = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leaving.set())
    client = redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5)
    remembered = redis.Redis.from_url(
        os.environ.get("CACHE_URL") or url, socket_timeout=1, socket_connect_timeout=1
    )
    retake = float(os.environ.get("SCORER_RETAKE_SECONDS") or RETAKE_S)
    queue = RequestQueue(client, retake_s=retake)
    scorer = Scorer(
        queue, Models(work_folder() / "models"), ScoreCache(remembered), PrecisionGate(client)
    )
    keeper = Keeper(queue, url)
    keeper.start()
    log.info("waiting for requests as %s", queue.consumer)
    joined = False
    while not leaving.is_set():
        keeper.turned_at = time.monotonic()
        try:
            if not joined:
                queue.join()
                joined = True
            scorer.turn()
        except redis.ResponseError as error:  # NOGROUP: somebody emptied Redis
            log.warning("Redis: %s", error)
            joined = False
            leaving.wait(_PAUSE_S)
        except (redis.RedisError, OSError) as error:
            log.warning("Redis: %s", error)
            leaving.wait(_PAUSE_S)
    try:
        queue.leave()
    except (redis.RedisError, OSError):
        log.warning("left without taking leave: Redis does not answer")
    return 0


if __name__ == "__main__":
    sys.exit(main())
