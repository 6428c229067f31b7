"""Monitored models, and probes as workers leave them: a finished run with figures and a file."""

import json
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from django.utils import timezone

from apps.accounts.models import Project
from apps.monitoring.models import ProbeResult, Watch
from apps.monitoring.services import probes
from apps.monitoring.services.watches import watch_create
from apps.snapshots.models import Snapshot
from apps.snapshots.storage import artifact_store
from apps.training.models import Artifact, Checkpoint, Run
from apps.training.services import metrics_store
from apps.training.services.attempts import run_end
from tests.people import person_make
from tests.web.world import run_make
from workers.contract.protocol import Protocol

N_PROMPTS = 40


def model_make(
    project: Project, kind: str = "ppo", name: str = "", status: str = "approved"
) -> Checkpoint:
    """The final checkpoint of a finished run."""
    now = timezone.now()
    run = Run.objects.create(
        project=project,
        name=name or f"a {kind} run",
        kind=kind,
        state=Run.State.FINISHED,
        attempt=1,
        started_at=now,
        ended_at=now,
    )
    return Checkpoint.objects.create(
        project=project,
        run=run,
        attempt=1,
        step=400,
        uri=f"runs/{run.pk}/attempt-1/checkpoints/step-400",
        sha256="0" * 64,
        tags=["final"],
        status=status,
    )


def prompts_make(project: Project, kind: str = "prompts") -> Snapshot:
    return Snapshot.objects.create(
        project=project,
        name="fixed prompts",
        kind=kind,
        state=Snapshot.State.FROZEN,
        uri="snapshots/none",
        sha256="0" * 64,
        frozen_at=timezone.now(),
    )


def watch_make(project: Project, name: str = "assistant", **more: Any) -> Watch:
    """A monitored policy, due now."""
    given = {
        "checkpoint": more.pop("checkpoint", None) or model_make(project),
        "reward": more.pop("reward", None) or model_make(project, "reward"),
        "prompts": more.pop("prompts", None) or prompts_make(project),
    }
    return watch_create(project=project, name=name, **given, **more)


def scores_of(seed: int = 0, n: int = N_PROMPTS) -> list[float]:
    return np.random.default_rng(seed).normal(1.0, 1.0, n).tolist()


def probe_launched(watch: Watch) -> Run:
    """Make the watch due and let the schedule launch its probe."""
    Watch.objects.filter(pk=watch.pk).update(next_at=timezone.now())
    probes.probes_launch()
    watch.refresh_from_db()
    assert watch.probe is not None
    return watch.probe


def probe_finish(
    run: Run,
    scores: Sequence[float],
    *,
    weights: Any = "a" * 64,
    figures: Mapping[str, Sequence[float]] | None = None,
    file: bool = True,
    answers: Sequence[str] | None = None,
    take: bool = True,
    protocol: Protocol | None = None,
    server: Mapping[str, str] | None = None,
    greedy: Sequence[str] = (),
) -> ProbeResult | None:
    """The run ends as the recipe ends it, and its result is taken."""
    named = {"score": scores, **(figures or {})}
    summary = {
        "figures": {
            name: {
                "mean": float(np.mean(values)),
                "deviation": float(np.std(values, ddof=1)),
                "n": len(values),
            }
            for name, values in named.items()
        },
        "weights_sha256": weights,
    }
    if server is not None:
        summary["server"] = server
    if protocol is not None:
        summary["protocol"] = protocol.to_json()
    if file:
        told = answers or [f"answer {k}" for k in range(len(scores))]
        rows = [
            {"id": f"p{k}", "prompt": f"Why {k}?", "response": told[k], "score": score}
            for k, score in enumerate(scores)
        ]
        for row, said in zip(rows, greedy, strict=False):
            row["greedy"] = said
        content = json.dumps({"version": 1, "prompts": rows}).encode()
        uri = f"runs/{run.pk}/attempt-1/probe.json"
        Artifact.objects.create(
            run=run,
            attempt=1,
            seq=9,
            name="probe.json",
            uri=uri,
            sha256=artifact_store().write_bytes(uri, content),
            size_bytes=len(content),
        )
    run_end(run=run, state=Run.State.FINISHED, summary=summary)
    return probes.probe_take(run_id=run.pk) if take else None


def probe_fail(run: Run, kind: str = "damaged_input", fault: str = "data") -> ProbeResult | None:
    run_end(
        run=run,
        state=Run.State.FAILED,
        kind=kind,
        fault=fault,
        message="Input 'policy': model.safetensors is not the content it was named by.",
    )
    return probes.probe_take(run_id=run.pk)


def probed(watch: Watch, scores: Sequence[float], **more: Any) -> ProbeResult:
    """One probe from launch to result."""
    result = probe_finish(probe_launched(watch), scores, **more)
    assert result is not None
    watch.refresh_from_db()
    return result


def elsewhere_make() -> tuple[Project, Watch]:
    """Another project with a monitored model."""
    project = Project.objects.create(slug="other", name="Other")
    person_make("Ben", project, "engineer")
    return project, watch_make(project)


# Curves of a run as its trainer would have left them, healthy but for what a test plants.


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
