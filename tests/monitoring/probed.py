"""Monitored models, and probes as workers leave them: a finished run with figures and a file."""

import json
from collections.abc import Mapping, Sequence
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
from apps.training.services.attempts import run_end
from tests.people import person_make

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
    """A policy under watch, due now."""
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
    if file:
        told = answers or [f"answer {k}" for k in range(len(scores))]
        rows = [
            {"id": f"p{k}", "prompt": f"Why {k}?", "response": told[k], "score": score}
            for k, score in enumerate(scores)
        ]
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
