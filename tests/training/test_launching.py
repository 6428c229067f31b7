"""Launching: what is wrong is named before a run exists; what is right is sent once."""

import subprocess
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.training import services
from apps.training.models import Checkpoint, Run, RunAttempt, RunInput
from apps.training.services.kinds import KINDS
from tests.labeling.pairs import pairs_make
from tests.training.conftest import FakeWire
from tests.training.reports import report, saved
from workers.artifacts import Store, StoreUnreachable
from workers.config import as_trained
from workers.contract import Failed, Finished, Opened, spec_from_json
from workers.contract import code_version as code

OPENED = Opened()


@pytest.fixture
def launch(project: Project, wire: FakeWire, artifacts: Path) -> Callable[..., Run]:
    def make(**changes: Any) -> Run:
        given = {"kind": "drill", "name": "one", "config": {}, "inputs": {}, "seed": 3}
        given |= changes
        if isinstance(given["config"], dict):  # what else a launch must say is not the point here
            given["config"] = as_trained(given["kind"], given["config"])
        return services.run_launch(**{"project": project} | given)

    return make


def finished(run: Run, *tags: str) -> Checkpoint:
    """`run`, finished with one checkpoint that holds `tags`."""
    report(run, OPENED, saved(9, *tags, sha256=f"{run.pk:0>64}"), Finished(step=9))
    return Checkpoint.objects.get(run=run)


def model(project: Project, kind: str) -> Checkpoint:
    run = Run.objects.create(project=project, name=f"a {kind}", kind=kind, attempt=1)
    RunAttempt.objects.create(run=run, number=1)
    return finished(run, "final")


def test_a_launched_run_is_stored_and_sent_once_it_is_committed(
    launch: Callable[..., Run], wire: FakeWire, commits: Callable[..., Any], emil: User
) -> None:
    with commits():
        run = launch(config={"steps": 7}, seed=11, queue="gpu", user=emil)
        assert wire.jobs == []
    run.refresh_from_db()
    (job,) = wire.jobs
    spec = spec_from_json(job)
    assert (spec.run, spec.attempt, spec.kind, spec.queue) == (run.pk, 1, "drill", "gpu")
    assert (spec.config, spec.seed, spec.resume) == ({"steps": 7}, 11, None)
    assert spec.code_version == run.code_version != ""
    assert RunAttempt.objects.get(run=run).spec | {"secret": job["secret"]} == job
    assert (run.state, run.created_by) == ("queued", emil)
    assert run.dispatched_at is not None
    assert AuditEvent.objects.get(action="run.launched").subject == run.pk


