"""Reading pipelines and rounds: what is fresh, what a round waits for, what it measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.common.numbers import is_number
from apps.evaluation.selectors.promotion import decision_of, requests_for
from apps.evaluation.selectors.protocols import protocol_of_run
from apps.labeling.models import Decision
from apps.loop.models import Pipeline, PipelineVersion, Round, RoundStep
from apps.loop.recipe import (
    APPROVE,
    CHECKPOINT,
    FIXED,
    FREEZE,
    PROMOTE,
    RUN,
    SNAPSHOT,
    STEP,
    TITLES,
    Source,
    Step,
    steps_from_json,
)
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import DEV, HELDOUT_ANNOTATORS, HELDOUT_GROUPS, PUBLIC_TEST
from apps.training.models import Artifact, Checkpoint, Run
from apps.training.services.kinds import Input

_ACCEPTED = (Decision.Outcome.ACCEPTED, Decision.Outcome.ADJUDICATED)
_HELD_OUT = (HELDOUT_GROUPS, HELDOUT_ANNOTATORS, PUBLIC_TEST, DEV)  # the first that there is
_Step = RoundStep.State


def pipelines_of(project: Project) -> QuerySet[Pipeline]:
    """Newest first."""
    return Pipeline.objects.filter(project=project).select_related("project")


def pipeline_get(*, project: Project, pipeline_id: str) -> Pipeline:
    """Raises `Missing`."""
    row = pipelines_of(project).filter(pk=pipeline_id.replace("\x00", "?")).first()
    if row is None:
        raise Missing("There is no such pipeline in this project.", field="pipeline")
    return row


def version_now(pipeline: Pipeline) -> PipelineVersion:
    row = pipeline.versions.select_related("created_by").order_by("-number").first()
    assert row is not None  # noqa: S101 — a pipeline is made with its first version
    return row


def steps_of(version: PipelineVersion) -> list[Step]:
    return steps_from_json(version.steps)


def rounds_of(pipeline: Pipeline) -> QuerySet[Round]:
    """Newest first."""
    rows = Round.objects.filter(pipeline=pipeline)
    return rows.select_related("project", "pipeline", "version", "started_by", "paused_by")


def round_get(*, project: Project, pipeline_id: str, number: int) -> Round:
    """Raises `Missing`."""
    pipeline = pipeline_get(project=project, pipeline_id=pipeline_id)
    row = rounds_of(pipeline).filter(number=number).first() if number < 2**31 else None
    if row is None:
        raise Missing("The pipeline has no such round.", field="round")
    return row


def round_steps(row: Round) -> list[RoundStep]:
    rows = row.steps.select_related("run__project", "snapshot", "checkpoint__run", "skipped_by")
    return list(rows.order_by("place"))


def accepted_pairs(project: Project) -> int:
    """Comparisons whose votes were accepted, or that a reviewer decided."""
    return Decision.objects.filter(project=project, outcome__in=_ACCEPTED).count()


def fresh_pairs(pipeline: Pipeline) -> int:
    """Accepted pairs beyond those there were when the pipeline's last dataset was frozen."""
    return max(0, accepted_pairs(pipeline.project) - pipeline.counted_pairs)


def steps_seconds(steps: list[RoundStep], now: datetime) -> float:
    """Wall time of those that are freezes and runs, waiting for a machine included."""
    return sum(
        ((step.ended_at or now) - step.started_at).total_seconds()
        for step in steps
        if step.kind in (FREEZE, RUN) and step.started_at is not None
    )


def spent_seconds(row: Round, steps: list[RoundStep]) -> float:
    """Wall time of a round's freezes and runs, of those that were done again too; what people took
    to decide is not in it."""
    return row.spent_s + steps_seconds(steps, row.ended_at or timezone.now())


# What a step reads.


def source_resolved(row: Round, source: Source) -> Input | None:
    """What a step's input is in this round: of a step that gave nothing, what it gave in the newest
    round before that has it, else what stands in; None where that is gone."""
    given: Input | None = None
    if source.origin == STEP:
        given = _output(row.steps.filter(key=source.step))
    if given is None and source.origin != FIXED:
        earlier = RoundStep.objects.filter(
            round__pipeline=row.pipeline_id, round__number__lt=row.number, key=source.step
        )
        given = _output(earlier.order_by("-round__number"))
    if given is not None or not source.id:
        return given
    models: Mapping[str, Any] = {SNAPSHOT: Snapshot, CHECKPOINT: Checkpoint}
    if source.type in models:
        rows = models[source.type].objects.filter(pk=source.id, project=row.project_id)
    else:
        rows = Artifact.objects.filter(pk=source.id, run__project=row.project_id)
    found: Input | None = rows.first()
    return found


def _output(rows: QuerySet[RoundStep]) -> Snapshot | Checkpoint | None:
    for step in rows.filter(state=_Step.DONE).select_related("snapshot", "checkpoint__run"):
        if step.kind == FREEZE and step.snapshot is not None:
            return step.snapshot
        if step.kind == RUN and step.checkpoint is not None:
            return step.checkpoint
    return None


# What a round waits for.


