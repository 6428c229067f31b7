"""Making pipelines of past runs, and changing them. A change is a new version; rounds under way go
on by the version that they started with."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.common.models import longest
from apps.evaluation.models import Stage
from apps.evaluation.selectors.evidence import evaluation_of
from apps.loop.models import Pipeline, PipelineVersion
from apps.loop.recipe import (
    APPROVE,
    ARTIFACT,
    CHECKPOINT,
    FIXED,
    FREEZE,
    PREVIOUS,
    PROMOTE,
    RUN,
    SNAPSHOT,
    STEP,
    Source,
    Step,
    steps_to_json,
)
from apps.loop.selectors.pipelines import accepted_pairs, steps_of, version_now
from apps.snapshots.models import MIXTURE, Snapshot
from apps.snapshots.recipe import recipe_from_stored
from apps.snapshots.selectors.snapshots import recipe_default
from apps.training.models import Artifact, Checkpoint, Run
from apps.training.selectors import checkpoint_for_use
from apps.training.services.kinds import KINDS, POLICIES, REPEATED, Input, run_inputs
from apps.training.services.layouts import needs_of
from workers.config import as_trained

POLICY_KINDS = frozenset(POLICIES - {"register_policy"})
STEP_KINDS: Mapping[str, frozenset[str]] = {
    "reward": frozenset({"reward"}),
    "assess": frozenset({"assess"}),
    "policy": POLICY_KINDS,
    "evaluate": frozenset({"evaluate"}),
}  # {key of a step: kinds of runs whose settings it may copy}
BASELINE = "sft"  # the role that an evaluation compares with, and that a policy starts from
LONGEST_BUDGET = 60 * 24 * 365  # minutes


@transaction.atomic
def pipeline_make(
    *,
    project: Project,
    run: Run,
    name: str,
    user: User,
    trigger_pairs: int | None = None,
    budget_minutes: int | None = None,
) -> Pipeline:
    """A pipeline that repeats what led to `run`, a finished one of the kinds `REPEATED`: the runs
    behind it and the newest that followed from it give each step its settings.

    Fresh pairs are counted from now on. Raises `DomainError` naming the field (run, name,
    trigger_pairs, budget_minutes); then nothing was stored.
    """
    if run.project_id != project.pk or run.kind not in REPEATED:
        raise DomainError(
            "A pipeline is made of a reward model's, policy's, assessment's or evaluation's run.",
            code="wrong_kind",
            field="run",
        )
    if run.state != Run.State.FINISHED:
        raise Conflict("Choose a run that has finished.", code="run_not_finished", field="run")
    steps = _steps(project, _runs_around(run))
    pipeline = _saved(Pipeline(project=project, created_by=user), name)
    pipeline.counted_pairs = accepted_pairs(project)
    pipeline.save(update_fields=["counted_pairs"])
    _version(pipeline, 1, steps, trigger_pairs, budget_minutes, user)
    audit_record(
        action="pipeline.made",
        actor=user,
        project=project,
        subject=pipeline.pk,
        details={"name": pipeline.name, "run": run.pk},
    )
    return pipeline


@dataclass(frozen=True, slots=True)
class StepChange:
    """What is changed of a step; None leaves it. copied_from: the id of a finished run whose
    settings it takes; previous: whether its input `sft` is what the round before trained."""

    enabled: bool | None = None
    copied_from: str | None = None
    previous: bool | None = None


@transaction.atomic
def pipeline_change(
    *,
    pipeline: Pipeline,
    user: User,
    seen_version: int,
    name: str,
    trigger_pairs: int | None,
    budget_minutes: int | None,
    stage: str = "",
    steps: Mapping[str, StepChange] | None = None,
) -> PipelineVersion:
    """A new version where anything but the name differs; returns the one that now counts.

    seen_version: the one that the person had before them. stage: to which the policy is promoted.
    Raises `DomainError` naming the field (a step's is `steps.<key>`); then nothing was changed.
    """
    pipeline = Pipeline.objects.select_for_update().select_related("project").get(pk=pipeline.pk)
    now = version_now(pipeline)
    if now.number != seen_version:
        raise Conflict(
            f"Somebody has saved version {now.number} meanwhile; look at it first.",
            code="changed_meanwhile",
            field="seen_version",
        )
    if name.strip() != pipeline.name:
        _saved(pipeline, name)
    before = steps_of(now)
    after = [_changed(pipeline, one, (steps or {}).get(one.key), stage) for one in before]
    unknown = set(steps or {}) - {one.key for one in before}
    if unknown:
        raise DomainError(
            f"The pipeline has no step '{min(unknown)}'.", code="unknown_step", field="steps"
        )
    if not any(one.enabled for one in after if one.kind != APPROVE):
        raise DomainError("Leave a step switched on.", code="no_steps", field="steps")
    asked = (after, trigger_pairs, budget_minutes)
    if asked != (before, now.trigger_pairs, now.budget_minutes):
        now = _version(pipeline, now.number + 1, after, trigger_pairs, budget_minutes, user)
        pipeline.armed = True
        pipeline.save(update_fields=["armed", "updated_at"])
        audit_record(
            action="pipeline.changed",
            actor=user,
            project=pipeline.project,
            subject=pipeline.pk,
            details={"version": now.number},
        )
    return now


def _changed(pipeline: Pipeline, step: Step, change: StepChange | None, stage: str) -> Step:
    if step.kind == PROMOTE and stage:
        if stage not in Stage.values:
            raise DomainError(
                f"Choose a stage: {', '.join(Stage.values)}.", code="unknown_stage", field="stage"
            )
        step = replace(step, stage=stage)
    if change is None:
        return step
    field = f"steps.{step.key}"
    if change.enabled is not None and change.enabled != step.enabled:
        if not step.may_be_off:
            raise DomainError(
                "People approve a reward model in every round; skip it in a round, with a reason.",
                code="step_required",
                field=field,
            )
        step = replace(step, enabled=change.enabled)
    if change.copied_from and change.copied_from != step.copied_from:
        step = _copied(pipeline.project, step, change.copied_from, field)
    if change.previous is not None and BASELINE in step.inputs:
        source = step.inputs[BASELINE]
        origin = PREVIOUS if change.previous else FIXED
        step = step.with_input(BASELINE, replace(source, origin=origin, step="policy"))
    return step


def _copied(project: Project, step: Step, run_id: str, field: str) -> Step:
    """The step with the settings of another run; what it reads stays as it is where the other kind
    of run reads it too."""
    kinds = STEP_KINDS.get(step.key, frozenset())
    rows = Run.objects.filter(project=project, kind__in=kinds, state=Run.State.FINISHED)
    run = rows.filter(pk=run_id.replace("\x00", "?")).first()
    if run is None:
        raise DomainError(
            "There is no such finished run for this step.", code="unknown_run", field=field
        )
    fresh = _run_step(step.key, run, {}, None)
    known = KINDS[run.kind].roles
    inputs = {role: one for role, one in step.inputs.items() if role in known}
    return replace(fresh, enabled=step.enabled, inputs={**fresh.inputs, **inputs})


def _saved(pipeline: Pipeline, name: str) -> Pipeline:
    name = " ".join(name.replace("\x00", " ").split())
    most = longest(Pipeline, "name")
    if not 0 < len(name) <= most:
        raise DomainError(f"A name of 1 to {most} characters.", code="bad_name", field="name")
    pipeline.name = name
    try:
        with transaction.atomic():
            pipeline.save()
    except IntegrityError as error:
        raise Conflict(
            "Another pipeline of this project has this name.", code="name_taken", field="name"
        ) from error
    return pipeline


def _version(
    pipeline: Pipeline,
    number: int,
    steps: list[Step],
    trigger_pairs: int | None,
    budget_minutes: int | None,
    user: User,
) -> PipelineVersion:
    if trigger_pairs is not None and not 1 <= trigger_pairs < 2**31:
        raise DomainError(
            "Start a round by at least one fresh pair, or leave it empty.",
            code="bad_trigger",
            field="trigger_pairs",
        )
    if budget_minutes is not None and not 1 <= budget_minutes <= LONGEST_BUDGET:
        raise DomainError(
            f"From 1 to {LONGEST_BUDGET:,} minutes, or empty for no limit.",
            code="bad_budget",
            field="budget_minutes",
        )
    return PipelineVersion.objects.create(
        pipeline=pipeline,
        number=number,
        steps=steps_to_json(steps),
        trigger_pairs=trigger_pairs,
        budget_minutes=budget_minutes,
        created_by=user,
    )


# The steps that the runs around one run make.


def _runs_around(run: Run) -> dict[str, Run]:
    """{key of a step: run}: those that `run` rests on, and the newest finished ones after it."""
    found: dict[str, Run] = {}
    if run.kind == Run.Kind.EVALUATE:
        found["evaluate"] = run
    elif run.kind in POLICY_KINDS:
        found["policy"] = run
    elif run.kind == Run.Kind.ASSESS:
        found["assess"] = run
    else:
        found["reward"] = run
    for key, role, at in (
        ("policy", "policy", "evaluate"),
        ("reward", "reward", "policy"),
        ("reward", "reward", "evaluate"),
        ("reward", "reward", "assess"),
    ):
        behind = _model_behind(found.get(at), role)
        if key not in found and behind is not None and behind.kind in STEP_KINDS[key]:
            found[key] = behind
    if "policy" not in found and (after := _newest_after(found.get("reward"), "reward", "policy")):
        found["policy"] = after
    if "assess" not in found and (after := _newest_after(found.get("reward"), "reward", "assess")):
        found["assess"] = after
    model = checkpoint_for_use(found["policy"]) if "policy" in found else None
    if "evaluate" not in found and model is not None and (last := evaluation_of(model)) is not None:
        found["evaluate"] = last
    return found


def _model_behind(run: Run | None, role: str) -> Run | None:
    if run is None:
        return None
    given = run_inputs(run).get(role)
    behind = given.run if isinstance(given, Checkpoint) else given
    return behind if isinstance(behind, Run) and behind.project_id == run.project_id else None


def _newest_after(run: Run | None, role: str, key: str) -> Run | None:
    if run is None:
        return None
    rows = Run.objects.filter(
        project=run.project_id,
        kind__in=STEP_KINDS[key],
        state=Run.State.FINISHED,
        inputs__role=role,
        inputs__checkpoint__run=run,
    )
    return rows.order_by("-ended_at").first()


def _steps(project: Project, runs: Mapping[str, Run]) -> list[Step]:
    data = _data_of(runs)
    steps = [_freeze(project, data)] if data is not None else []
    for key in ("reward", "assess", "policy", "evaluate"):
        if key in runs:
            steps.append(_run_step(key, runs[key], runs, data))
        if key == "assess" and "reward" in runs:
            steps.append(Step("approve", APPROVE, of="reward"))
    if "policy" in runs:
        steps.append(Step("promote", PROMOTE, of="policy", stage=Stage.STAGING.value))
    return steps


def _data_of(runs: Mapping[str, Run]) -> Snapshot | None:
    """The preferences that the reward model learned from, or else the policy."""
    for key in ("reward", "policy"):
        given = run_inputs(runs[key]).get("data") if key in runs else None
        if isinstance(given, Snapshot) and given.kind in (
            Snapshot.Kind.PREFERENCES,
            Snapshot.Kind.UNPAIRED,
        ):
            return given
    return None


def _freeze(project: Project, data: Snapshot) -> Step:
    """By the recipe of that dataset; where it was not frozen from this project's votes, by the
    project's own."""
    own = "ties" in data.recipe and MIXTURE not in data.recipe and not data.is_imported
    recipe = recipe_from_stored(data.recipe) if own else recipe_default(project=project)
    return Step("freeze", FREEZE, recipe=recipe.to_json())


def _run_step(key: str, run: Run, runs: Mapping[str, Run], data: Snapshot | None) -> Step:
    needs: dict[str, Any] = needs_of(run)
    return Step(
        key,
        RUN,
        run_kind=run.kind,
        copied_from=run.pk,
        config=as_trained(run.kind, run.config),
        seed=run.seed,
        queue=run.queue,
        priority=run.priority,
        inputs={
            role: source
            for role, given in run_inputs(run).items()
            if (source := _source(given, runs, data)) is not None
        },
        **needs,
    )


def _source(given: Input, runs: Mapping[str, Run], data: Snapshot | None) -> Source | None:
    if isinstance(given, Snapshot):
        same = data is not None and given.pk == data.pk
        return Source(STEP if same else FIXED, "freeze" if same else "", SNAPSHOT, given.pk)
    if isinstance(given, Artifact):
        return Source(FIXED, "", ARTIFACT, str(given.pk))
    model = given if isinstance(given, Checkpoint) else checkpoint_for_use(given)
    if model is None:
        return None
    key = next((name for name in ("reward", "policy") if _is(runs.get(name), model)), "")
    return Source(STEP if key else FIXED, key, CHECKPOINT, model.pk)


def _is(run: Run | None, model: Checkpoint) -> bool:
    return run is not None and run.pk == model.run_id
