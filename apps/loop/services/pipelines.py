"""Making pipelines of past runs, and changing them. A change is a new version; rounds under way go
on by the version that they started with."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.common.models import longest
from apps.evaluation.models import Stage
from apps.evaluation.selectors.evidence import evaluation_of
from apps.loop.models import Pipeline, PipelineVersion, Round, RoundStep
from apps.loop.plan import SelectionPlan
from apps.loop.recipe import (
    APPROVE,
    ARTIFACT,
    AUDIT,
    CHECKPOINT,
    DECIDE,
    FIXED,
    FREEZE,
    LABEL,
    PREVIOUS,
    PROMOTE,
    RUN,
    SELECT,
    SNAPSHOT,
    STEP,
    Rules,
    Source,
    Step,
    steps_to_json,
)
from apps.loop.selectors.pipelines import accepted_pairs, steps_of, version_now
from apps.loop.selectors.rules import rules_of
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
    "generate": frozenset({"generate"}),
    "evaluate": frozenset({"evaluate"}),
}  # {key of a step: kinds of runs whose settings it may copy}
BASELINE = "sft"  # the role that an evaluation compares with, and that a policy starts from
LONGEST_BUDGET = 60 * 24 * 365  # minutes
HOUR = "trigger_at_hour"
MOST = 2**31 - 1
RULE_LIMITS: tuple[tuple[str, float, float], ...] = (
    ("trigger_pairs", 1, MOST),
    ("trigger_age_days", 1, 3650),
    ("trigger_every_days", 1, 365),
    (HOUR, 0, 23),
    ("budget_minutes", 1, LONGEST_BUDGET),
    ("budget_votes", 1, MOST),
    ("budget_gpu_hours", 0.01, 1e6),
    ("budget_money", 0.01, 1e9),
    ("price_vote", 0.0, 1e6),
    ("price_gpu_hour", 0.0, 1e6),
)  # name of the rule, least, most
MOST_HOURS = 24 * 365
NO_RULES = Rules()


@transaction.atomic
def pipeline_make(
    *,
    project: Project,
    run: Run,
    name: str,
    user: User,
    rules: Rules = NO_RULES,
    as_round: bool = False,
) -> Pipeline:
    """A pipeline that repeats what led to `run`, a finished one of the kinds `REPEATED`: the runs
    behind it and the newest that followed from it give each step its settings.

    as_round: those runs are shown as its first round. Fresh pairs are counted from now on. Raises
    `DomainError` naming the field (run, name, or one of `Rules`); then nothing was stored.
    """
    if run.project_id != project.pk or run.kind not in REPEATED:
        raise DomainError(
            "A pipeline is made of a run that trained, assessed, evaluated or generated.",
            code="wrong_kind",
            field="run",
        )
    if run.state != Run.State.FINISHED:
        raise Conflict("Choose a run that has finished.", code="run_not_finished", field="run")
    runs = _runs_around(run)
    pipeline = pipeline_of_steps(project, name, _steps(project, runs), rules, user, run=run.pk)
    if as_round:
        _past_round(pipeline, runs)
    return pipeline


def pipeline_of_steps(
    project: Project, name: str, steps: list[Step], rules: Rules, user: User, **details: str
) -> Pipeline:
    """Its first version; details: for the audit log."""
    pipeline = _saved(Pipeline(project=project, created_by=user), name)
    pipeline.counted_pairs = accepted_pairs(project)
    pipeline.save(update_fields=["counted_pairs"])
    _version(pipeline, 1, steps, rules, user)
    audit_record(
        action="pipeline.made",
        actor=user,
        project=project,
        subject=pipeline.pk,
        details={"name": pipeline.name, **details},
    )
    return pipeline


def _past_round(pipeline: Pipeline, runs: Mapping[str, Run]) -> None:
    """What the pipeline was made of, as a round that has finished."""
    version = version_now(pipeline)
    wanted = [step for step in steps_of(version) if step.key in runs or step.kind == FREEZE]
    ended = [run.ended_at for run in runs.values() if run.ended_at is not None]
    row = Round.objects.create(
        project=pipeline.project,
        pipeline=pipeline,
        version=version,
        number=1,
        state=Round.State.FINISHED,
        trigger=Round.Trigger.PAST,
        ended_at=max(ended, default=timezone.now()),
    )
    data = _data_of(runs)
    for place, step in enumerate(wanted, start=1):
        run = runs.get(step.key)
        began, over = (run.started_at, run.ended_at) if run else (None, None)
        if run is None and data is not None:
            began = over = data.frozen_at
        RoundStep.objects.create(
            round=row,
            place=place,
            key=step.key,
            kind=step.kind,
            state=RoundStep.State.DONE,
            run=run,
            snapshot=data if run is None else None,
            checkpoint=checkpoint_for_use(run) if run else None,
            started_at=began,
            ended_at=over,
        )


@dataclass(frozen=True, slots=True)
class StepChange:
    """What is changed of a step; None leaves it. copied_from: the id of a finished run whose
    settings it takes, of a freeze that of a dataset whose recipe it takes; previous: whether its
    input `sft` is what the round before trained. share, hours, pairs: of labeling (0: none), and
    plan: of a selection, see `Step`."""

    enabled: bool | None = None
    copied_from: str | None = None
    previous: bool | None = None
    share: int | None = None
    hours: int | None = None
    pairs: int | None = None
    plan: Mapping[str, Any] | None = None


@transaction.atomic
def pipeline_change(
    *,
    pipeline: Pipeline,
    user: User,
    seen_version: int,
    name: str,
    rules: Rules,
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
    if (after, rules) != (before, rules_of(now)):
        now = _version(pipeline, now.number + 1, after, rules, user)
        pipeline.disarmed = []
        pipeline.save(update_fields=["disarmed", "updated_at"])
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
        by = _recipe_of if step.kind == FREEZE else _copied
        step = by(pipeline.project, step, change.copied_from, field)
    if change.previous is not None and BASELINE in step.inputs:
        source = step.inputs[BASELINE]
        origin = PREVIOUS if change.previous else FIXED
        step = step.with_input(BASELINE, replace(source, origin=origin, step="policy"))
    if step.kind == SELECT:
        return _plan_changed(step, change, field)
    return _labeling_changed(step, change, field) if step.kind == LABEL else step


def _plan_changed(step: Step, change: StepChange, field: str) -> Step:
    """A selection that is switched on has a plan that holds."""
    plan = step.plan if change.plan is None else change.plan
    if plan or step.enabled:
        try:
            plan = SelectionPlan.from_json(plan).to_json()
        except DomainError as error:
            raise DomainError(
                f"{error.field}: {error.message}", code=error.code, field=field
            ) from error
    return replace(step, plan=plan)


def _labeling_changed(step: Step, change: StepChange, field: str) -> Step:
    for name, given, high in (
        ("share", change.share, 100),
        ("hours", change.hours or None, MOST_HOURS),
        ("pairs", change.pairs or None, MOST),
    ):
        if given is not None and not 1 <= given <= high:
            raise DomainError(f"{name}: from 1 to {high:,}.", code="bad_labeling", field=field)
    return replace(
        step,
        share=step.share if change.share is None else change.share,
        hours=step.hours if change.hours is None else change.hours or None,
        pairs=step.pairs if change.pairs is None else change.pairs or None,
    )


def _recipe_of(project: Project, step: Step, dataset: str, field: str) -> Step:
    """The freeze by the recipe of a dataset that was frozen from the project's votes."""
    found = recipes_of(project).filter(pk=dataset.replace("\x00", "?")).first()
    if found is None or not _has_recipe(found):
        raise DomainError(
            "There is no such dataset that was frozen from this project's votes.",
            code="unknown_dataset",
            field=field,
        )
    recipe = recipe_from_stored(found.recipe).to_json()
    return replace(step, recipe=recipe, copied_from=found.pk)


