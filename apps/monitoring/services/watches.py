"""Putting a monitored model, and what people decide about it afterwards."""

import json
from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Missing
from apps.common.json_limits import storable
from apps.monitoring.models import ProbeResult, Watch
from apps.monitoring.services.judging import baseline_from
from apps.snapshots.models import Snapshot
from apps.training.models import Checkpoint, Run
from apps.training.services.kinds import ANSWERING, KINDS, REWARDS
from workers.config import recipe_config, recipe_fields

LONGEST_NAME = 120
LONGEST_REASON = 500
MOST_SECONDS = 3600
LEAST_MINUTES, MOST_MINUTES = 5, 7 * 24 * 60
HOURLY = 60
_AS_TRAINED = ("max_prompt_length", "max_new_tokens", "temperature")


def watch_create(
    *,
    project: Project,
    name: str,
    checkpoint: Checkpoint,
    prompts: Snapshot,
    reward: Checkpoint | None = None,
    every_minutes: int = HOURLY,
    config: Mapping[str, Any] | None = None,
    claims: Checkpoint | None = None,
    user: User | None = None,
) -> Watch:
    """Ask the model the prompts of a frozen snapshot from now on; the first answers become its
    baseline. A policy needs the reward model that scores its answers. What `config` does not say
    is as it was while the model trained, else the recipe's default. claims: the checkpoint of ours
    that a served model is said to be.

    Raises `DomainError` naming the field; then nothing was stored.
    """
    name = _name_checked(name)
    kind = _kind_of(project, checkpoint)
    if kind == Watch.Kind.POLICY:
        _check_reward(project, reward)
    elif reward is not None:
        raise DomainError(
            "A reward model scores by itself; leave this empty.", code="not_needed", field="reward"
        )
    _check_claim(project, checkpoint, claims)
    _check_prompts(project, prompts)
    watch = Watch(
        project=project,
        kind=kind,
        name=name,
        checkpoint=checkpoint,
        reward=reward,
        claims=claims,
        prompts=prompts,
        config=config_like(checkpoint) | _config_checked(config or {}),
        every_minutes=_minutes_checked(every_minutes),
        next_at=timezone.now(),
        created_by=user,
    )
    with transaction.atomic():
        _save_named(watch)
        _audit(watch, user, "created", {"checkpoint": checkpoint.pk, "prompts": prompts.pk})
    return watch


def config_like(checkpoint: Checkpoint) -> dict[str, Any]:
    """How the model was asked while it trained, as far as a probe has the same settings."""
    known = {field.name for field in recipe_fields(Run.Kind.PROBE)} & set(_AS_TRAINED)
    trained = recipe_config(checkpoint.run.kind, checkpoint.run.config)
    return {name: trained[name] for name in sorted(known) if name in trained}


def watch_get(*, project: Project, watch_id: str, lock: bool = False) -> Watch:
    """Raises `Missing`."""
    rows = Watch.objects.select_related(
        "project",
        "checkpoint__run",
        "reward__run",
        "claims__run",
        "prompts",
        "probe",
        "baseline_run",
    )
    if lock:
        rows = rows.select_for_update(of=("self",))
    found = rows.filter(project=project, pk=watch_id.replace("\x00", "")).first()
    if found is None:
        raise Missing("There is no such monitored model in this project.", field="watch")
    return found


@transaction.atomic
def watch_change(
    *,
    project: Project,
    watch_id: str,
    name: str,
    every_minutes: int,
    user: User,
    max_seconds: float | None = None,
) -> Watch:
    """Another name, another interval, more time for a probe. What is asked stays: to ask something
    else, put the monitored model once more."""
    watch = watch_get(project=project, watch_id=watch_id, lock=True)
    before = _settings_of(watch)
    watch.name, watch.every_minutes = _name_checked(name), _minutes_checked(every_minutes)
    if max_seconds is not None:
        if not 0 < max_seconds <= MOST_SECONDS:
            raise DomainError(
                f"More than 0 and at most {MOST_SECONDS:,} seconds.",
                code="bad_time",
                field="max_seconds",
            )
        watch.config = watch.config | {"max_seconds": max_seconds}
    after = _settings_of(watch)
    if before == after:
        return watch
    if before["every_minutes"] > watch.every_minutes:
        watch.next_at = min(watch.next_at, timezone.now())
    _save_named(watch)
    _audit(watch, user, "changed", {"before": before, "after": after})
    return watch


