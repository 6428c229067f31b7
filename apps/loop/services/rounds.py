"""Rounds: starting them, moving them on, and what people do to them.

`rounds_sweep` is the scheduler's. It moves each round in one transaction that holds the round's
row: whoever finds it held passes on, so two schedulers do no harm, and a process that is killed
leaves the row as it was and nothing launched. What a step launches carries the step's key besides.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from django.db import IntegrityError, transaction
from django.db.models import Max
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Role, User
from apps.accounts.services import audit_record, notice_give
from apps.common.errors import Conflict, DomainError, Missing
from apps.common.models import one_line
from apps.common.transactions import database_away
from apps.loop.models import LONGEST_REASON, Pipeline, Round, RoundStep
from apps.loop.selectors import pipelines as selectors
from apps.loop.selectors.pipelines import steps_of, version_now
from apps.loop.selectors.rules import budget_used, steps_seconds, triggers_that_hold
from apps.loop.services.steps import StepState, step_move
from apps.monitoring.models import Channel
from apps.monitoring.services.notifications import page_url, project_tell
from apps.snapshots.models import Snapshot
from apps.snapshots.services.freezing import snapshot_cancel
from apps.training.models import Run
from apps.training.services.commands import run_cancel, run_stop_and_keep

log = logging.getLogger(__name__)
State = Round.State
_STAFF = (Role.ENGINEER, Role.ADMIN)


def round_start(
    *, pipeline: Pipeline, user: User | None, trigger: str = Round.Trigger.HAND
) -> Round:
    """A new round by the newest version; the sweep moves it. Raises `Conflict` (round_live) where
    one of this pipeline has not ended: the database lets no second one in."""
    try:
        with transaction.atomic():
            return _start(pipeline, user, trigger)
    except IntegrityError as error:
        live = Round.objects.filter(pipeline=pipeline, state__in=Round.LIVE_STATES).first()
        which = f"Round {live.number}" if live else "Another round"
        raise Conflict(
            f"{which} of this pipeline has not ended; stop it, or wait for it.", code="round_live"
        ) from error


def _start(pipeline: Pipeline, user: User | None, trigger: str) -> Round:
    version = version_now(pipeline)
    newest = Round.objects.filter(pipeline=pipeline).aggregate(n=Max("number"))["n"] or 0
    row = Round.objects.create(
        project=pipeline.project,
        pipeline=pipeline,
        version=version,
        number=newest + 1,
        trigger=trigger,
        started_by=user,
        fresh_pairs=selectors.fresh_pairs(pipeline),
    )
    RoundStep.objects.bulk_create(
        RoundStep(round=row, place=place, key=step.key, kind=step.kind)
        for place, step in enumerate(steps_of(version), start=1)
        if step.enabled
    )
    _audit("started", row, user, trigger=row.get_trigger_display())
    return row


# What the scheduler does.


def rounds_sweep() -> int:
    """Start the rounds whose trigger holds and move all that can move. How many rounds it
    touched. A round that goes wrong holds up no other."""
    touched = 0
    for pipeline_id in Pipeline.objects.filter(project__archived_at=None).values_list(
        "pk", flat=True
    ):
        touched += _tried(partial(trigger_check, pipeline_id=pipeline_id))
    moving = Round.objects.filter(state__in=Round.MOVING_STATES, project__archived_at=None)
    for round_id in moving.order_by("created_at").values_list("pk", flat=True):
        touched += _tried(partial(round_advance, round_id=round_id), round_id)
    return touched


def _tried(act: Callable[[], bool], round_id: str = "") -> bool:
    try:
        return act()
    except Exception as error:
        if database_away(error):
            log.exception("the database did not let a round be moved")  # the next beat tries again
            return False
        log.exception("a round cannot be moved")
        if round_id:
            _broke(round_id, error)
    return False


@transaction.atomic
def _broke(round_id: str, error: Exception) -> None:
    """An error that nobody foresaw: people are told, instead of a round that looks as if it ran."""
    row = (
        Round.objects.select_for_update(skip_locked=True, of=("self",))
        .select_related("project", "pipeline", "version")
        .filter(pk=round_id, state__in=Round.MOVING_STATES)
        .first()
    )
    steps = selectors.round_steps(row) if row is not None else []
    step = selectors.current_step(steps)
    if row is None or step is None:
        return
    before = _at(steps)
    step.state, step.ended_at = StepState.FAILED, timezone.now()
    step.problem = (
        f"An unexpected error ({type(error).__name__}), which the server's log explains. When that "
        "is put right, do the step again."
    )
    step.save()
    _settle(row, steps, is_news=_at(steps) != before)


@transaction.atomic
def trigger_check(*, pipeline_id: str) -> bool:
    """Start a round where one of the pipeline's triggers holds; whether it did.

    A trigger that stays true starts no second one: it is armed again once it has not held for a
    moment, as that of fresh pairs does not after a freeze, or when the pipeline is changed.
    """
    pipeline = (
        Pipeline.objects.select_for_update(skip_locked=True, of=("self",))
        .select_related("project")
        .filter(pk=pipeline_id)
        .first()
    )
    if pipeline is None:
        return False
    hold = triggers_that_hold(pipeline, version_now(pipeline))
    live = Round.objects.filter(pipeline=pipeline, state__in=Round.LIVE_STATES).exists()
    armed = [name for name in hold if name not in pipeline.disarmed]
    starts = bool(armed) and not live
    disarmed = hold if starts else [name for name in pipeline.disarmed if name in hold]
    if disarmed != pipeline.disarmed:
        pipeline.disarmed = disarmed
        pipeline.save(update_fields=["disarmed", "updated_at"])
    if starts:
        round_start(pipeline=pipeline, user=None, trigger=armed[0])
    return starts


@transaction.atomic
def round_advance(*, round_id: str) -> bool:
    """Move one round as far as it goes now. False where somebody else moves it, or it is paused or
    over."""
    row = (
        Round.objects.select_for_update(skip_locked=True, of=("self",))
        .select_related("project", "pipeline", "version__created_by", "started_by")
        .filter(pk=round_id, state__in=Round.MOVING_STATES)
        .first()
    )
    if row is None:
        return False
    wanted = {step.key: step for step in steps_of(row.version)}
    steps = selectors.round_steps(row)
    before = _at(steps)
    for step in steps:
        if not step.is_over:
            step_move(row, step, wanted[step.key])
        if not step.is_over:
            break
    if selectors.current_step(steps) is None:
        _end(row, State.FINISHED)
    elif used := budget_used(row, steps):
        _halt(row, steps, None)
        _end(row, State.STOPPED, used)
    else:
        _settle(row, steps, is_news=_at(steps) != before)
    return True


def _at(steps: list[RoundStep]) -> tuple[str, str]:
    """The step that a round is at, and its state."""
    step = selectors.current_step(steps)
    return (step.key, step.state) if step is not None else ("", "")


def _settle(row: Round, steps: list[RoundStep], *, is_news: bool) -> None:
    """The round's own state after its steps', told once to those whose turn it is."""
    waits = _at(steps)[1] in (StepState.WAITING, StepState.FAILED)
    row.state = State.WAITING if waits else State.RUNNING
    row.save(update_fields=["state", "updated_at"])
    wait = selectors.wait_of(row, steps) if waits and is_news else None
    if wait is not None:
        _tell(row, "waiting", wait)


def _end(row: Round, state: str, reason: str = "") -> None:
    row.state, row.reason, row.ended_at = state, reason, timezone.now()
    row.save(update_fields=["state", "reason", "ended_at", "updated_at"])
    _tell(row, str(state))
    if state == State.FINISHED:
        _audit("finished", row, None)
    else:
        _audit("stopped", row, None, reason=reason)


def _tell(row: Round, kind: str, wait: selectors.Wait | None = None) -> None:
    """By the bell, and to the channels that hear of rounds. kind: waiting, finished, stopped."""
    address = ("loop:round", row.project.slug, row.pipeline_id, row.number)
    words = wait.words if wait else row.reason or f"{row.get_state_display()}."
    notice_give(
        project=row.project,
        roles=_STAFF,
        kind=f"round.{kind}",
        text=f"{row}: {words}"[:500],
        path=reverse(address[0], args=address[1:]),
    )
    project_tell(
        project=row.project,
        about=Channel.Tells.ROUNDS,
        event=f"round.{kind}",
        body={
            "round": {
                "pipeline": {"id": row.pipeline_id, "name": row.pipeline.name},
                "number": row.number,
                "state": row.state,
                "trigger": row.trigger,
                "url": page_url(*address),
                "reason": row.reason,
            },
            "waits_for": {"step": wait.step, "words": wait.words, "who": wait.who, "path": wait.url}
            if wait
            else None,
        },
    )


# What people do to a round.


@transaction.atomic
def round_pause(*, round: Round, user: User) -> Round:
    """Begin no further step. A run under way runs to its end."""
    row = _locked(round)
    if row.state == State.PAUSED:
        raise Conflict("The round is paused already.", code="round_paused")
    row.state, row.paused_by = State.PAUSED, user
    row.save(update_fields=["state", "paused_by", "updated_at"])
    _audit("paused", row, user)
    return row


@transaction.atomic
def round_resume(*, round: Round, user: User) -> Round:
    row = _locked(round)
    if row.state != State.PAUSED:
        raise Conflict("The round is not paused.", code="round_not_paused")
    row.state, row.paused_by = State.RUNNING, None
    row.save(update_fields=["state", "paused_by", "updated_at"])
    _audit("resumed", row, user)
    return row


@transaction.atomic
def round_stop(*, round: Round, user: User, reason: str) -> Round:
    """End the round. A run under way saves and ends early, or is cancelled where it had not
    started; what the round made stays."""
    row, reason = _locked(round), _reason(reason)
    _halt(row, selectors.round_steps(row), user)
    row.state, row.reason, row.ended_at = State.STOPPED, reason, timezone.now()
    row.save(update_fields=["state", "reason", "ended_at", "updated_at"])
    _tell(row, "stopped")
    _audit("stopped", row, user, reason=reason)
    return row


@transaction.atomic
def step_skip(*, round: Round, key: str, user: User, reason: str) -> RoundStep:
    """Go on without a step: later ones read what the round before made, or what the pipeline was
    copied from. Of a skipped approval the reason is kept with the policy's run."""
    row, reason = _locked(round), _reason(reason)
    step = _step(row, key)
    if step.is_over:
        raise Conflict(f"The step is {step.get_state_display()}.", code="step_over", field="step")
    _halt(row, [step], user)
    step.state, step.reason, step.skipped_by = StepState.SKIPPED, reason, user
    step.problem, step.ended_at = "", timezone.now()
    step.save()
    _audit("step_skipped", row, user, step=key, reason=reason)
    return step


