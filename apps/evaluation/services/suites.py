"""Evaluating every policy on one suite when its training has ended, where a project wants that.

A run that ends well is looked at after its commit, and by the scheduler where that was lost. The
launch and the row that says so are one transaction that holds the project's setting: a process that
is killed leaves neither, and no run is evaluated twice. An evaluation is no policy run, so nothing
follows from it. What is refused (quota, prompts the policy learned from, a used-up budget of looks)
is kept with its reason and not tried again by itself.
"""

import logging

from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Project, Role, User
from apps.accounts.services import audit_record, notice_give
from apps.common.errors import Conflict, DomainError, Missing
from apps.common.transactions import after_commit
from apps.evaluation.models import AutomaticSuite, SuiteLaunch
from apps.evaluation.selectors.suites import TRAINED, runs_awaiting
from apps.snapshots.models import Snapshot
from apps.snapshots.selectors.snapshots import snapshot_get
from apps.training.models import Checkpoint, Run
from apps.training.selectors import checkpoint_for_use
from apps.training.selectors.pages import checkpoint_get
from apps.training.services import run_launch
from apps.training.services.kinds import ANSWERING
from apps.training.services.launching import LONGEST_NAME
from workers.config import SettingsError, settings_for

log = logging.getLogger(__name__)
_MOST = 50  # launched by one beat
SEED = 0
# Checks need no reward; an evaluation has one, so it is a rule that costs nothing.
_REWARD = {
    "type": "rules",
    "rules": [{"name": "says_something", "characters": {"least": 1}, "score": 1.0, "penalty": 0.0}],
}


@transaction.atomic
def automatic_suite_set(
    *,
    project: Project,
    dataset_id: str,
    baseline_id: str,
    max_new_tokens: int = 256,
    temperature: float = 0.0,
    user: User,
) -> AutomaticSuite:
    """Evaluate every policy whose training ends from now on, on a suite against a baseline.

    max_new_tokens, temperature: of both models' answers, the same after every run, so that the
    results have one protocol. Raises `DomainError` naming the field; then nothing was changed.
    """
    dataset, baseline = _suite_checked(project, dataset_id), _baseline_checked(project, baseline_id)
    row, _ = AutomaticSuite.objects.select_for_update().get_or_create(project=project)
    row.dataset, row.baseline = dataset, baseline
    row.max_new_tokens, row.temperature = max_new_tokens, temperature
    try:
        settings_for("evaluate", suite_config(row), new=True)
    except SettingsError as error:
        named = next((name for name in _ASKED if error.errors[0].startswith(name)), "config")
        raise DomainError(error.errors[0], code="bad_config", field=named) from None
    row.since = row.since or timezone.now()
    row.set_by = user
    row.save()
    audit_record(
        action="suite.automatic_set",
        actor=user,
        project=project,
        subject=dataset.pk,
        details={"dataset": dataset.name, "baseline": f"{baseline.run.name}, step {baseline.step}"},
    )
    return row


_ASKED = ("max_new_tokens", "temperature")


@transaction.atomic
def automatic_suite_stop(*, project: Project, user: User) -> None:
    """Evaluate no further policy by itself. Evaluations under way go on."""
    row = AutomaticSuite.objects.select_for_update().filter(project=project).first()
    if row is None or row.since is None:
        return
    row.since = None
    row.save(update_fields=["since", "updated_at"])
    audit_record(action="suite.automatic_stopped", actor=user, project=project, subject=project.pk)


def _suite_checked(project: Project, dataset_id: str) -> Snapshot:
    try:
        dataset = snapshot_get(project=project, snapshot_id=dataset_id)
    except Missing as error:
        raise Missing(error.message, field="dataset") from None
    if dataset.kind != Snapshot.Kind.PROMPTS or not dataset.counts.get("checks"):
        raise DomainError(
            f"'{dataset.name}' has no prompts with checks, so it is no regression suite.",
            code="no_checks",
            field="dataset",
        )
    if dataset.state != Snapshot.State.FROZEN:
        raise Conflict(
            f"The dataset is {dataset.state}.", code="snapshot_not_frozen", field="dataset"
        )
    return dataset


def _baseline_checked(project: Project, baseline_id: str) -> Checkpoint:
    try:
        baseline = checkpoint_get(project=project, checkpoint_id=baseline_id)
    except Missing as error:
        raise Missing(error.message, field="baseline") from None
    if baseline.run.kind not in ANSWERING:
        raise DomainError(
            "A baseline answers prompts: choose a policy.", code="wrong_kind", field="baseline"
        )
    if baseline.files_removed_at is not None:
        raise Conflict("Its files were removed.", code="files_removed", field="baseline")
    return baseline


