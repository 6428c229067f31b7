"""Which policy each stage names, since when and why; requests that wait; the history by day."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import pairwise

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.timezone import get_current_timezone

from apps.accounts.models import Project
from apps.common.errors import DomainError, Missing
from apps.common.registry import NamedModel
from apps.evaluation.models import PromotionDecision, PromotionRequest, Stage, StageChange
from apps.monitoring.models import Watch
from apps.monitoring.selectors.service import asks_model
from apps.training.models import Checkpoint, Run
from apps.training.services.kinds import POLICIES

WAITING = "waiting"
STATES = (WAITING, *PromotionDecision.Kind.values)


@dataclass(frozen=True, slots=True)
class Naming:
    """A change of a stage and when it ended to count; None of one that counts now."""

    change: StageChange
    until: datetime | None


def _changes(project: Project) -> QuerySet[StageChange]:
    return StageChange.objects.filter(project=project).select_related(
        "project", "checkpoint__run", "rest__run", "request", "by"
    )


def stage_now(*, project: Project, stage: str) -> StageChange | None:
    """What the stage names; None where it names nothing yet."""
    return _changes(project).filter(stage=stage).order_by("-number").first()


def stages_now(project: Project) -> dict[str, StageChange | None]:
    """{stage: what it names}, in their order."""
    return {stage: stage_now(project=project, stage=stage) for stage in Stage.values}


def stage_check(stage: str) -> str:
    """Raises `Missing` for what is no stage."""
    if stage not in Stage.values:
        raise Missing(f"A stage is {', '.join(Stage.values)}; not '{stage}'.", field="stage")
    return stage


def namings(*, project: Project, stage: str = "") -> list[Naming]:
    """The whole history, newest first."""
    rows = _changes(project).order_by("stage", "number")
    if stage:
        rows = rows.filter(stage=stage_check(stage))
    found = list(rows)
    ends = {
        (one.stage, one.number): after.at
        for one, after in pairwise(found)
        if one.stage == after.stage
    }
    ordered = sorted(found, key=lambda one: (one.at, one.pk), reverse=True)
    return [Naming(one, ends.get((one.stage, one.number))) for one in ordered]


def namings_on(*, project: Project, day: date, stage: str = "") -> list[Naming]:
    """What each stage named at any moment of a day, in the site's time zone: newest first."""
    zone = get_current_timezone()
    start = datetime.combine(day, time.min, zone)
    end = datetime.combine(day + timedelta(days=1), time.min, zone)
    return [
        one
        for one in namings(project=project, stage=stage)
        if one.change.at < end and (one.until is None or one.until > start)
    ]


def day_of(text: str) -> date | None:
    """A day as 2026-11-03; None of nothing. Raises `DomainError` (bad_day, field `on`)."""
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or not 1970 < day.year < 9999:
        raise DomainError("Give a day as 2026-11-03.", code="bad_day", field="on")
    return day


def back_of(change: StageChange | None) -> StageChange | None:
    """What *revert* returns to; None where there is nothing before."""
    if change is None or change.back is None:
        return None
    rows = _changes(change.project).filter(stage=change.stage, number=change.back)
    return rows.first()


# Requests.


def requests_of(*, project: Project, state: str = "") -> QuerySet[PromotionRequest]:
    """Newest first. Raises `DomainError` for a state that there is not."""
    rows = PromotionRequest.objects.filter(project=project).select_related(
        "project", "checkpoint__run", "decision", "requested_by"
    )
    if state == WAITING:
        rows = rows.filter(decision=None)
    elif state in STATES:
        rows = rows.filter(decision__kind=state)
    elif state:
        raise DomainError(
            f"A request is {', '.join(STATES)}; not '{state}'.", code="bad_state", field="state"
        )
    return rows.order_by("-at")


def request_get(*, project: Project, request_id: str) -> PromotionRequest:
    """Raises `Missing`."""
    rows = requests_of(project=project).filter(pk=request_id.replace("\x00", "?"))
    row = rows.first()
    if row is None:
        raise Missing("There is no such request in this project.", field="request")
    return row


def decision_of(request: PromotionRequest) -> PromotionDecision | None:
    return PromotionDecision.objects.filter(request=request).first()


def state_of(request: PromotionRequest) -> str:
    """waiting, approved, overridden, rejected or withdrawn."""
    decision = decision_of(request)
    return decision.kind if decision else WAITING


def requests_waiting(project: Project) -> int:
    return PromotionRequest.objects.filter(project=project, decision=None).count()


def requests_for(checkpoint: Checkpoint) -> list[PromotionRequest]:
    """Newest first."""
    rows = PromotionRequest.objects.filter(checkpoint=checkpoint)
    return list(rows.select_related("project", "checkpoint__run", "decision").order_by("-at"))


def policy_get(*, project: Project, checkpoint_id: str) -> Checkpoint:
    """A checkpoint that a stage may name. Raises `Missing`, also for a model of another kind."""
    row = (
        Checkpoint.objects.filter(
            project=project, pk=checkpoint_id.replace("\x00", "?"), run__kind__in=POLICIES
        )
        .select_related("run__project", "project")
        .first()
    )
    if row is None:
        raise Missing("There is no such policy in this project.", field="checkpoint")
    return row


def run_uses(run: Run) -> list[str]:
    """What a run's deletion would break, in words (`apps.common.registry`)."""
    n = PromotionRequest.objects.filter(checkpoint__run=run).count()
    return [f"its models were to be promoted ({n} request{'' if n == 1 else 's'})"] if n else []


# What is monitored of it.


@dataclass(frozen=True, slots=True)
class Served:
    """Whether a monitored model is the one that a stage names. watch: of the model that the stage
    names, else the first of another policy; None where no policy is monitored."""

    watch: Watch | None
    is_same: bool


def served_of(change: StageChange, watches: Sequence[Watch]) -> Served:
    same = next((one for one in watches if asks_model(one, change.checkpoint_id)), None)
    if same is not None:
        return Served(same, is_same=True)
    return Served(next(iter(watches), None), is_same=False)


def policy_watches(project: Project) -> list[Watch]:
    rows = Watch.objects.filter(project=project, kind=Watch.Kind.POLICY, enabled=True)
    return list(rows.select_related("checkpoint__run").order_by("name"))


def named_models(project: Project) -> list[NamedModel]:
    """For pages of apps before this one (`apps.common.registry`)."""
    path = reverse("evaluation:service", args=[project.slug])
    return [
        NamedModel(
            stage=change.stage,
            label=change.get_stage_display(),
            checkpoint=change.checkpoint_id,
            name=f"{change.checkpoint.run.name}, step {change.checkpoint.step:,}",
            path=path,
        )
        for change in stages_now(project).values()
        if change is not None
    ]