@transaction.atomic
def step_redo(*, round: Round, key: str, user: User) -> Round:
    """Do a step again and all after it. Their runs are ended where they have not; what was made
    stays."""
    row = _locked(round)
    steps = selectors.round_steps(row)
    first = _step(row, key)
    if first.state == StepState.PENDING:
        raise Conflict("The step has not been started.", code="step_pending", field="step")
    again = [one for one in steps if one.place >= first.place]
    _halt(row, again, user)
    row.spent_s += steps_seconds(again, timezone.now())
    for step in again:
        step.attempt += step.state != StepState.PENDING
        step.state, step.run, step.snapshot, step.checkpoint = StepState.PENDING, None, None, None
        step.decision = step.problem = step.reason = ""
        step.skipped_by = step.started_at = step.ended_at = None
        step.inputs = {}
        step.save()
    row.save(update_fields=["spent_s", "updated_at"])
    _audit("step_redone", row, user, step=key)
    return row


def round_act(*, round: Round, action: str, user: User, step: str = "", reason: str = "") -> Round:
    """One of pause, resume, stop, skip and redo, and on with what can move. Raises `DomainError`
    for another action, and what the action raises."""
    if action == "pause":
        round_pause(round=round, user=user)
    elif action == "resume":
        round_resume(round=round, user=user)
    elif action == "stop":
        round_stop(round=round, user=user, reason=reason)
    elif action == "skip":
        step_skip(round=round, key=step, user=user, reason=reason)
    elif action == "redo":
        step_redo(round=round, key=step, user=user)
    else:
        raise DomainError(
            "Choose an action: pause, resume, stop, skip, redo.",
            code="unknown_action",
            field="action",
        )
    round_advance(round_id=round.pk)
    return Round.objects.select_related("project", "pipeline", "version").get(pk=round.pk)


