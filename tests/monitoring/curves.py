"""Curves of a run as its trainer would have left them, healthy but for what a test plants."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from apps.accounts.models import Project
from apps.training.models import Run
from apps.training.services import metrics_store
from tests.web.runs import run_make

Curves = dict[str, list[tuple[int, float | str | None]]]


def healthy(steps: int = 80, seed: int = 1) -> Curves:
    draw = random.Random(seed)
    at = range(1, steps + 1)
    return {
        "objective/scores": [(s, 0.02 * s + draw.gauss(0, 0.1)) for s in at],
        "objective/kl": [(s, 0.01 * s) for s in at],
        "objective/kl_per_token": [(s, 0.001 * (s - 1)) for s in at],
        "objective/entropy_per_token": [(s, max(1.5, 2 - 0.005 * s)) for s in at],
        "policy/clipfrac_avg": [(s, abs(draw.gauss(0.1, 0.03))) for s in at],
        "policy/approxkl_avg": [(s, abs(draw.gauss(0.01, 0.003))) for s in at],
        "val/explained_variance": [(s, min(0.6, 0.03 * s) + draw.gauss(0, 0.05)) for s in at],
        "reward/length_correlation": [(s, draw.gauss(0.1, 0.1)) for s in at],
        "rollout/lag": [(s, 0.0) for s in at],
        "kl_coef": [(s, 0.05) for s in at],
    }


def from_step(curves: Curves, name: str, step: int, value: float) -> Curves:
    """`curves` with one of them at `value` from `step` on."""
    planted = [(s, value if s >= step else before) for s, before in curves[name]]
    return curves | {name: planted}


def ppo_run(project: Project, curves: Curves, **fields: object) -> Run:
    last = max(step for points in curves.values() for step, _ in points)
    given = {"kind": "ppo", "state": "finished", "step": last, "total_steps": last} | fields
    run = run_make(project, config={}, **given)
    metrics_store(run=run, attempt=1, series=curves)
    return run


# A receiver of webhooks on this machine, which keeps what it gets and answers what a test says.


class Receiver:
    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []  # statuses to give, then 204
        self.headers: dict[str, str] = {}
        self.url = ""

    @property
    def ids(self) -> list[str]:
        return [headers["x-concord-delivery"] for headers, _ in self.got]


@contextmanager
def receiver() -> Iterator[Receiver]:
    kept = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            kept.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(kept.answers.pop(0) if kept.answers else 204)
            for name, value in kept.headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
