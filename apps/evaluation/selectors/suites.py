"""The suite that a project evaluates every policy on, and what became of it after each run."""

from datetime import datetime

from django.db.models import QuerySet

from apps.accounts.models import Project
from apps.evaluation.models import AutomaticSuite, SuiteLaunch
from apps.snapshots.models import Snapshot
from apps.training.models import Checkpoint, Run
from apps.training.services.kinds import ANSWERING

TRAINED = frozenset(
    {Run.Kind.SFT, Run.Kind.DPO, Run.Kind.KTO, Run.Kind.PPO, Run.Kind.GRPO}
)  # kinds of runs whose policy is evaluated
OFFERED = 200


def automatic_suite(project: Project) -> AutomaticSuite | None:
    """None where nobody has ever set one."""
    rows = AutomaticSuite.objects.select_related("dataset", "baseline__run", "set_by")
    return rows.filter(project=project).first()


def suite_launches(project: Project) -> QuerySet[SuiteLaunch]:
    """Newest first."""
    return (
        SuiteLaunch.objects.filter(project=project)
        .select_related("run", "evaluation")
        .order_by("-at", "-pk")
    )


def suites_of(project: Project) -> QuerySet[Snapshot]:
    """Frozen prompts with checks, newest first."""
    return Snapshot.objects.filter(
        project=project,
        kind=Snapshot.Kind.PROMPTS,
        state=Snapshot.State.FROZEN,
        counts__checks__gt=0,
    ).order_by("-created_at")


def baselines_of(project: Project) -> list[Checkpoint]:
    """Models that can answer as a baseline, newest first."""
    rows = Checkpoint.objects.filter(
        project=project, run__kind__in=ANSWERING, files_removed_at=None
    ).select_related("run")
    usual = {"final", "best"}
    found = [row for row in rows.order_by("-created_at")[: 5 * OFFERED] if usual & {*row.tags}]
    return found[:OFFERED]


def runs_awaiting(project_id: str, since: datetime) -> QuerySet[Run]:
    """Policy runs that ended well from `since` on, of which the suite has not been told; not those
    that only repeat another in small."""
    return Run.objects.filter(
        project=project_id,
        kind__in=TRAINED,
        state=Run.State.FINISHED,
        about=None,
        ended_at__gte=since,
        suite_launch=None,
    )


def run_uses(run: Run) -> list[str]:
    """What a run's deletion would break, in words (`apps.common.registry`)."""
    on = AutomaticSuite.objects.filter(baseline__run=run, since__isnull=False).exists()
    return ["it is the baseline of the suite that every policy is evaluated on"] if on else []