@transaction.atomic
def watch_disable(*, project: Project, watch_id: str, user: User) -> Watch:
    """No more probes until somebody continues; a probe under way is still looked at."""
    watch = watch_get(project=project, watch_id=watch_id, lock=True)
    if watch.enabled:
        watch.enabled = False
        watch.save(update_fields=["enabled", "updated_at"])
        _audit(watch, user, "disabled", {})
    return watch


@transaction.atomic
def watch_enable(*, project: Project, watch_id: str, user: User) -> Watch:
    """Go on, with a probe at once."""
    watch = watch_get(project=project, watch_id=watch_id, lock=True)
    if not watch.enabled:
        watch.enabled, watch.next_at = True, timezone.now()
        watch.save(update_fields=["enabled", "next_at", "updated_at"])
        _audit(watch, user, "enabled", {})
    return watch


@transaction.atomic
def watch_retarget(
    *, project: Project, watch_id: str, checkpoint: Checkpoint, reason: str, user: User
) -> Watch:
    """Another checkpoint is in service now. The baseline stays, so the next probe tells what that
    changed: whoever meant it then sets the baseline again."""
    watch = watch_get(project=project, watch_id=watch_id, lock=True)
    if _kind_of(project, checkpoint) != watch.kind:
        raise DomainError(
            f"This watch is about a {watch.get_kind_display().lower()}; choose one of that kind.",
            code="wrong_kind",
            field="checkpoint",
        )
    reason = _reason_checked(reason)
    if checkpoint.pk == watch.checkpoint_id:
        raise Conflict("That model is already being probed.", code="same_model", field="checkpoint")
    before = watch.checkpoint_id
    watch.checkpoint, watch.next_at = checkpoint, timezone.now()
    watch.save(update_fields=["checkpoint", "next_at", "updated_at"])
    _audit(watch, user, "retargeted", {"from": before, "to": checkpoint.pk, "reason": reason})
    return watch


@transaction.atomic
def watch_rebase(*, project: Project, watch_id: str, reason: str, user: User) -> Watch:
    """What the model answers now is what is normal from now on: the newest probe of the model as it
    is asked today becomes the baseline, or the next one where there is none such."""
    watch = watch_get(project=project, watch_id=watch_id, lock=True)
    reason = _reason_checked(reason)
    before = watch.baseline_run_id
    latest = (
        ProbeResult.objects.filter(watch=watch).select_related("run").order_by("-at", "-pk").first()
    )
    found = baseline_from(latest.run) if latest is not None and _is_of_now(watch, latest) else None
    if latest is not None and found is not None:
        watch.baseline, watch.baseline_at, watch.baseline_run = found, latest.at, latest.run
        watch.state = Watch.State.STEADY
    else:
        watch.baseline, watch.baseline_at, watch.baseline_run = {}, None, None
        watch.state, watch.next_at = Watch.State.NEW, timezone.now()
    watch.save()
    details = {"reason": reason, "from": before, "to": watch.baseline_run_id}
    _audit(watch, user, "rebased", details)
    return watch


def _settings_of(watch: Watch) -> dict[str, Any]:
    return {
        "name": watch.name,
        "every_minutes": watch.every_minutes,
        "max_seconds": watch.config.get("max_seconds"),
    }


def _is_of_now(watch: Watch, result: ProbeResult) -> bool:
    """Whether the probe asked the models that the watch is about today."""
    asked = result.details
    return (
        bool(result.figures)
        and asked.get("checkpoint") == watch.checkpoint_id
        and asked.get("reward") == watch.reward_id
    )


def _name_checked(name: str) -> str:
    name = storable(name.strip())
    if not name or len(name) > LONGEST_NAME:
        raise DomainError(
            f"Give it a name of 1 to {LONGEST_NAME} characters.", code="bad_name", field="name"
        )
    return name


