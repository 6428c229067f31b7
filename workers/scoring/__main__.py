"""The program: `python -m workers.scoring`.

REDIS_URL is where requests wait, CACHE_URL where scores are remembered. SCORER_RETAKE_SECONDS: how
long a request may lie untouched before another scorer takes it over. SIGTERM ends it after the
batch at hand.
"""

import os
import sys

import redis

from workers.contract.scores import CHANNEL
from workers.request_queue import RETAKE_S, RequestQueue, connected, serve
from workers.rewards.cache import ScoreCache
from workers.scoring.scorer import Models, PrecisionGate, Scorer
from workers.tasks import work_folder


def main() -> int:
    client = connected()
    if client is None:
        return 2
    remembered = redis.Redis.from_url(
        os.environ.get("CACHE_URL") or os.environ["REDIS_URL"],
        socket_timeout=1,
        socket_connect_timeout=1,
    )
    retake = float(os.environ.get("SCORER_RETAKE_SECONDS") or RETAKE_S)
    queue = RequestQueue(client, CHANNEL, retake_s=retake)
    scorer = Scorer(
        queue, Models(work_folder() / "models"), ScoreCache(remembered), PrecisionGate(client)
    )
    serve(queue, scorer.turn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
