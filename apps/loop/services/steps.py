"""One step of a round: begun, and looked at until it is over."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import AuditEvent, User
from apps.common.errors import DomainError
from apps.evaluation.models import AuditSheet, PromotionDecision
from apps.evaluation.selectors.promotion import decision_of, requests_for
from apps.labeling.models import Comparison
from apps.loop.models import Pipeline, Round, RoundStep
from apps.loop.plan import SelectionPlan
from apps.loop.recipe import (
    APPROVE,
    AUDIT,
    CHECKPOINT,
    DECIDE,
    FREEZE,
    LABEL,
    RUN,
    SELECT,
    STEP,
    Step,
)
from apps.loop.selectors import QUEUED, REFUSED, batch_of
from apps.loop.selectors import pipelines as selectors
from apps.loop.selectors.labeling import generation_of, generations_of, labeled
from apps.loop.selectors.pipelines import source_resolved, steps_of
from apps.loop.services.selecting import pairs_select
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SINGLE, SOFT, SnapshotRecipe, recipe_from_stored
from apps.snapshots.services.freezing import snapshot_queue
from apps.training.guidance import next_step
from apps.training.models import Checkpoint, Run
from apps.training.selectors import checkpoint_for_use
from apps.training.services import run_launch
from apps.training.services.kinds import OPTIMISED
from apps.training.services.launching import LONGEST_NAME
from workers.artifacts import ArtifactError

StepState = RoundStep.State


def step_move(row: Round, step: RoundStep, wanted: Step) -> None:
    """What is known of the step now, into its row; it is begun where it was not."""
    now = timezone.now()
    if step.state == StepState.PENDING:
        step.started_at = now
        try:
            with transaction.atomic():
                _begin(row, step, wanted)
        except (DomainError, ArtifactError) as error:
            _failed(step, f"{error} When that is put right, do the step again.", now)
    if step.state in (StepState.RUNNING, StepState.FAILED):
        _look_at_work(row, step, now)
    if step.state == StepState.WAITING:
        _look_at_people(row, step, wanted, now)
    step.save()


def _begin(row: Round, step: RoundStep, wanted: Step) -> None:
    user = row.started_by or row.version.created_by
    title = f"{row}: {wanted.title.lower()}"[:LONGEST_NAME]
    if step.kind == FREEZE:
        step.inputs = {"accepted_pairs": selectors.accepted_pairs(row.project)}
        step.snapshot = snapshot_queue(
            project=row.project, name=title, recipe=_recipe(row, wanted), user=user
        )
        step.state = StepState.RUNNING
    elif step.kind == RUN:
        step.run = _launch(row, step, wanted, title, user)
        step.state = StepState.RUNNING
    elif step.kind == SELECT:
        _select(row, step, wanted)
    else:
        if wanted.of:
            step.checkpoint = _model_of(row, wanted.of)
        step.state = StepState.WAITING


def _select(row: Round, step: RoundStep, wanted: Step) -> None:
    run = generation_of(row)
    if run is None:
        raise DomainError("The round generated no pairs to choose from.", code="no_pairs")
    found = pairs_select(run=run, plan=SelectionPlan.from_json(wanted.plan))
    step.inputs = {name: getattr(found, name) for name in (*Comparison.Slice.values, "left")}
    _done(step, timezone.now())


def _recipe(row: Round, wanted: Step) -> SnapshotRecipe:
    """As the pipeline has it. Where pairs were chosen, most have one vote, so single votes decide.
    One that takes certain batches takes those that the pipeline's rounds generated too."""
    recipe = recipe_from_stored(wanted.recipe)
    if row.steps.filter(kind=SELECT, state=StepState.DONE).exists():
        recipe = replace(recipe, decide_by=SINGLE, ties=SOFT)
    if not recipe.filters.batches:
        return recipe
    rounds = Round.objects.filter(pipeline=row.pipeline_id, number__lte=row.number)
    own = {batch_of(run) for run in generations_of(list(rounds))}
    batches = tuple(sorted({*recipe.filters.batches, *own}))
    return replace(recipe, filters=replace(recipe.filters, batches=batches))


def _launch(row: Round, step: RoundStep, wanted: Step, name: str, user: User | None) -> Run:
    inputs = {}
    for role, source in wanted.inputs.items():
        given = source_resolved(row, source)
        if given is None:
            raise DomainError(
                f"What the step reads as '{role}' is gone.", code="input_gone", field=role
            )
        inputs[role] = given
    step.inputs = {
        role: {"type": type(given).__name__.lower(), "id": str(given.pk)}
        for role, given in inputs.items()
    }
    skipped = row.steps.filter(kind=APPROVE, state=StepState.SKIPPED).first()
    return run_launch(
        project=row.project,
        kind=wanted.run_kind,
        name=name,
        config=_config(row, wanted),
        inputs=inputs,
        seed=wanted.seed,
        queue=wanted.queue,
        layout=wanted.layout,
        processes=wanted.processes,
        launcher=wanted.launcher,
        priority=wanted.priority,
        user=user,
        idempotency_key=step.launch_key,
        override_reason=skipped.reason if skipped and wanted.run_kind in OPTIMISED else "",
    )


def _config(row: Round, wanted: Step) -> dict[str, Any]:
    """Generated pairs go to people by themselves, unless a later step chooses among them."""
    config = dict(wanted.config)
    if wanted.run_kind == "generate":
        config["to_people"] = not row.steps.filter(kind=SELECT).exists()
    return config


