"""Asking models in service the same things again and again.

Two clocks move a probe. The beat launches what is due, in one transaction per watch that holds its
row (SKIP LOCKED: any number of schedulers may run) and moves `next_at`; a run that has ended is
looked at after its commit, and by the next beat where that was lost. `Watch.probe` is set between
the two, so no second probe begins beside one, and each result is taken once.
"""

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.common.errors import Conflict, DomainError
from apps.common.transactions import after_commit
from apps.monitoring.models import Incident, ProbeResult, Watch
from apps.monitoring.services.incidents import incident_open
from apps.monitoring.services.judging import (
    Brought,
    baseline_of,
    brought_by,
    judge,
    judge_failure,
    judge_first,
    judge_refusal,
)
from apps.monitoring.services.outcomes import outcomes_judge
from apps.monitoring.services.watches import watch_get
from apps.training.models import Run
from apps.training.services import run_launch
from workers.contract.wire import QUEUE_SHORT

log = logging.getLogger(__name__)
SEED = 0  # the same every time: identical weights give identical answers
_MOST = 50  # launched by one beat
_NAME = 120


def probes_launch(*, now: datetime | None = None) -> int:
    """Launch what is due, and look at what has ended. Returns how many were launched."""
    now = now or timezone.now()
    for run_id in _ended():
        probe_take(run_id=run_id)
    due = Watch.objects.filter(enabled=True, next_at__lte=now).order_by("next_at")
    return sum(_launch_due(pk, now) for pk in list(due.values_list("pk", flat=True)[:_MOST]))


def probe_now(*, project: Project, watch_id: str, user: User) -> Run:
    """Launch one at once, also for a watch that is paused. The next one comes an interval later."""
    for run_id in _ended(project=project, pk=watch_id.replace("\x00", "")):
        probe_take(run_id=run_id)
    with transaction.atomic():
        watch = watch_get(project=project, watch_id=watch_id, lock=True)
        if watch.probe is not None:
            raise Conflict(
                "A probe is running; its result appears on this page.", code="probe_under_way"
            )
        now = timezone.now()
        watch.next_at = now + timedelta(minutes=watch.every_minutes)
        return _launch(watch, user=user, key=f"probe:{watch.pk}:{now.isoformat()}")


def probe_ended(run: Run) -> None:
    """A listener of ended runs, inside their transaction."""
    if run.kind == Run.Kind.PROBE:
        after_commit(probe_take, run_id=run.pk)


def probe_take(*, run_id: str) -> ProbeResult | None:
    """Judge what the probe brought and tell of it. None where there is nothing to do: the run still
    lives, was taken before, or was cancelled by a person."""
    with transaction.atomic():
        watch = (
            Watch.objects.select_for_update(of=("self",))
            .select_related("project", "checkpoint", "reward", "claims", "probe")
            .filter(probe=run_id)
            .first()
        )
        run = watch.probe if watch is not None else None
        if watch is None or run is None or run.is_live:
            return None
        watch.probe = None
        if run.state == Run.State.CANCELLED:
            watch.save(update_fields=["probe", "updated_at"])
            return None
        found = brought_by(run) if run.state == Run.State.FINISHED else Brought(problem="failed")
        result = _keep(watch, run, found)
        watch.save()
    return result


# --- launching ---


def _ended(**only: Any) -> list[str]:
    rows = Watch.objects.filter(probe__state__in=Run.ENDED_STATES, **only)
    return list(rows.values_list("probe_id", flat=True))


def _launch_due(watch_id: str, now: datetime) -> bool:
    """False: another scheduler holds it or has launched it, a probe is under way, or it could not
    be launched."""
    with transaction.atomic():
        watch = (
            Watch.objects.select_for_update(of=("self",), skip_locked=True)
            .select_related("project", "checkpoint__run", "reward__run", "prompts", "probe")
            .filter(pk=watch_id, enabled=True, next_at__lte=now)
            .first()
        )
        if watch is None:
            return False
        slot = watch.next_at
        watch.next_at = _next(slot, now, watch.every_minutes)
        if watch.probe is not None:
            watch.save(update_fields=["next_at", "updated_at"])
            return False
        try:
            with transaction.atomic():
                _launch(watch, user=None, key=f"probe:{watch.pk}:{slot.isoformat()}")
        except DomainError as error:
            _refused(watch, error)
            return False
    return True