def test_the_limits_of_a_job_are_settings(launch: Callable[..., Run], settings: Settings) -> None:
    settings.RUN_LEASE_SECONDS, settings.RUN_GRACE_SECONDS = 12, 3
    settings.RUN_MAX_SECONDS, settings.RUN_STOP_SECONDS = 60, 50
    limits = RunAttempt.objects.get(run=launch()).spec["limits"]
    assert limits == {"lease_s": 12, "grace_s": 3, "stop_s": 50, "max_s": 60}


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"kind": "magic"}, "kind", "unknown_kind"),
        ({"name": "  "}, "name", "bad_name"),
        ({"name": "n" * 121}, "name", "bad_name"),
        ({"config": [1]}, "config", "bad_config"),
        ({"config": None}, "config", "bad_config"),
        ({"config": {"lr": float("nan")}}, "config", "bad_config"),
        ({"config": {"path": Path("x")}}, "config", "bad_config"),
        ({"seed": -1}, "seed", "bad_seed"),
        ({"seed": 2**63}, "seed", "bad_seed"),
        ({"seed": True}, "seed", "bad_seed"),
        ({"seed": "3"}, "seed", "bad_seed"),
        ({"queue": "moon"}, "queue", "unknown_queue"),
        ({"idempotency_key": "k" * 81}, "idempotency_key", "bad_key"),
        ({"inputs": {"judge": None}}, "inputs.judge", "unknown_input"),
        ({"inputs": {"base": "abc"}}, "inputs.base", "wrong_input"),
        ({"kind": "sft"}, "inputs.data", "missing_input"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_stored(
    launch: Callable[..., Run], changes: dict[str, Any], field: str, code: str
) -> None:
    with pytest.raises(DomainError) as refusal:
        launch(**changes)
    assert (refusal.value.field, refusal.value.code) == (field, code)
    assert len(refusal.value.message) > 20
    assert not Run.objects.exists()


def test_every_kind_of_run_has_its_rule() -> None:
    assert {*KINDS, "imported"} == set(Run.Kind), "an imported run reads nothing"


@pytest.mark.parametrize(
    "kind",
    # What a check needs depends on its question: tests/training/test_checks.py.
    [kind for kind, rule in KINDS.items() if rule.needs and kind != "check"],
)
def test_each_needed_input_is_missed_by_name(
    launch: Callable[..., Run], project: Project, kind: str, snapshot_make: Callable[..., Snapshot]
) -> None:
    things: dict[str, Any] = {}
    for role, allowed in KINDS[kind].roles.items():
        if allowed.snapshots:
            things[role] = snapshot_make(sorted(allowed.snapshots)[0])
        else:
            things[role] = model(project, sorted(allowed.models)[0])
    count = Run.objects.count()
    config = {"repo": "we/ours"} if kind == "push" else {}
    launch(kind=kind, inputs=things, config=config, override_reason="the inputs are the point")
    for need in KINDS[kind].needs:
        rest = {role: thing for role, thing in things.items() if role not in need.roles}
        with pytest.raises(DomainError) as refusal:
            launch(kind=kind, inputs=rest, config=config)
        assert refusal.value.code == "missing_input"
        assert refusal.value.field == f"inputs.{need.roles[0]}"
    assert Run.objects.count() == count + 1


@pytest.mark.parametrize(("kind", "reason"), [("ppo", ""), ("ppo", "   "), ("grpo", "")])
def test_training_against_a_reward_model_that_nobody_approved_needs_a_reason(
    launch: Callable[..., Run],
    project: Project,
    snapshot_make: Callable[..., Snapshot],
    kind: str,
    reason: str,
) -> None:
    reward = model(project, "reward")
    inputs = {
        "prompts": snapshot_make("prompts"),
        "sft": model(project, "sft"),
        "reward": reward,
    }
    with pytest.raises(DomainError) as refusal:
        launch(kind=kind, inputs=inputs, override_reason=reason)
    assert (refusal.value.code, refusal.value.field) == ("reward_not_approved", "override_reason")
    run = launch(kind=kind, inputs=inputs, override_reason=" It is a drill. ")
    assert run.override_reason == "It is a drill."
    event = AuditEvent.objects.get(action="run.launched", subject=run.pk)
    assert event.details["override_reason"] == "It is a drill."
    reward.status = "approved"
    reward.save()
    assert launch(kind=kind, inputs=inputs).override_reason == ""
    reward.status = "retired"
    reward.save()
    with pytest.raises(DomainError) as refusal:
        launch(kind=kind, inputs=inputs, override_reason="all the same")
    assert refusal.value.code == "checkpoint_retired"


def test_a_base_model_by_name_replaces_the_checkpoint_of_a_reward_run(
    launch: Callable[..., Run], snapshot_make: Callable[..., Snapshot]
) -> None:
    data = {"data": snapshot_make("preferences")}
    launch(kind="reward", config={"base_model": "org/model"}, inputs=data)
    with pytest.raises(DomainError, match="'sft' or 'base'"):
        launch(kind="reward", config={"base_model": None}, inputs=data)


def test_a_rule_for_the_reward_replaces_the_reward_model(
    launch: Callable[..., Run], project: Project, snapshot_make: Callable[..., Snapshot]
) -> None:
    inputs = {"prompts": snapshot_make("prompts"), "sft": model(project, "sft")}
    rule = {"type": "token_count", "token": "a"}
    parts = [{"name": "rule", "source": rule}, {"name": "model", "source": {"type": "model"}}]
    launch(kind="ppo", config={"reward": rule}, inputs=inputs)
    launch(kind="grpo", config={"reward": {"type": "sum", "parts": parts[:1]}}, inputs=inputs)
    for reward in ({"type": "model"}, {"type": "sum", "parts": parts}):
        with pytest.raises(DomainError, match="'reward'"):
            launch(kind="grpo", config={"reward": reward}, inputs=inputs)


def test_a_small_model_is_built_from_the_data_only_where_that_was_asked_for(
    launch: Callable[..., Run], project: Project, snapshot_make: Callable[..., Snapshot]
) -> None:
    data = {"data": snapshot_make("demonstrations")}
    for config in ({}, {"toy": False}, {"preset": "pretrained"}, {"preset": "demo", "toy": False}):
        with pytest.raises(DomainError, match="'toy'") as refusal:
            launch(kind="sft", config=config, inputs=data)
        assert (refusal.value.field, refusal.value.code) == ("inputs.base", "missing_input")
    launch(kind="sft", config={"toy": True}, inputs=data)
    launch(kind="sft", config={"preset": "demo"}, inputs=data)
    launch(kind="sft", inputs=data | {"base": model(project, "sft")})


def test_a_snapshot_of_the_wrong_kind_is_refused(
    launch: Callable[..., Run], snapshot_make: Callable[..., Snapshot]
) -> None:
    with pytest.raises(DomainError, match="of prompts") as refusal:
        launch(kind="sft", inputs={"data": snapshot_make("prompts")})
    assert refusal.value.field == "inputs.data"


@pytest.mark.parametrize("state", ["draft", "failed"])
def test_a_snapshot_that_is_not_frozen_is_refused(
    launch: Callable[..., Run], snapshot_make: Callable[..., Snapshot], state: str
) -> None:
    with pytest.raises(Conflict, match=f"is {state}; only a frozen one"):
        launch(kind="sft", inputs={"data": snapshot_make("demonstrations", state)})


def test_what_belongs_to_another_project_does_not_exist_here(
    launch: Callable[..., Run], snapshot_make: Callable[..., Snapshot]
) -> None:
    elsewhere = Project.objects.create(slug="elsewhere", name="Elsewhere")
    theirs = snapshot_make("demonstrations", in_project=elsewhere)
    with pytest.raises(DomainError, match="no such thing"):
        launch(kind="sft", inputs={"data": theirs})
    for thing in (model(elsewhere, "drill"), model(elsewhere, "drill").run):
        with pytest.raises(DomainError, match="no such thing"):
            launch(inputs={"base": thing})


def test_a_model_of_the_wrong_kind_is_refused(
    launch: Callable[..., Run], project: Project, snapshot_make: Callable[..., Snapshot]
) -> None:
    inputs = {"data": snapshot_make("preferences"), "sft": model(project, "reward")}
    with pytest.raises(DomainError, match="not a reward run's") as refusal:
        launch(kind="dpo", inputs=inputs)
    assert refusal.value.field == "inputs.sft"


def test_a_rejected_checkpoint_is_refused(launch: Callable[..., Run], project: Project) -> None:
    checkpoint = model(project, "drill")
    checkpoint.status = "rejected"
    with pytest.raises(Conflict, match="was rejected"):
        launch(inputs={"base": checkpoint})


def test_a_double_click_launches_once(
    launch: Callable[..., Run], wire: FakeWire, commits: Callable[..., Any]
) -> None:
    with commits():
        first = launch(idempotency_key="form-1")
        assert launch(idempotency_key="form-1") == first
    assert launch(idempotency_key="form-2") != first
    assert launch() != launch(), "without a key every launch is one"
    assert len(wire.jobs) == 1


def test_the_same_key_gives_its_run_though_an_input_has_failed_since(
    launch: Callable[..., Run],
) -> None:
    base = launch()
    run = launch(inputs={"base": base}, idempotency_key="form")
    report(base, OPENED, Failed("killed", "machine", "It is gone."))
    base.refresh_from_db()
    assert base.state == "failed"
    assert launch(inputs={"base": base}, idempotency_key="form") == run
    with pytest.raises(DomainError):
        launch(inputs={"base": base}, idempotency_key="another")


@pytest.mark.django_db(transaction=True)
def test_clicks_at_the_same_moment_launch_once(launch: Callable[..., Run], wire: FakeWire) -> None:
    gate = threading.Barrier(6)
    runs: list[str] = []

    def click() -> None:
        try:
            gate.wait()
            runs.append(launch(idempotency_key="form").pk)
        finally:
            connection.close()

    threads = [threading.Thread(target=click) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs) == 6
    assert len(set(runs)) == len(wire.jobs) == Run.objects.count() == 1


def test_a_key_counts_within_its_project(launch: Callable[..., Run]) -> None:
    elsewhere = Project.objects.create(slug="elsewhere", name="Elsewhere")
    assert launch(idempotency_key="k") != launch(idempotency_key="k", project=elsewhere)


# --- runs that wait for others ---


def test_a_run_on_an_unfinished_one_waits_and_is_sent_when_that_finishes(
    launch: Callable[..., Run], wire: FakeWire, commits: Callable[..., Any]
) -> None:
    first = launch()
    second = launch(inputs={"base": first})
    third = launch(inputs={"base": second})
    assert (second.state, second.attempt, third.state) == ("waiting", 0, "waiting")
    with commits():
        checkpoint = finished(first, "final")
    second.refresh_from_db()
    third.refresh_from_db()
    assert (second.state, second.attempt, third.state) == ("queued", 1, "waiting")
    (given,) = spec_from_json(wire.jobs[-1]).inputs
    assert (given.id, given.uri, given.sha256) == (
        checkpoint.pk,
        checkpoint.uri,
        checkpoint.sha256,
    )
    assert RunInput.objects.get(run=second).checkpoint == checkpoint


@pytest.mark.parametrize(
    ("tags", "chosen"),
    [
        ([["last"], ["best"], ["final", "last"]], 3),
        ([["best"], ["last"]], 1),
        ([["last"], ["failed"]], 1),
        ([["best"], ["failed"], ["last"]], 1),
    ],
)
def test_the_final_model_is_used_else_the_best_else_the_last(
    launch: Callable[..., Run], tags: list[list[str]], chosen: int
) -> None:
    first = launch()
    second = launch(inputs={"base": first})
    events = [saved(step, *held) for step, held in enumerate(tags, 1)]
    report(first, OPENED, *events, Finished(step=9))
    assert RunInput.objects.get(run=second).checkpoint.step == chosen


def test_a_finished_run_without_a_checkpoint_fails_those_that_wait_for_it(
    launch: Callable[..., Run],
) -> None:
    first = launch()
    second = launch(inputs={"base": first})
    report(first, OPENED, Finished(step=1))
    second.refresh_from_db()
    assert (second.state, second.failure_kind) == ("failed", "upstream_failed")
    assert "finished without a checkpoint" in second.failure_message


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_a_run_that_fails_or_is_cancelled_takes_the_ones_behind_it_along(
    launch: Callable[..., Run], how: str
) -> None:
    first = launch(name="the first")
    second = launch(inputs={"base": first})
    third = launch(inputs={"base": second})
    if how == "failed":
        report(first, OPENED, Failed("bad_config", "configuration", "no"))
    else:
        first.attempts.all().delete()
        Run.objects.filter(pk=first.pk).update(state="waiting")
        services.run_cancel(run=first)
    for run in (second, third):
        run.refresh_from_db()
        assert (run.state, run.failure_kind) == ("failed", "upstream_failed")
    assert f"'the first' ({first.pk})" in second.failure_message
    assert f"is {how}" in second.failure_message
    with pytest.raises(Conflict, match="that one first"):
        services.run_resume(run=third)


def test_a_run_on_a_failed_one_is_refused(launch: Callable[..., Run]) -> None:
    first = launch()
    report(first, OPENED, Failed("bad_config", "configuration", "no"))
    with pytest.raises(Conflict, match="failed") as refusal:
        launch(inputs={"base": first})
    assert refusal.value.code == "upstream_failed"


def test_a_run_with_two_inputs_waits_for_both(
    launch: Callable[..., Run], project: Project, snapshot_make: Callable[..., Snapshot]
) -> None:
    sft = Run.objects.create(project=project, name="s", kind="sft", attempt=1)
    reward = Run.objects.create(project=project, name="r", kind="reward", attempt=1)
    for run in (sft, reward):
        RunAttempt.objects.create(run=run, number=1)
    inputs = {"prompts": snapshot_make("prompts"), "sft": sft, "reward": reward}
    ppo = launch(kind="ppo", inputs=inputs, override_reason="the waiting is the point")
    finished(sft, "final")
    ppo.refresh_from_db()
    assert ppo.state == "waiting"
    finished(reward, "best")
    ppo.refresh_from_db()
    assert ppo.state == "queued"
    assert [ref["role"] for ref in ppo.attempts.get().spec["inputs"]] == [
        "prompts",
        "reward",
        "sft",
    ]


# --- attempts ---


def keep(run: Run, step: int) -> Any:
    """A CheckpointSaved whose files really lie in the store."""
    store = Store(run.attempts.last().spec["artifacts_url"])
    uri = f"runs/{run.pk}/attempt-{run.attempt}/checkpoints/step-{step}"
    store.write_bytes(f"{uri}/state.json", str(step).encode())
    digest = store.write_bytes(f"{uri}/manifest.json", f"manifest of {step}".encode())
    return saved(step, "last", uri=uri, sha256=digest)


KILLED = Failed("killed", "machine", "It was killed.", retryable=True)


def test_the_next_attempt_resumes_from_the_last_checkpoint(launch: Callable[..., Run]) -> None:
    run = launch()
    report(run, OPENED, keep(run, 5), keep(run, 10), KILLED)
    second = run.attempts.get(number=2)
    assert second.resumed_from_step == second.spec["resume"]["step"] == run.step == 10
    assert second.cause == "retry"


def test_a_damaged_or_missing_checkpoint_is_passed_over(
    launch: Callable[..., Run], artifacts: Path
) -> None:
    run = launch()
    events = [keep(run, step) for step in (5, 10, 15)]
    (artifacts / events[2].uri / "manifest.json").write_text("torn")
    (artifacts / events[1].uri / "manifest.json").unlink()
    report(run, OPENED, *events, KILLED)
    assert run.attempts.get(number=2).resumed_from_step == 5


def test_a_store_that_does_not_answer_makes_no_run_start_over(
    launch: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer checks what it continues from, and fails as `store_unreachable` itself."""
    run = launch()
    events = [keep(run, step) for step in (5, 10)]

    def away(store: Store, relative: str, mode: str = "rb") -> Any:
        raise StoreUnreachable(f"the artifact store failed at '{relative}': no route to host")

    monkeypatch.setattr(Store, "open", away)
    unreachable = Failed("store_unreachable", "machine", "It is away.", retryable=True)
    report(run, OPENED, *events, unreachable)
    assert run.attempts.get(number=2).resumed_from_step == 10


def test_a_checkpoint_of_a_failed_state_is_not_resumed_from(launch: Callable[..., Run]) -> None:
    run = launch()
    bad = keep(run, 8)
    bad.tags[:] = ["failed"]
    report(run, OPENED, keep(run, 5), bad, KILLED)
    assert run.attempts.get(number=2).resumed_from_step == 5


def test_without_any_checkpoint_the_next_attempt_starts_over(launch: Callable[..., Run]) -> None:
    run = launch()
    report(run, OPENED, KILLED)
    second = run.attempts.get(number=2)
    assert (second.resumed_from_step, second.spec["resume"]) == (None, None)


def test_a_clone_has_the_same_inputs_and_what_is_changed(
    launch: Callable[..., Run], project: Project, emil: User
) -> None:
    base = model(project, "drill")
    run = launch(config={"steps": 5}, inputs={"base": base}, seed=4, queue="gpu")
    copy = services.run_clone(run=run, config={"steps": 9}, user=emil)
    assert (copy.name, copy.config, copy.seed) == ("one (copy)", {"steps": 9}, 4)
    assert (copy.queue, copy.created_by) == ("gpu", emil)
    assert RunInput.objects.get(run=copy).checkpoint == base
    assert services.run_clone(run=run, seed=5, name="again").config == {"steps": 5}


# --- code version ---


def test_the_code_version_is_the_git_revision() -> None:
    code.code_version.cache_clear()
    answer = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    if answer.returncode == 0:
        assert answer.stdout.startswith(code.code_version().removesuffix("-dirty"))


@pytest.mark.parametrize("how", ["no git", "no repository", "git hangs"])
def test_without_git_it_is_the_version_of_the_package(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def run(*args: Any, **kwargs: Any) -> Any:
        if how == "no git":
            raise FileNotFoundError("git")
        if how == "git hangs":
            raise subprocess.TimeoutExpired("git", 5)
        return subprocess.CompletedProcess(args, 128, "", "not a repository")

    monkeypatch.setattr(subprocess, "run", run)
    code.code_version.cache_clear()
    assert code.code_version().startswith("concord 0.")
    code.code_version.cache_clear()


def test_a_run_that_nobody_could_repeat_is_refused_naming_all_that_is_missing(
    launch: Callable[..., Run],
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
) -> None:
    nameless = model(project, "drill")
    nameless.sha256 = ""
    monkeypatch.setattr("apps.training.services.launching.code_version", lambda: "unknown")
    settings.ARTIFACTS_URL = ""
    with pytest.raises(Conflict) as refusal:
        launch(inputs={"base": nameless})
    assert refusal.value.code == "context_incomplete"
    for words in ("code version", "ARTIFACTS_URL", f"'base' ({nameless.pk})"):
        assert words in refusal.value.message
    assert Run.objects.get() == nameless.run


@pytest.mark.parametrize("kind", ["ppo", "grpo", "evaluate"])
def test_the_held_out_judge_rewards_no_policy(
    launch: Callable[..., Run],
    project: Project,
    snapshot_make: Callable[..., Snapshot],
    kind: str,
) -> None:
    reward, judge = model(project, "reward"), model(project, "reward")
    sft, policy = model(project, "sft"), model(project, "sft")
    given = {"prompts": snapshot_make("prompts"), "sft": sft, "policy": policy}
    why = {"override_reason": "a test"}
    first = launch(kind="ppo", **why, inputs=given | {"reward": reward, "judge": judge})
    for named in (judge, judge.run):
        with pytest.raises(DomainError) as error:
            launch(kind=kind, **why, inputs=given | {"reward": named})
        assert (error.value.code, error.value.field) == ("judge_as_reward", "inputs.reward")
    assert launch(kind=kind, **why, inputs=given | {"reward": reward, "judge": judge}).pk
    # What was rewarded before may be again, whatever it judges meanwhile.
    launch(kind="evaluate", inputs=given | {"reward": model(project, "reward"), "judge": reward})
    assert launch(kind=kind, **why, inputs=given | {"reward": reward}).pk
    Run.objects.filter(inputs__role="judge", inputs__checkpoint=judge).update(
        state="cancelled", ended_at=first.created_at
    )
    assert launch(kind=kind, **why, inputs=given | {"reward": judge}).pk, "it judged nothing"


@pytest.mark.parametrize("kind", ["ppo", "grpo"])
def test_a_reward_model_is_no_judge_of_the_policy_it_rewards(
    launch: Callable[..., Run],
    project: Project,
    snapshot_make: Callable[..., Snapshot],
    kind: str,
) -> None:
    reward, other = model(project, "reward"), model(project, "reward")
    given = {"prompts": snapshot_make("prompts"), "sft": model(project, "sft"), "reward": reward}
    why = {"kind": kind, "override_reason": "a test"}
    with pytest.raises(DomainError) as error:
        launch(**why, inputs=given | {"judge": reward})
    assert (error.value.code, error.value.field) == ("same_input", "inputs.judge")
    assert launch(**why, inputs=given | {"judge": other}).kind == kind


def test_a_judge_that_learned_from_the_rewards_votes_is_refused(
    launch: Callable[..., Run], project: Project, snapshot_make: Callable[..., Snapshot]
) -> None:
    pairs = pairs_make(project, 3)

    def rewarded(rows: dict[int, list[int]], base: Checkpoint | None = None) -> Checkpoint:
        """A reward model that learned from these votes on these pairs."""
        data = snapshot_make("preferences", state="draft")
        SnapshotRow.objects.bulk_create(
            SnapshotRow(snapshot=data, comparison=pairs[pair], split="train", vote_ids=votes)
            for pair, votes in rows.items()
        )
        made = model(project, "reward")
        RunInput.objects.create(run=made.run, role="data", snapshot=data)
        if base is not None:
            RunInput.objects.create(run=made.run, role="base", checkpoint=base)
        return made

    reward = rewarded({0: [1, 2], 1: [3]})
    given = {"prompts": snapshot_make("prompts"), "sft": model(project, "sft"), "reward": reward}
    given["policy"] = model(project, "ppo")
    others, same = rewarded({0: [11, 12], 2: [3]}), rewarded({0: [2, 11], 1: [3, 12]})
    for judge, refused in (
        (others, 0),
        (same, 2),
        (rewarded({2: [9]}, base=same), 2),  # continued from one that saw them
        (rewarded({1: []}), 1),  # a ruling, whoever made it
    ):
        launching = partial(launch, kind="evaluate", inputs=given | {"judge": judge})
        if not refused:
            assert launching().pk
            continue
        with pytest.raises(DomainError, match=f"on {refused} comparison") as error:
            launching()
        assert (error.value.code, error.value.field) == ("judge_not_held_out", "inputs.judge")


def test_a_policy_is_not_its_own_baseline(
    launch: Callable[..., Run], project: Project, snapshot_make: Callable[..., Snapshot]
) -> None:
    policy, reward = model(project, "ppo"), model(project, "reward")
    given = {"prompts": snapshot_make("prompts"), "reward": reward, "policy": policy}
    for same in (policy, policy.run):
        with pytest.raises(DomainError) as error:
            launch(kind="evaluate", inputs=given | {"sft": same})
        assert (error.value.code, error.value.field) == ("same_input", "inputs.sft")


def test_rewards_are_read_in_the_format_that_their_assessment_found_alike(
    project: Project, launch: Callable, snapshot_make: Callable
) -> None:
    reward, judge = model(project, "reward"), model(project, "reward")
    given = {"prompts": snapshot_make("prompts"), "sft": model(project, "sft")}
    given |= {"reward": reward, "judge": judge}
    config = {"preset": "careful", "reward_precision": "bfloat16"}
    why = {"kind": "ppo", "override_reason": "a test"}
    launching = partial(launch, **why, inputs=given, config=config)
    for checkpoint, noun in ((reward, "reward model"), (judge, "judge")):
        with pytest.raises(DomainError, match=f"of the {noun} has found") as error:
            launching()
        assert error.value.code == "precision_not_assessed"
        assert error.value.field == "config.reward_precision"
        for precisions in (["bfloat16"], ["int8"], ["bfloat16", "int8"]):  # the newest counts
            run = model(project, "reward").run
            Run.objects.filter(pk=run.pk).update(
                kind="assess", ended_at=timezone.now(), summary={"precisions": precisions}
            )
            RunInput.objects.create(run=run, role="reward", checkpoint=checkpoint)
            if precisions == ["int8"]:
                with pytest.raises(DomainError, match=f"of the {noun} has found"):
                    launching()
    assert launching().config["reward_precision"] == "bfloat16"