def _model_of(row: Round, key: str) -> Checkpoint:
    """What a step of this round trained; where it did not run, what its round before or the run
    that it was copied from did."""
    source = next(
        (
            one
            for step in steps_of(row.version)
            for one in step.inputs.values()
            if (one.origin, one.step, one.type) == (STEP, key, CHECKPOINT)
        ),
        None,
    )
    own = row.steps.filter(key=key, state=StepState.DONE, checkpoint__isnull=False).first()
    given = own.checkpoint if own else source_resolved(row, source) if source else None
    if not isinstance(given, Checkpoint):
        raise DomainError("There is no model to decide about.", code="no_model")
    return given


def _look_at_work(row: Round, step: RoundStep, now: datetime) -> None:
    """A run may come back from a failure by itself or by a person, so its row is asked each time;
    what never was launched stays failed."""
    if step.kind == FREEZE and step.snapshot is not None:
        if step.snapshot.state == Snapshot.State.FROZEN:
            _done(step, step.snapshot.frozen_at or now)
            Pipeline.objects.filter(pk=row.pipeline_id).update(
                counted_pairs=step.inputs.get("accepted_pairs", 0)
            )
        elif step.snapshot.state == Snapshot.State.FAILED:
            _failed(step, f"{step.snapshot.error} When that is put right, do the step again.", now)
    elif step.kind == RUN and step.run is not None:
        _look_at_run(step, step.run, now)
    elif step.state == StepState.RUNNING:
        _failed(step, "What it launched was deleted. Do the step again.", now)


def _look_at_run(step: RoundStep, run: Run, now: datetime) -> None:
    if run.is_live:
        step.state, step.problem, step.ended_at = StepState.RUNNING, "", None
    elif run.state == Run.State.FINISHED:
        step.checkpoint = checkpoint_for_use(run)
        _done(step, run.ended_at or now)
    elif run.state == Run.State.CANCELLED:
        _failed(step, "The run was cancelled. Resume it, or do the step again.", run.ended_at)
    else:
        what = f"{run.failure_message} {next_step(run)}".strip()
        _failed(step, f"{what} Resume the run, or do the step again.", run.ended_at)


def _look_at_people(row: Round, step: RoundStep, wanted: Step, now: datetime) -> None:
    if step.kind == LABEL:
        _look_at_labels(row, step, wanted, now)
    elif step.kind == DECIDE:
        found = labeled(row)
        if not found.disputed:
            _done(step, now)
    elif step.checkpoint is None:
        _failed(step, "The model was deleted. Do the step again.", now)
    elif step.kind == APPROVE:
        _look_at_approval(step, step.checkpoint, now)
    elif step.kind == AUDIT:
        sheets = AuditSheet.objects.filter(
            checkpoint=step.checkpoint, state=AuditSheet.State.FINISHED
        )
        if (sheet := sheets.order_by("-ended_at").first()) is not None:
            step.inputs = {"sheet": {"type": "audit sheet", "id": sheet.pk}}
            _done(step, sheet.ended_at or now)
    else:
        _look_at_promotion(step, step.checkpoint, wanted.stage, now)


def _look_at_labels(row: Round, step: RoundStep, wanted: Step, now: datetime) -> None:
    """Enough of the round's pairs have their votes, or enough fresh pairs are accepted, or the time
    is over."""
    found, run = labeled(row), generation_of(row)
    step.inputs = {"pairs": found.n, "voted": found.voted}
    is_late = (
        wanted.hours is not None
        and step.started_at is not None
        and now - step.started_at >= timedelta(hours=wanted.hours)
    )
    if run is None:
        if wanted.pairs is None:
            _failed(step, "The round generated no pairs. Generate them, or skip the step.", now)
        elif is_late or selectors.fresh_pairs(row.pipeline) >= wanted.pairs:
            _done(step, now)
    elif found.n:
        if is_late or 100 * found.voted >= wanted.share * found.n:
            _done(step, now)
    elif AuditEvent.objects.filter(action=REFUSED, subject=run.pk).exists():
        _failed(step, "The generated pairs could not be queued. Generate them again.", now)
    elif AuditEvent.objects.filter(action=QUEUED, subject=run.pk).exists():
        _failed(step, "No generated pair can be compared: empty or equal answers.", now)
    elif is_late:
        _failed(step, "None of the generated pairs came into the label queue.", now)


def _look_at_approval(step: RoundStep, model: Checkpoint, now: datetime) -> None:
    if model.status == Checkpoint.Status.APPROVED:
        step.decision = model.status
        _done(step, now)
    elif model.status in (Checkpoint.Status.REJECTED, Checkpoint.Status.RETIRED):
        _failed(step, f"The reward model is {model.status}. Train another, or stop the round.", now)


def _look_at_promotion(step: RoundStep, model: Checkpoint, stage: str, now: datetime) -> None:
    for request in requests_for(model):
        decision = decision_of(request) if request.stage == stage else None
        if decision is not None and decision.kind != PromotionDecision.Kind.WITHDRAWN:
            step.decision = decision.kind
            _done(step, now)
            return


def _done(step: RoundStep, at: datetime) -> None:
    step.state, step.problem, step.ended_at = StepState.DONE, "", at


def _failed(step: RoundStep, problem: str, at: datetime | None) -> None:
    step.state, step.problem, step.ended_at = StepState.FAILED, problem, at or timezone.now()