def _reason_checked(reason: str) -> str:
    reason = storable(reason.strip())
    if not reason:
        raise DomainError(
            "Say why: it is kept in the audit log.", code="bad_reason", field="reason"
        )
    if len(reason) > LONGEST_REASON:
        raise DomainError(
            f"At most {LONGEST_REASON} characters.", code="bad_reason", field="reason"
        )
    return reason


def _minutes_checked(every_minutes: int) -> int:
    if not LEAST_MINUTES <= every_minutes <= MOST_MINUTES:
        raise DomainError(
            f"Every {LEAST_MINUTES} minutes at the soonest, every {MOST_MINUTES:,} (a week) at the "
            "latest.",
            code="bad_interval",
            field="every_minutes",
        )
    return every_minutes


def _config_checked(config: Mapping[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(dict(config), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DomainError(
            f"The configuration is not JSON: {error}.", code="bad_config", field="config"
        ) from error
    return storable(dict(config))


def _kind_of(project: Project, checkpoint: Checkpoint) -> str:
    _check_usable(project, checkpoint, "checkpoint")
    kind = checkpoint.run.kind
    if kind in ANSWERING:
        return Watch.Kind.POLICY
    if kind in REWARDS:
        return Watch.Kind.REWARD
    raise DomainError(
        f"A {Run.Kind(kind).label} run leaves no policy and no reward model.",
        code="wrong_kind",
        field="checkpoint",
    )


def _check_reward(project: Project, reward: Checkpoint | None) -> None:
    if reward is None:
        raise DomainError(
            "Choose the reward model that scores the policy's answers.",
            code="missing_input",
            field="reward",
        )
    _check_usable(project, reward, "reward")
    if reward.run.kind not in REWARDS:
        raise DomainError("That is not a reward model.", code="wrong_kind", field="reward")


def _check_claim(project: Project, checkpoint: Checkpoint, claims: Checkpoint | None) -> None:
    if claims is None:
        return
    _check_usable(project, claims, "claims")
    if checkpoint.run.kind != Run.Kind.SERVED:
        raise DomainError(
            "Only a model at a server can claim to be another; leave this empty.",
            code="not_needed",
            field="claims",
        )
    if claims.run.kind not in ANSWERING or claims.run.kind == Run.Kind.SERVED:
        raise DomainError(
            "Choose a policy of this project whose weights are kept here.",
            code="wrong_kind",
            field="claims",
        )


def _check_usable(project: Project, model: Checkpoint, field: str) -> None:
    if model.project_id != project.pk:
        raise DomainError(
            "There is no such model in this project.", code="unknown_input", field=field
        )
    if model.status in (Checkpoint.Status.REJECTED, Checkpoint.Status.RETIRED):
        raise Conflict(
            f"This model is {model.status}; what is in service should not be.",
            code=f"checkpoint_{model.status}",
            field=field,
        )


def _check_prompts(project: Project, prompts: Snapshot) -> None:
    if prompts.project_id != project.pk:
        raise DomainError(
            "There is no such dataset in this project.", code="unknown_input", field="prompts"
        )
    allowed = KINDS["probe"].roles["prompts"].snapshots
    if prompts.kind not in allowed:
        raise DomainError(
            f"Choose a dataset of {' or '.join(sorted(allowed))}, not of {prompts.kind}.",
            code="wrong_input",
            field="prompts",
        )
    if prompts.state != Snapshot.State.FROZEN:
        raise Conflict(
            f"The dataset is {prompts.state}; only a frozen one stays the same.",
            code="snapshot_not_frozen",
            field="prompts",
        )


def _save_named(watch: Watch) -> None:
    try:
        with transaction.atomic():
            watch.save()
    except IntegrityError:
        raise Conflict(
            f"'{watch.name}' is monitored already. Choose another name.",
            code="taken",
            field="name",
        ) from None


def _audit(watch: Watch, user: User | None, verb: str, details: dict[str, Any]) -> None:
    audit_record(
        action=f"watch.{verb}",
        actor=user,
        project=watch.project,
        subject=watch.pk,
        details={"name": watch.name} | details,
    )