def suite_config(row: AutomaticSuite) -> dict[str, object]:
    """Of the evaluations that it launches: every prompt with a check, the same sampling each
    time, no timing."""
    n = (row.dataset.counts.get("rows") or {}) if row.dataset else {}
    return {
        "reward": _REWARD,
        "max_prompts": max(1, sum(n.values())),
        "max_new_tokens": row.max_new_tokens,
        "temperature": row.temperature,
        "latency_requests": 0,
    }


def policy_ended(run: Run) -> None:
    """A listener of ended runs, inside their transaction."""
    if run.kind in TRAINED and run.state == Run.State.FINISHED:
        after_commit(suite_launch, run_id=run.pk)


def suites_launch() -> int:
    """The scheduler's: policy runs whose end was heard of and not acted on. How many were launched
    or refused."""
    done = 0
    for row in AutomaticSuite.objects.filter(since__isnull=False, project__archived_at=None):
        assert row.since is not None  # noqa: S101 — as asked for
        waiting = runs_awaiting(row.project_id, row.since).order_by("ended_at")
        for run_id in list(waiting.values_list("pk", flat=True)[: _MOST - done]):
            try:
                done += suite_launch(run_id=run_id) is not None
            except Exception:
                log.exception("the suite after run %s", run_id)  # the next beat tries again
    return done


@transaction.atomic
def suite_launch(*, run_id: str) -> SuiteLaunch | None:
    """Launch the evaluation that the project's setting asks for after this run, once. None where
    there is nothing to do."""
    run = Run.objects.select_related("project").get(pk=run_id)
    row = (
        AutomaticSuite.objects.select_for_update(of=("self",))
        .select_related("dataset", "baseline__run")
        .filter(project=run.project_id, since__isnull=False, project__archived_at=None)
        .first()
    )
    if row is None or row.since is None:
        return None
    if not runs_awaiting(row.project_id, row.since).filter(pk=run.pk).exists():
        return None
    return _launch(row, run, user=None)


@transaction.atomic
def suite_try_again(*, project: Project, run_id: str, user: User) -> SuiteLaunch:
    """Launch what was refused after a run, now that the reason may be gone. Raises what the launch
    raises, and `Missing` where nothing was refused."""
    row = (
        AutomaticSuite.objects.select_for_update(of=("self",))
        .select_related("dataset", "baseline__run")
        .filter(project=project, since__isnull=False)
        .first()
    )
    refused = SuiteLaunch.objects.select_related("run__project").filter(
        project=project, run=run_id.replace("\x00", ""), evaluation=None
    )
    found = refused.first()
    if row is None or found is None:
        raise Missing("Nothing was refused after such a run.", field="run")
    evaluation = _evaluate(row, found.run, user=user)
    found.evaluation, found.code, found.problem = evaluation, "", ""
    found.save()
    return found


def _launch(row: AutomaticSuite, run: Run, *, user: User | None) -> SuiteLaunch:
    try:
        with transaction.atomic():
            evaluation = _evaluate(row, run, user=user)
    except DomainError as error:
        made = SuiteLaunch.objects.create(
            run=run, project=run.project, code=error.code[:60], problem=error.message
        )
        audit_record(
            action="suite.refused",
            actor=None,
            project=run.project,
            subject=run.pk,
            details={"reason": error.message[:500]},
        )
        notice_give(
            project=run.project,
            roles=(Role.ENGINEER, Role.ADMIN),
            kind="suite.refused",
            text=f"{run.name} was not evaluated on the suite: {error.message}"[:500],
            path=reverse("evaluation:automatic_suite", args=[run.project.slug]),
        )
        return made
    return SuiteLaunch.objects.create(run=run, project=run.project, evaluation=evaluation)


def _evaluate(row: AutomaticSuite, run: Run, *, user: User | None) -> Run:
    if row.dataset is None or row.baseline is None:
        raise Conflict(
            "The suite's dataset or its baseline was deleted: choose another.", code="setting_gone"
        )
    model = checkpoint_for_use(run)
    if model is None:
        raise Conflict("The run left no model.", code="no_model")
    after = ", regression suite"
    return run_launch(
        project=run.project,
        kind=Run.Kind.EVALUATE,
        name=f"{run.name[: LONGEST_NAME - len(after)]}{after}",
        config=suite_config(row),
        inputs={"policy": model, "sft": row.baseline, "prompts": row.dataset},
        seed=SEED,
        queue=run.queue,
        user=user,
        idempotency_key=f"suite:{run.pk}",
    )
