"""The program: `python -m workers.answering`.

REDIS_URL is where questions wait. ANSWERER_IDLE_SECONDS: how long models that nobody asks stay
loaded. ANSWERER_RETAKE_SECONDS: how long a question may lie untouched before another answerer takes
it over. SIGTERM ends it after the answer at hand.
"""

import os
import sys

from workers.answering.answerer import IDLE_S, Answerer, Models
from workers.contract.asking import CHANNEL
from workers.request_queue import RETAKE_S, RequestQueue, connected, serve
from workers.tasks import work_folder


def main() -> int:
    client = connected()
    if client is None:
        return 2
    retake = float(os.environ.get("ANSWERER_RETAKE_SECONDS") or RETAKE_S)
    queue = RequestQueue(client, CHANNEL, retake_s=retake)
    idle = float(os.environ.get("ANSWERER_IDLE_SECONDS") or IDLE_S)
    answerer = Answerer(client, queue, Models(work_folder() / "models"), idle_s=idle)

    def turn() -> None:
        answerer.turn()
        if answerer.must_let_go:
            raise SystemExit

    told_to_end = serve(queue, turn)
    if answerer.must_let_go and not told_to_end:
        # A program that begins again holds no memory of a GPU, not even its context.
        again = [sys.executable, "-m", "workers.answering"]
        os.execv(again[0], again)  # noqa: S606 - this very program
    return 0


if __name__ == "__main__":
    sys.exit(main())
