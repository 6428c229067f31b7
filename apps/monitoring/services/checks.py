"""Launching the experiments that tell one cause of a problem from another.

Each is a run of its own on the queue `short`, which has a worker of its own: it works while the
training that it is about occupies the main one.
"""

import logging
from hashlib import sha256
from secrets import token_hex
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.accounts.services import audit_record
from apps.common.errors import DomainError, Missing
from apps.common.transactions import after_commit
from apps.monitoring.selectors.checks import (
    REPEATS,
    ExperimentState,
    experiment_of,
    experiment_states,
    repeated_config,
)
from apps.monitoring.selectors.run_outputs import RunOutputs
from apps.training.models import Run
from apps.training.services import run_clone, run_launch
from apps.training.services.attempts import run_locked
from workers.contract.wire import QUEUE_SHORT
from workers.rules.experiments import EXPERIMENTS, Experiment, present_id

log = logging.getLogger(__name__)
_LONGEST_NAME = 120
_AGAIN, _MOST_AGAIN = "~", 2  # at the end of a launch key
_TITLES = {
    "reward_plot": "Rewards",
    "rescore": "Rescoring",
    "canaries": "Canary pairs",
    "kl_reference": "Divergence",
    "sampler": "Sampler",
    "critic_fit": "Critic fit",
    "protocol": "Fixed protocol",
    "minimal": "Small repetition",
    "slower": "Smaller steps",
    "fewer_epochs": "Single passes",
    "fewer_passes": "One pass over the rows",
    "higher_kl": "Higher KL penalty",
    "more_entropy": "Paid entropy",
}


def check_launch(
    *,
    run: Run,
    experiment: str,
    user: User | None = None,
    key: str = "",
    step: int | None = None,
) -> Run:
    """Launch `experiment` (an id of workers.rules.experiments) about `run`; near `step`, where
    the problem is known to be there.

    The same `key` gives the run that it gave before, and while the same experiment about the same
    run is under way, that one is given. Raises `DomainError` saying what is missing and what to do;
    `Missing` for an experiment that there is not.
    """
    wanted = EXPERIMENTS.get(present_id(experiment))
    if wanted is None:
        raise Missing(f"There is no check '{experiment}'.", field="experiment")
    launch_key = _key(run, wanted, key)
    with transaction.atomic():
        run_locked(run.pk)  # two clicks at once are one launch
        known = Run.objects.filter(project=run.project, launch_key=launch_key).first()
        if known is not None:
            return known
        live = Run.objects.filter(about=run, state__in=Run.LIVE_STATES).order_by("-created_at")
        under_way = next((one for one in live if experiment_of(one) == wanted.id), None)
        if under_way is not None:
            return under_way
        made = _launch(RunOutputs(run, step), wanted, user, launch_key)
        audit_record(
            action="run.checked",
            actor=user,
            project=run.project,
            subject=run.pk,
            details={"experiment": wanted.id, "run": made.pk},
        )
    return made


def check_ended(run: Run) -> None:
    """Hear of a run that has ended. A check of a live run may have waited until what it was to read
    had made room for newer things; then it is launched again with those, twice at most."""
    if (
        run.kind == Run.Kind.CHECK
        and run.failure_kind == "damaged_input"
        and run.about_id is not None
        and run.launch_key.count(_AGAIN) < _MOST_AGAIN
    ):
        after_commit(_again, run_id=run.pk)


def _again(*, run_id: str) -> Run | None:
    """None where the run that it is about has ended: what that left stays, so it is damaged."""
    ended = Run.objects.select_related("about__project", "created_by").get(pk=run_id)
    about, wanted = ended.about, EXPERIMENTS.get(experiment_of(ended))
    if about is None or wanted is None or not about.is_live:
        return None
    left = RunOutputs(about, ended.config.get("step"))
    try:
        return _launch(left, wanted, ended.created_by, f"{ended.launch_key}{_AGAIN}")
    except DomainError as error:
        log.warning("check %s is not launched again: %s", run_id, error.message)
        return None


def check_results(run: Run) -> list[ExperimentState]:
    """Those experiments about `run` that were launched, in the order of the walkthrough."""
    return [one for one in experiment_states(run) if one.run is not None]


def _launch(left: RunOutputs, wanted: Experiment, user: User | None, launch_key: str) -> Run:
    run = left.run
    common: dict[str, Any] = {
        "name": _named(wanted, run),
        "seed": run.seed,
        "queue": QUEUE_SHORT,
        "about": run,
        "user": user,
        "idempotency_key": launch_key,
    }
    if wanted.check in REPEATS:
        config = repeated_config(left, wanted)
        if not config.get("minimal"):
            common["queue"] = run.queue  # it takes as long as a run
        return run_clone(
            run=run,
            config=config,
            override_reason=run.override_reason
            or f"To find what broke in {run.name}, as a minimal reproduction.",
            **common,
        )
    plan = left.plan(wanted)
    config = {name: value for name, value in plan.config.items() if value is not None}
    return run_launch(
        project=run.project, kind=Run.Kind.CHECK, config=config, inputs=plan.inputs, **common
    )


def _named(wanted: Experiment, run: Run) -> str:
    before = f"{_TITLES[wanted.id]} of "
    return f"{before}{run.name[: _LONGEST_NAME - len(before)]}"


def _key(run: Run, wanted: Experiment, key: str) -> str:
    """Says which experiment it is, for whoever reads the run again."""
    own = sha256(f"{run.pk}:{key}".encode()).hexdigest()[:32] if key else token_hex(16)
    return f"check:{wanted.id}:{own}"


__all__ = ["check_ended", "check_launch", "check_results", "experiment_states"]