def _next(slot: datetime, now: datetime, every_minutes: int) -> datetime:
    """The next slot after now: those that a sleeping machine missed are gone."""
    every = timedelta(minutes=every_minutes)
    return slot + every * ((now - slot) // every + 1)


def _launch(watch: Watch, *, user: User | None, key: str) -> Run:
    run = run_launch(
        project=watch.project,
        kind=Run.Kind.PROBE,
        name=f"probe of {watch.name}"[:_NAME],
        config=watch.config,
        inputs=probe_inputs(watch),
        seed=SEED,
        queue=QUEUE_SHORT,
        user=user,
        idempotency_key=key,
    )
    watch.probe = run
    watch.save(update_fields=["probe", "next_at", "updated_at"])
    return run


def probe_inputs(watch: Watch) -> dict[str, Any]:
    """By role, as apps.training.services.kinds names them."""
    if watch.kind == Watch.Kind.REWARD:
        return {"reward": watch.checkpoint, "prompts": watch.prompts}
    return {"policy": watch.checkpoint, "reward": watch.reward, "prompts": watch.prompts}


def _refused(watch: Watch, error: DomainError) -> None:
    log.warning("watch %s: no probe: %s", watch.pk, error.message)
    watch.state = Watch.State.BROKEN
    watch.save(update_fields=["state", "next_at", "updated_at"])
    _tell(watch, judge_refusal(error.message).findings, known=set(), once=True)


# --- taking ---


def _keep(watch: Watch, run: Run, found: Brought) -> ProbeResult:
    before = ProbeResult.objects.filter(watch=watch).order_by("-at", "-pk").first()
    asked = _asked(run)
    if found.problem:
        problem = "" if run.state == Run.State.FAILED else found.problem
        judged = judge_failure(run, problem)
        watch.state = Watch.State.BROKEN
    elif not watch.baseline:
        judged = judge_first(watch, found)
        watch.baseline = baseline_of(found)
        watch.baseline_at, watch.baseline_run = run.ended_at, run
        watch.state = Watch.State.DRIFTED if judged.findings else Watch.State.STEADY
    else:
        judged = judge(watch, found, _comparable(before, watch), watch.baseline)
        watch.state = Watch.State.DRIFTED if judged.findings else Watch.State.STEADY
    result = ProbeResult.objects.create(
        watch=watch,
        run=run,
        at=run.ended_at or timezone.now(),
        figures=judged.figures,
        findings=judged.findings,
        details=judged.details | asked | {"baseline_run": watch.baseline_run_id},
        fired=bool(judged.findings),
    )
    known = {_named(one) for one in before.findings} if before is not None else set()
    _tell(watch, judged.findings, known=known)
    if not found.problem:
        outcomes_judge(project=watch.project, watch=watch)
    return result


def _asked(run: Run) -> dict[str, Any]:
    """Which models the run was given, whatever the watch is about by now."""
    given = dict(run.inputs.values_list("role", "checkpoint_id"))
    if "policy" in given:
        return {"checkpoint": given["policy"], "reward": given.get("reward")}
    return {"checkpoint": given.get("reward"), "reward": None}


def _comparable(before: ProbeResult | None, watch: Watch) -> Mapping[str, Any] | None:
    """The probe before, if it was laid beside the same baseline."""
    if before is None or before.details.get("baseline_run") != watch.baseline_run_id:
        return None
    return before.figures


def incident_key(watch: Watch) -> str:
    return f"watch:{watch.pk}"


def _tell(
    watch: Watch, findings: list[dict[str, Any]], *, known: set[tuple[str, str]], once: bool = False
) -> None:
    """Open the watch's incident, or join it with what is new (not `known`; with `once` nothing is).
    The same findings hour after hour are one problem; once somebody has resolved it and it is still
    there, they open another."""
    is_open = (
        Incident.objects.filter(project=watch.project, key=incident_key(watch))
        .exclude(state=Incident.State.RESOLVED)
        .exists()
    )
    fresh = [one for one in findings if not is_open or not (once or _named(one) in known)]
    if not fresh:
        return
    first = min(fresh, key=_urgency)
    incident_open(
        project=watch.project,
        key=incident_key(watch),
        link=first["link"],
        rule=first["rule"],
        title=f"{watch.name}: {first['title']}",
        message="\n".join([first["message"], *(o["message"] for o in findings if o is not first)]),
        severity=first["severity"],
        checkpoint=watch.checkpoint,
        value=first.get("value"),
    )


def _named(finding: Mapping[str, Any]) -> tuple[str, str]:
    return finding["rule"], finding.get("figure", "")


def _urgency(finding: Mapping[str, Any]) -> int:
    return 0 if finding["severity"] == "critical" else 1