def recipes_of(project: Project) -> QuerySet[Snapshot]:
    """Datasets whose recipe a freeze may take, newest first; those frozen from other than votes are
    among them."""
    rows = Snapshot.objects.filter(
        project=project, kind=Snapshot.Kind.PREFERENCES, state=Snapshot.State.FROZEN
    )
    return (
        rows.filter(recipe__has_key="ties").exclude(recipe__has_key=MIXTURE).order_by("-frozen_at")
    )


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
    pipeline: Pipeline, number: int, steps: list[Step], rules: Rules, user: User
) -> PipelineVersion:
    _check(rules, steps)
    return PipelineVersion.objects.create(
        pipeline=pipeline,
        number=number,
        steps=steps_to_json(steps),
        created_by=user,
        **asdict(rules),
    )


def _check(rules: Rules, steps: list[Step]) -> None:
    for name, low, high in RULE_LIMITS:
        value = getattr(rules, name)
        if value is not None and not low <= value <= high:
            raise DomainError(
                f"From {low:,} to {high:,}" + (", or empty." if name != HOUR else "."),
                code="bad_" + name.partition("_")[0],
                field=name,
            )
    if rules.trigger_age_days is not None and all(step.key != "reward" for step in steps):
        raise DomainError(
            "The pipeline trains no reward model, so none has an age.",
            code="bad_trigger",
            field="trigger_age_days",
        )
    if rules.budget_money is not None and (rules.price_vote, rules.price_gpu_hour) == (None, None):
        raise DomainError(
            "Name the price of a vote or of a GPU hour, by which money is counted.",
            code="bad_budget",
            field="budget_money",
        )
    if len(rules.currency) > (most := longest(PipelineVersion, "currency")):
        raise DomainError(f"At most {most} characters.", code="bad_price", field="currency")


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
    elif run.kind == Run.Kind.GENERATE:
        found["generate"] = run
    else:
        found["reward"] = run
    for key, role, at in (
        ("policy", "policy", "evaluate"),
        ("policy", "policy", "generate"),
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
    if "generate" not in found and (
        after := _newest_after(found.get("policy"), "policy", "generate")
    ):
        found["generate"] = after
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
    steps: list[Step] = []
    if "generate" in runs:
        steps += _generating(runs, data)
    if data is not None:
        steps.append(_freeze(project, data))
    for key in ("reward", "assess", "policy", "evaluate"):
        if key in runs:
            steps.append(_run_step(key, runs[key], runs, data))
        if key == "assess" and "reward" in runs:
            steps.append(Step("approve", APPROVE, of="reward"))
    if "policy" in runs:
        steps.append(Step("audit", AUDIT, enabled=False, of="policy"))
        steps.append(Step("promote", PROMOTE, of="policy", stage=Stage.STAGING.value))
    return steps


def _generating(runs: Mapping[str, Run], data: Snapshot | None) -> list[Step]:
    """Pairs of the policy that the round before trained, and people's part in them."""
    generate = _run_step("generate", runs["generate"], runs, data)
    policy = generate.inputs.get("policy")
    if policy is not None and policy.origin == STEP:
        generate = generate.with_input("policy", replace(policy, origin=PREVIOUS))
    return [
        generate,
        select_step(),
        Step("label", LABEL),
        Step("decide", DECIDE, enabled=False),
    ]


def select_step() -> Step:
    """Off: until a replay on the project's votes shows that choosing pairs saves any."""
    return Step("select", SELECT, enabled=False)


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
    own = _has_recipe(data)
    recipe = recipe_from_stored(data.recipe) if own else recipe_default(project=project)
    return Step("freeze", FREEZE, recipe=recipe.to_json())


def _has_recipe(data: Snapshot) -> bool:
    return "ties" in data.recipe and MIXTURE not in data.recipe and not data.is_imported


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
