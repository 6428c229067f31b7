"""Starting runs."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Unprocessable
from apps.common.json_limits import json_check, storable
from apps.common.numbers import filesize
from apps.labeling.selectors import settings_get
from apps.snapshots.models import Snapshot
from apps.training.models import Artifact, Checkpoint, Run, RunAttempt, RunInput
from apps.training.selectors.estimates import Estimate, run_estimate
from apps.training.selectors.queueing import nobody_runs_code, reward_functions
from apps.training.selectors.space import space_used
from apps.training.services.attempts import run_dispatch
from apps.training.services.constitution import constitution_applied
from apps.training.services.held_out import judge_check, prompts_check
from apps.training.services.kinds import (
    KEEP_LITTLE,
    KINDS,
    SHORT,
    Input,
    approval_check,
    inputs_check,
    models_hold,
    precision_check,
    reads_model,
    run_inputs,
)
from apps.training.services.layouts import launcher_of, needs_check, needs_of
from apps.training.services.looks import launch_looks_check
from apps.training.services.points import context_check
from workers.config import SettingsError, as_trained, recipe_config, settings_for
from workers.config.inference import refused_option
from workers.config.rewards import CODE, functions_named, verifiers_by
from workers.contract.code_version import code_version
from workers.contract.jobs import NOT_ALLOWED, ONE, may_be_named
from workers.contract.wire import JOB_QUEUES, QUEUE_CPU, QUEUE_SHORT

LONGEST_NAME = 120
_LONGEST_KEY = 80
_LONGEST_REASON = 500
SEED_LIMIT = 2**63


def run_launch(
    *,
    project: Project,
    kind: str,
    name: str,
    config: Mapping[str, Any],
    inputs: Mapping[str, Input],
    seed: int = 0,
    queue: str = QUEUE_CPU,
    layout: str = ONE,
    processes: int = 1,
    launcher: str = "",
    priority: int = Run.Priority.NORMAL,
    user: User | None = None,
    idempotency_key: str = "",
    override_reason: str = "",
    group: str = "",
    about: Run | None = None,
    copied_from: str = "",
) -> Run:
    """Store a run and dispatch it on commit; with an unfinished run among its inputs it waits.

    `inputs` maps roles to snapshots, checkpoints, files of runs, or runs (whose final, best or last
    checkpoint will be used). The same `idempotency_key` in a project gives the run it gave before.
    The recipe's own configuration is checked where the recipe lives: a bad one fails the run at
    once. A run that optimises against a reward model which nobody approved needs an
    `override_reason`, which is kept with it and in the audit log. `group` is shared by runs that
    differ in their seed only; `runs_launch` makes such groups. `about` is the run whose problem
    this one looks into; `copied_from` another project whose model it copies. Checks and probes
    go to the queue `short`, whatever is given.

    `queue`, `layout`, `processes` and `launcher` are what the run needs (see `layouts`); without a
    launcher it is the one that goes with the layout. `priority` orders it among those that wait
    for a slot of its machine class.

    Raises `DomainError` naming the field; then nothing was stored.
    """
    name, override_reason = storable(name.strip()), storable(override_reason)
    idempotency_key = storable(idempotency_key)
    if kind == Run.Kind.GENERATE and isinstance(config, Mapping):
        config = constitution_applied(project=project, config=config)
    _check_plain(kind, name, config, seed, queue, idempotency_key)
    launcher = launcher or launcher_of(layout)
    needs_check(kind=kind, layout=layout, processes=processes, launcher=launcher, priority=priority)
    if len(override_reason) > _LONGEST_REASON:
        raise DomainError(
            f"The reason is longer than {_LONGEST_REASON} characters.",
            code="bad_reason",
            field="override_reason",
        )
    known = Run.objects.filter(project=project, launch_key=idempotency_key)
    if idempotency_key and (run := known.first()) is not None:
        return run  # whatever has become of its inputs since
    if kind == Run.Kind.GENERATE:
        _check_votes(project, recipe_config(kind, config).get("votes_each"))
    inputs_check(
        project_id=project.pk, kind=kind, config=config, inputs=inputs, copied_from=copied_from
    )
    judge_check(project_id=project.pk, kind=kind, inputs=inputs)
    prompts_check(kind=kind, inputs=inputs)
    precision_check(kind=kind, config=recipe_config(kind, config), inputs=inputs)
    if about is not None and about.project_id != project.pk:
        raise DomainError(
            "There is no such run in this project.", code="unknown_run", field="about"
        )
    override_reason = override_reason.strip()
    approval_check(kind=kind, inputs=inputs, override_reason=override_reason)
    row = Run(
        project=project,
        kind=kind,
        name=name,
        state=Run.State.WAITING,
        config=storable(dict(config)),
        seed=seed,
        queue=QUEUE_SHORT if kind in SHORT else queue,
        layout=layout,
        processes=processes,
        launcher=launcher,
        priority=priority,
        code_version=code_version(),
        created_by=user,
        launch_key=idempotency_key,
        override_reason=override_reason,
        group=group,
        about=about,
    )
    context_check(run=row, inputs=inputs)
    _check_space(project, kind)
    try:
        with transaction.atomic():
            return _store(row, inputs)
    except IntegrityError:
        # The other click of a double click was faster.
        if idempotency_key and (run := known.first()) is not None:
            return run
        raise


def launch_estimate(
    *,
    project: Project,
    kind: str,
    config: Mapping[str, Any],
    inputs: Mapping[str, Input],
    queue: str = QUEUE_CPU,
    layout: str = ONE,
    processes: int = 1,
) -> Estimate:
    """What one run would take, by finished runs like it. Raises `DomainError` for a kind or a
    setting that a launch would refuse."""
    _check_kind(kind)
    _check_settings(kind, config)
    return run_estimate(
        project=project,
        kind=kind,
        config=config,
        inputs=inputs,
        queue=queue,
        layout=layout,
        processes=processes,
    )


def run_clone(
    *,
    run: Run,
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
    seed: int | None = None,
    queue: str = "",
    layout: str = "",
    processes: int | None = None,
    launcher: str = "",
    priority: int | None = None,
    about: Run | None = None,
    user: User | None = None,
    idempotency_key: str = "",
    override_reason: str | None = None,
) -> Run:
    """A new run like `run`, with the same inputs; what is given replaces what it had. A new layout
    without a launcher or a number of processes takes those that go with it."""
    return run_launch(
        project=run.project,
        kind=run.kind,
        name=f"{run.name} (copy)"[:LONGEST_NAME] if name is None else name,
        config=as_trained(run.kind, run.config if config is None else config),
        inputs=run_inputs(run),
        seed=run.seed if seed is None else seed,
        queue=queue or run.queue,
        **needs_of(run, layout=layout, processes=processes, launcher=launcher),
        priority=run.priority if priority is None else priority,
        about=about or run.about,
        user=user,
        idempotency_key=idempotency_key,
        override_reason=run.override_reason if override_reason is None else override_reason,
    )


def reward_try(
    *,
    project: Project,
    reward: Mapping[str, Any],
    answers: Sequence[Mapping[str, str]],
    inputs: Mapping[str, Input],
    user: User | None = None,
) -> Run:
    """A check that scores `answers` ({prompt, response, answer}), or without any five of the input
    `prompts`. Of `inputs` it takes what the reward and the answers need."""
    wanted = {"reward"} if reads_model(reward) else set()
    wanted |= set() if answers else {"prompts"}
    return run_launch(
        project=project,
        kind=Run.Kind.CHECK,
        name="Reward tried on answers",
        config={"check": "answers", "reward": reward, "answers": [dict(one) for one in answers]},
        inputs={role: given for role, given in inputs.items() if role in wanted},
        user=user,
    )


def _store(run: Run, inputs: Mapping[str, Input]) -> Run:
    launch_looks_check(run=run, inputs=inputs)
    run.save(force_insert=True)
    models_hold([given.pk for given in inputs.values() if isinstance(given, Checkpoint)])
    for role, given in inputs.items():
        RunInput.objects.create(
            run=run,
            role=role,
            snapshot=given if isinstance(given, Snapshot) else None,
            checkpoint=given if isinstance(given, Checkpoint) else None,
            upstream=given if isinstance(given, Run) else None,
            artifact=given if isinstance(given, Artifact) else None,
        )
    details: dict[str, Any] = {"kind": run.kind, "name": run.name}
    if run.about_id:
        details["about"] = run.about_id
    if run.override_reason:
        details["override_reason"] = run.override_reason
    if run.layout != ONE:
        details |= {"layout": run.layout, "processes": run.processes}
    if run.priority != Run.Priority.NORMAL:
        details["priority"] = run.get_priority_display()
    if run.group:
        details |= {"group": run.group, "seed": run.seed}
    audit_record(
        action="run.launched",
        actor=run.created_by,
        project=run.project,
        subject=run.pk,
        details=details,
    )
    run_dispatch(run=run, cause=RunAttempt.Cause.LAUNCH)
    return run


def _check_votes(project: Project, votes: int | None) -> None:
    most = settings_get(project=project).max_overlap
    if votes is not None and votes > most:
        raise Unprocessable(
            f"votes_each: must be at most {most}, the most votes that a comparison may get here",
            code="bad_config",
            field="config.votes_each",
        )


def _check_space(project: Project, kind: str) -> None:
    """Of a launch alone: what has begun is never stopped by a quota, and may be resumed."""
    space = space_used(project) if kind not in KEEP_LITTLE else None
    if space is not None and space.is_full:
        raise Conflict(
            f"This project keeps {filesize(space.used)} of the {filesize(space.quota)} that its "
            "quota of disk space allows, so nothing that keeps files is launched. Remove what is "
            "not needed, or ask an admin of the project for more.",
            code="space_quota_used",
        )


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise DomainError(
            f"There is no kind of run '{kind}'; there are: {', '.join(KINDS)}.",
            code="unknown_kind",
            field="kind",
        )


def _check_plain(
    kind: str, name: str, config: Mapping[str, Any], seed: int, queue: str, key: str
) -> None:
    _check_kind(kind)
    if not name or len(name) > LONGEST_NAME:
        raise DomainError(
            f"A run needs a name of 1 to {LONGEST_NAME} characters.",
            code="bad_name",
            field="name",
        )
    if not isinstance(config, Mapping):
        raise DomainError(
            "The configuration must be an object of names and values.",
            code="bad_config",
            field="config",
        )
    json_check(dict(config), field="config")
    try:
        json.dumps(dict(config), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DomainError(
            f"The configuration is not JSON: {error}.", code="bad_config", field="config"
        ) from error
    _check_settings(kind, config)
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < SEED_LIMIT:
        raise DomainError(
            "The seed must be a whole number from 0 to 2⁶³ − 1.", code="bad_seed", field="seed"
        )
    if queue not in JOB_QUEUES:
        raise DomainError(
            f"There is no queue '{queue}'; there are: {', '.join(JOB_QUEUES)}.",
            code="unknown_queue",
            field="queue",
        )
    if len(key) > _LONGEST_KEY:
        raise DomainError(
            f"The idempotency key is longer than {_LONGEST_KEY} characters.",
            code="bad_key",
            field="idempotency_key",
        )


def _check_settings(kind: str, config: Mapping[str, Any]) -> None:
    if (refused := refused_option(kind, config)) is not None:
        raise Unprocessable(
            f"{refused}: is for tests alone, and this is no machine of tests.",
            code="only_in_tests",
            field=f"config.{refused}",
        )
    for setting in ("base_model", "model", "adapter", "tokenizer"):
        named = config.get(setting)
        if kind == "served" and setting == "model":
            continue  # what its server calls it
        if isinstance(named, str) and named and not may_be_named(named):
            raise Unprocessable(
                f"{setting}: {NOT_ALLOWED}.", code="model_not_allowed", field=f"config.{setting}"
            )
    try:
        settings_for(kind, config, new=True)
    except SettingsError as error:
        path = re.split(r"[.\[:]", error.errors[0])[0]
        raise Unprocessable(
            error.message, code="bad_config", field=f"config.{path}", details=error.errors
        ) from None
    _check_rewards(recipe_config(kind, config))


def _check_rewards(config: Mapping[str, Any]) -> None:
    """What a reward needs of a worker and none has: it would fail there, after the wait for it."""
    rewards = {
        name: given
        for name in ("reward", "verifier", "filter")
        if isinstance(given := config.get(name), Mapping)
    }
    codes = [
        (name, path) for name, given in rewards.items() for path in verifiers_by(CODE, given, name)
    ]
    if codes and nobody_runs_code():
        told = [
            f"{path}: no worker that was heard runs the code of answers. Whoever runs one sets "
            "CODE_VERIFIER=1 there, after reading docs/security.md"
            for _, path in codes
        ]
        raise Unprocessable(
            told[0], code="no_code_verifier", field=f"config.{codes[0][0]}", details=told
        )
    named = [
        (name, *found) for name, given in rewards.items() for found in functions_named(given, name)
    ]
    known = reward_functions() if named else set()
    if missing := [one for one in named if one[2] not in known]:
        listed = ", ".join(sorted(known)) or "none"
        told = [
            f"{path}: no worker that was heard, nor this machine, has a reward function "
            f"'{function}' installed (there are: {listed})"
            for _, path, function in missing
        ]
        raise Unprocessable(
            told[0], code="no_function", field=f"config.{missing[0][0]}", details=told
        )