@dataclass(frozen=True, slots=True)
class Wait:
    """`words`: what has to happen; `who`: whose turn it is; `url`: of the page where it is done."""

    step: str
    words: str
    who: str
    url: str


def current_step(steps: list[RoundStep]) -> RoundStep | None:
    """The first that is not over."""
    return next((one for one in steps if not one.is_over), None)


def wait_of(row: Round, steps: list[RoundStep]) -> Wait | None:
    """None once a round has ended."""
    step = current_step(steps)
    if not row.is_live or step is None:
        return None
    if row.state == Round.State.PAUSED:
        by = str(row.paused_by) if row.paused_by else "somebody"
        return Wait(step.key, f"Paused by {by}; a run under way runs to its end.", "staff", "")
    return _wait_of_step(row, step)


def _wait_of_step(row: Round, step: RoundStep) -> Wait:
    slug, title = row.project.slug, TITLES[step.key]
    run_url = reverse("training:run", args=[slug, step.run_id]) if step.run_id else ""
    if step.state == _Step.FAILED:
        return Wait(step.key, f"{title}: {step.problem}", "an engineer", run_url)
    if step.kind == APPROVE and step.checkpoint_id:
        url = reverse("evaluation:reward_model", args=[slug, step.checkpoint_id])
        return Wait(step.key, "The reward model waits to be approved.", "an engineer or admin", url)
    if step.kind == PROMOTE and step.checkpoint is not None:
        stage = _stage_of(row, step)
        asked = next((one for one in requests_for(step.checkpoint) if one.stage == stage), None)
        if asked is not None and decision_of(asked) is None:
            url = reverse("evaluation:promotion", args=[slug, asked.pk])
            return Wait(
                step.key,
                f"{asked.requested_name} asked that {stage} names the policy.",
                "an admin who did not ask",
                url,
            )
        url = reverse("evaluation:promotion_new", args=[slug, step.checkpoint_id])
        words = f"Nobody has asked yet that {stage} names the policy."
        return Wait(step.key, words, "an engineer or admin", url)
    if step.run is not None:
        words = f"{title}: the run is {step.run.get_state_display()}."
        return Wait(step.key, words, "a machine", run_url)
    return Wait(step.key, f"{title}.", "a machine", "")


def _stage_of(row: Round, step: RoundStep) -> str:
    return next((one.stage for one in steps_of(row.version) if one.key == step.key), "")


# What a round measured.


@dataclass(frozen=True, slots=True)
class Rate:
    """A share with its 95 % interval, None where it has none; n: pairs or prompts; of: the split,
    or the first characters of the protocol's hash."""

    value: float
    low: float | None
    high: float | None
    n: int | None
    of: str


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """accuracy: of the reward model on rows it never learned from; win_rate: of the policy against
    its baseline, by the judge. before: the newest earlier round measured under the same protocol,
    with its win rate; None where there is none, and nothing is compared."""

    accuracy: Rate | None
    win_rate: Rate | None
    before: tuple[int, Rate] | None = None

    @property
    def change(self) -> float | None:
        """Win rate less that of the round before, −1 to 1."""
        if self.win_rate is None or self.before is None:
            return None
        return self.win_rate.value - self.before[1].value


def figures_by_round(rows: list[Round]) -> dict[int, RoundFigures]:
    """{number: figures} of rounds of one pipeline; each is compared with those among `rows`."""
    steps: dict[str, dict[str, RoundStep]] = {row.pk: {} for row in rows}
    found = RoundStep.objects.filter(round__in=rows, key__in=("reward", "evaluate"))
    for step in found.filter(state=_Step.DONE).select_related("run"):
        steps[step.round_id][step.key] = step
    figures: dict[int, RoundFigures] = {}
    newest: dict[str, tuple[int, Rate]] = {}  # by protocol
    for row in sorted(rows, key=lambda one: one.number):
        reward, evaluate = (steps[row.pk].get(key) for key in ("reward", "evaluate"))
        win, protocol = _win_rate(evaluate.run if evaluate else None)
        before = newest.get(protocol) if win and protocol else None
        figures[row.number] = RoundFigures(_accuracy(reward.run if reward else None), win, before)
        if win and protocol:
            newest[protocol] = (row.number, win)
    return figures


def _accuracy(run: Run | None) -> Rate | None:
    splits = run.summary.get("splits") if run else None
    if not isinstance(splits, dict):
        return None
    for name in _HELD_OUT:
        report = splits.get(name)
        if isinstance(report, dict) and (rate := _rate(report.get("accuracy"), name)):
            return rate
    return None


def _win_rate(run: Run | None) -> tuple[Rate | None, str]:
    judge = run.summary.get("judge") if run else None
    if run is None or not isinstance(judge, dict):
        return None, ""
    protocol = protocol_of_run(run)
    sha256 = protocol.sha256 if protocol else ""
    return _rate(judge.get("win_rate"), sha256[:12]), sha256


def _rate(found: Any, of: str) -> Rate | None:
    if not isinstance(found, dict) or not is_number(found.get("value")):
        return None
    return Rate(found["value"], found.get("low"), found.get("high"), found.get("n"), of)