def _locked(round: Round) -> Round:
    row = (
        Round.objects.select_for_update(of=("self",))
        .select_related("project", "pipeline", "version")
        .get(pk=round.pk)
    )
    if not row.is_live:
        raise Conflict(f"The round is {row.get_state_display()}.", code="round_ended")
    return row


def _step(row: Round, key: str) -> RoundStep:
    step = row.steps.select_related("run", "snapshot").filter(key=key.replace("\x00", "?")).first()
    if step is None:
        raise Missing("The round has no such step.", field="step")
    return step


def _halt(row: Round, steps: Sequence[RoundStep], user: User | None) -> None:
    """End what the steps have under way: trainers save first."""
    for step in steps:
        if step.run is not None and step.run.is_live:
            training = step.run.state == Run.State.RUNNING
            (run_stop_and_keep if training else run_cancel)(run=step.run, user=user)
        elif step.snapshot is not None and step.snapshot.state == Snapshot.State.DRAFT and user:
            snapshot_cancel(snapshot=step.snapshot, by=user)


def _reason(reason: str) -> str:
    reason = one_line(reason)
    if not 0 < len(reason) <= LONGEST_REASON:
        raise DomainError(
            f"Give a reason of 1 to {LONGEST_REASON} characters.",
            code="bad_reason",
            field="reason",
        )
    return reason


def _audit(what: str, row: Round, user: User | None, **details: str) -> None:
    audit_record(
        action=f"round.{what}",
        actor=user,
        project=row.project,
        subject=row.pk,
        details={"round": row.number, "pipeline": row.pipeline.name, **details},
    )
