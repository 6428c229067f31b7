"""Reading pipelines and rounds: what is fresh, what a round waits for, what it measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.evaluation.selectors.promotion import decision_of, requests_for
from apps.labeling.models import Decision
from apps.loop.models import Pipeline, PipelineVersion, Round, RoundStep
from apps.loop.recipe import (
    APPROVE,
    AUDIT,
    CHECKPOINT,
    DECIDE,
    FIXED,
    FREEZE,
    LABEL,
    PROMOTE,
    RUN,
    SNAPSHOT,
    STEP,
    TITLES,
    Source,
    Step,
    steps_from_json,
)
from apps.loop.selectors.labeling import generation_of, labeled
from apps.snapshots.models import Snapshot
from apps.training.models import Artifact, Checkpoint
from apps.training.services.kinds import Input

_ACCEPTED = (Decision.Outcome.ACCEPTED, Decision.Outcome.ADJUDICATED)
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
    return source_given(row.project_id, source)


def source_given(project_id: str, source: Source) -> Input | None:
    """What a source names by its id; None where that is gone."""
    models: Mapping[str, Any] = {SNAPSHOT: Snapshot, CHECKPOINT: Checkpoint}
    if source.type in models:
        rows = models[source.type].objects.filter(pk=source.id, project=project_id)
    else:
        rows = Artifact.objects.filter(pk=source.id, run__project=project_id)
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
    if step.kind in (LABEL, DECIDE) and step.state == _Step.WAITING:
        return _wait_of_votes(row, step)
    if step.kind == AUDIT and step.checkpoint is not None and step.state == _Step.WAITING:
        sheet = step.checkpoint.audit_sheets.filter(state="open").first()
        if sheet is None:
            url = reverse("evaluation:sheet_new", args=[slug])
            return Wait(
                step.key, "Nobody has made an audit sheet yet.", "an engineer or admin", url
            )
        url = reverse("evaluation:sheet", args=[slug, sheet.pk])
        return Wait(step.key, "An audit sheet of the policy is open.", "whoever judges it", url)
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


def _wait_of_votes(row: Round, step: RoundStep) -> Wait:
    slug, wanted = row.project.slug, _wanted(row, step)
    found = labeled(row)
    if step.kind == DECIDE:
        words = f"A reviewer must decide disputed pairs: {found.disputed:,}."
        return Wait(step.key, words, "a reviewer", reverse("agreement:disputes", args=[slug]))
    url = reverse("labeling:label", args=[slug])
    if generation_of(row) is None:
        words = f"{fresh_pairs(row.pipeline):,} of {wanted.pairs or 0:,} fresh pairs are accepted."
    elif not found.n:
        return Wait(step.key, "The pairs are being put into the label queue.", "a machine", "")
    else:
        words = f"{found.voted:,} of {found.n:,} pairs have their votes; {wanted.share} % must."
    if wanted.hours is not None and step.started_at is not None:
        until = step.started_at + timedelta(hours=wanted.hours)
        words += f" It continues without the rest at {until:%Y-%m-%d %H:%M} UTC."
    return Wait(step.key, words, "annotators", url)


def _wanted(row: Round, step: RoundStep) -> Step:
    return next(one for one in steps_of(row.version) if one.key == step.key)


def _stage_of(row: Round, step: RoundStep) -> str:
    return _wanted(row, step).stage
