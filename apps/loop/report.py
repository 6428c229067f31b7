"""The demo's report: every figure read from the database or the event stream.

Nothing here computes what a run or a statistic should have said itself; where something is missing
the report holds None.
"""

import os
import platform
from collections.abc import Mapping
from typing import Any

from django.db.models import Count
from django.utils import timezone

from apps.agreement.models import AgreementReport
from apps.labeling.models import Comparison, Vote
from apps.loop import selectors
from apps.loop.demo import BATCH, Workspace, stage_seconds
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import in_order
from apps.snapshots.selectors.snapshots import prompt_overlap
from apps.training.models import Checkpoint, Run, Sample
from apps.training.selectors.metrics import metric_series

CURVES: dict[str, tuple[str, ...]] = {
    "sft": ("loss", "eval/loss"),
    "reward": ("loss", "accuracy", "eval/accuracy"),
    "judge": ("loss", "accuracy", "eval/accuracy"),
    "dpo": (
        "loss",
        "rewards/margins",
        "eval/rewards/margins",
        "eval/rewards/accuracies",
        "objective/kl",
        "objective/kl_per_token",
    ),
    "ppo": (
        "objective/scores",
        "eval/score",
        "eval/held_out_score",
        "objective/kl",
        "objective/kl_per_token",
        "eval/kl",
        "objective/entropy",
        "policy/clipfrac_avg",
        "policy/approxkl_avg",
        "val/explained_variance",
        "response/length",
        "kl_coef",
    ),
}


def report_make(workspace: Workspace) -> dict[str, Any]:
    """A JSON object; see docs/demo.md for each part."""
    project, runs = workspace.project, workspace.runs
    for run in runs.values():
        run.refresh_from_db()
    return {
        "made_at": timezone.now().isoformat(),
        "project": project.slug,
        "machine": _machine(runs),
        "seconds": _seconds(workspace),
        "import": _imported(workspace),
        "agreement": _agreement(workspace),
        "datasets": _datasets(workspace),
        "runs": {stage: _run(stage, run) for stage, run in runs.items()},
        "reward_models": {
            stage: in_order(runs[stage].summary.get("splits", {})) for stage in ("reward", "judge")
        },
        "evaluation": runs["evaluate"].summary,
        "assessment": runs["assess"].summary,
        "fresh_pairs": _fresh_pairs(workspace),
        "audit_samples": _audit_samples(runs["ppo"]),
    }


def _machine(runs: Mapping[str, Run]) -> dict[str, Any]:
    """The host as this process sees it, and the environment the first trainer reported."""
    attempt = runs["sft"].attempts.order_by("number").last()
    return {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "trainer": attempt.environment if attempt else {},
    }


def _seconds(workspace: Workspace) -> dict[str, Any]:
    """Build stages as timed when they were done; runs from their first to their last event."""
    trained = {
        stage: round((run.ended_at - run.started_at).total_seconds(), 1)
        for stage, run in workspace.runs.items()
        if run.started_at and run.ended_at
    }
    build = stage_seconds(workspace.project)
    first = min((run.created_at for run in workspace.runs.values()), default=None)
    last = max((run.ended_at for run in workspace.runs.values() if run.ended_at), default=None)
    return {
        "build": build,
        "runs": trained,
        "build_total": round(sum(build.values()), 1),
        "circle_total": round((last - first).total_seconds(), 1) if first and last else None,
    }


def _imported(workspace: Workspace) -> dict[str, int]:
    votes = Vote.objects.filter(project=workspace.project, source=Vote.Source.IMPORT)
    return {
        "comparisons": Comparison.objects.filter(project=workspace.project, batch=BATCH).count(),
        "votes": votes.count(),
        "annotators": votes.aggregate(n=Count("annotator", distinct=True))["n"],
    }


def _agreement(workspace: Workspace) -> dict[str, Any]:
    stored = AgreementReport.objects.get(project=workspace.project)
    figures = stored.figures
    return {
        "n_votes": stored.n_votes,
        "n_comparisons": stored.n_comparisons,
        "percent": figures["statistics"]["percent"],
        "alpha": figures["statistics"]["alpha"],
        "decisions": figures["decisions"],
        "chance_keep_rate": figures["chance"],
    }


def _datasets(workspace: Workspace) -> dict[str, Any]:
    data = workspace.data
    overlap = prompt_overlap(sft=data.demonstrations, rl=data.prompts)
    independent = selectors.independence(preferences=data.preferences, judge=data.judge_preferences)
    return {
        "demonstrations": _dataset(data.demonstrations),
        "prompts": _dataset(data.prompts),
        "preferences": _dataset(data.preferences),
        "judge_preferences": _dataset(data.judge_preferences),
        "independence": independent.figures() | {"proved": independent.proved},
        "prompt_overlap": {
            "containment": overlap.containment,
            "n_both": overlap.n_both,
            "n_rl": overlap.n_rl,
        },
    }


def _dataset(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "id": snapshot.pk,
        "sha256": snapshot.sha256,
        "counts": snapshot.counts | {"rows": in_order(snapshot.counts["rows"])},
    }


def _run(stage: str, run: Run) -> dict[str, Any]:
    series = metric_series(run=run, names=CURVES[stage]) if stage in CURVES else {}
    return {
        "id": run.pk,
        "state": run.state,
        "steps": run.step,
        "attempts": run.attempt,
        "summary": run.summary,
        "curves": {name: _ends(points) for name, points in series.items()},
    }


def _ends(points: list[tuple[int, Any]]) -> dict[str, Any]:
    (first_step, first), (last_step, last) = points[0], points[-1]
    return {
        "points": len(points),
        "first": {"step": first_step, "value": first},
        "last": {"step": last_step, "value": last},
    }


def _fresh_pairs(workspace: Workspace) -> dict[str, Any]:
    run = workspace.runs["generate"]
    pairs = Comparison.objects.filter(project=workspace.project, batch=f"run {run.pk}")
    references = {
        reference
        for row in pairs.values_list("response_a__origin_ref", "response_b__origin_ref")
        for reference in row
    }
    known = Checkpoint.objects.filter(pk__in=references)
    return {
        "generated": run.summary.get("pairs"),
        "queued": pairs.count(),
        "checkpoints": {point.pk: f"{point.run.name}, step {point.step}" for point in known},
    }


def _audit_samples(run: Run) -> dict[str, Any]:
    """Those that stand beside the reference's answer, by bucket, and the file they are also in."""
    rows = Sample.objects.filter(run=run).exclude(baseline="")
    audit = run.artifacts.filter(purpose="audit").order_by("seq").last()
    return {
        "buckets": {r["bucket"]: r["n"] for r in rows.values("bucket").annotate(n=Count("pk"))},
        "file": {"uri": audit.uri, "sha256": audit.sha256, "rows": audit.count} if audit else None,
    }
