"""What a project's finished runs came to, for pages of apps before this one."""

from typing import Any

from django.db.models import Q
from django.urls import reverse

from apps.accounts.models import Project
from apps.common.registry import RunResult
from apps.training.models import Run, RunInput

_TRAINED = (Run.Kind.SFT, Run.Kind.REWARD, Run.Kind.DPO, Run.Kind.PPO, Run.Kind.GRPO)


def run_results(project: Project) -> list[RunResult]:
    """Finished training runs, newest first, each with the newest evaluation of its model; not the
    repetitions in small that only ask what broke in another."""
    runs = Run.objects.filter(
        project=project, kind__in=_TRAINED, state=Run.State.FINISHED, about=None
    )
    return [_result(run, project) for run in runs.order_by("-ended_at")]


def _result(run: Run, project: Project) -> RunResult:
    splits = run.summary.get("splits") if run.kind == Run.Kind.REWARD else None
    seconds = (run.ended_at - run.started_at).total_seconds() if run.started_at else None
    return RunResult(
        method=run.kind,
        method_words=run.get_kind_display(),
        name=run.name,
        url=reverse("training:run", args=[project.slug, run.pk]),
        ended_at=run.ended_at,
        seconds=seconds,
        splits=splits if isinstance(splits, dict) else {},
        win_rate=_win_rate(run),
    )


def _win_rate(run: Run) -> dict[str, Any] | None:
    """By the judge that the policy was not trained on; its own reward's opinion is no evidence."""
    link = (
        RunInput.objects.filter(
            Q(checkpoint__run=run) | Q(upstream=run),
            role="policy",
            run__kind=Run.Kind.EVALUATE,
            run__state=Run.State.FINISHED,
        )
        .select_related("run")
        .order_by("-run__ended_at")
        .first()
    )
    if link is None:
        return None
    judged = link.run.summary.get("judge")
    found = judged.get("win_rate") if isinstance(judged, dict) else None
    return found if isinstance(found, dict) else None
