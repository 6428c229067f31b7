"""Rounds: each step in its turn, nothing twice, people hold the brake."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import AuditEvent, Notice, Project, User
from apps.accounts.services import token_create
from apps.common.errors import Conflict, DomainError
from apps.evaluation.models import EvaluationProtocol, ProtocolUse
from apps.evaluation.services.promoting import promotion_reject, promotion_request
from apps.labeling.models import Comparison, Decision
from apps.loop import tasks
from apps.loop.models import Pipeline, PipelineVersion, Round, RoundStep
from apps.loop.recipe import RULE_NAMES
from apps.loop.selectors.figures import figures_by_round
from apps.loop.selectors.pipelines import (
    fresh_pairs,
    round_steps,
    steps_of,
    version_now,
    wait_of,
)
from apps.loop.selectors.rules import rules_of, spent_seconds
from apps.loop.services.pipelines import StepChange, pipeline_change, pipeline_make
from apps.loop.services.rounds import round_act, round_start, rounds_sweep
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.services.freezing import snapshot_freeze, snapshot_run
from apps.snapshots.services.importing import snapshot_import
from apps.training.models import Checkpoint, Run, RunInput
from tests.evaluation.promoted import run_made, saved
from tests.snapshots.conftest import crowd_make
from tests.training.conftest import artifacts, commits, wire
from workers.config import recipe_presets

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("wire", "artifacts")]
__all__ = ["artifacts", "commits", "wire"]
SignedIn = Callable[[User], Client]
RECIPE = SnapshotRecipe(
    least_votes=1, least_agreeing=1, seed="seed-2", splits={"train": 0.8, "dev": 0.2}
)
KEYS = ["freeze", "reward", "assess", "approve", "policy", "evaluate", "audit", "promote"]
RATE = {"value": 0.6, "low": 0.55, "high": 0.65, "n": 160}


@pytest.fixture
def evaluation(project: Project, emil: User) -> Run:
    """A first pass that people did by hand: reward model, assessment, PPO, evaluation."""
    crowd_make(project)
    return passed(project, emil)


def passed(project: Project, user: User) -> Run:
    pairs = snapshot_freeze(project=project, name="Pairs", recipe=RECIPE, user=user)
    rows = [{"prompt": f"Argue about {n}.", "group": f"topic-{n}"} for n in range(3)]
    prompts = snapshot_import(project=project, kind="prompts", name="Asked", rows=rows)
    sft = saved(run_made(project, "register_policy", "base"), 0)
    preset = {kind: {"preset": next(iter(recipe_presets(kind)))} for kind in ("reward", "ppo")}
    reward = saved(run_made(project, "reward", "rewards", seed=3, config=preset["reward"]))
    read(reward.run, data=pairs, sft=sft)
    read(run_made(project, "assess", "assessment"), reward=reward, data=pairs)
    policy = saved(run_made(project, "ppo", "policy", config=preset["ppo"]))
    read(policy.run, prompts=prompts, sft=sft, reward=reward)
    evaluation = run_made(project, "evaluate", "evaluation")
    read(evaluation, prompts=prompts, policy=policy, sft=sft, reward=reward)
    return evaluation


def read(run: Run, **inputs: Any) -> None:
    for role, given in inputs.items():
        kind = "snapshot" if isinstance(given, Snapshot) else "checkpoint"
        RunInput.objects.create(run=run, role=role, **{kind: given})


@pytest.fixture
def pipeline(project: Project, evaluation: Run, emil: User) -> Pipeline:
    return pipeline_make(project=project, run=evaluation, name="Weekly", user=emil)


def change(pipeline: Pipeline, user: User, **asked: Any) -> PipelineVersion:
    """`asked`: what `pipeline_change` takes, and any of the rules."""
    now = version_now(pipeline)
    rules = {name: asked.pop(name) for name in RULE_NAMES if name in asked}
    given = {
        "seen_version": now.number,
        "name": pipeline.name,
        "rules": replace(rules_of(now), **rules),
    }
    return pipeline_change(pipeline=pipeline, user=user, **given | asked)


def states(row: Round) -> dict[str, str]:
    return {step.key: step.state for step in round_steps(row)}


def step_of(row: Round, key: str) -> RoundStep:
    return next(step for step in round_steps(row) if step.key == key)


def swept(row: Round) -> Round:
    rounds_sweep()
    row.refresh_from_db()
    return row


def frozen(row: Round) -> Round:
    """A worker froze its dataset."""
    step = step_of(row, "freeze")
    assert snapshot_run(snapshot=step.snapshot_id) == "frozen"
    return swept(row)


def ended(row: Round, key: str, state: str = "finished", **fields: Any) -> Round:
    """The run of a step ended; what a policy or a reward model trained is there."""
    run = step_of(row, key).run
    assert run is not None
    now = timezone.now()
    Run.objects.filter(pk=run.pk).update(state=state, ended_at=now, **fields)
    run.refresh_from_db()
    if state == "finished" and key in ("reward", "policy"):
        saved(run)
    return swept(row)


def approved(row: Round) -> Round:
    Checkpoint.objects.filter(pk=step_of(row, "approve").checkpoint_id).update(status="approved")
    return swept(row)


def at_promotion(pipeline: Pipeline, user: User) -> Round:
    row = swept(round_start(pipeline=pipeline, user=user))
    frozen(row)
    ended(row, "reward")
    ended(row, "assess")
    approved(row)
    ended(row, "policy")
    return ended(row, "evaluate", summary={"judge": {"win_rate": RATE}})


def accept(project: Project, n: int) -> None:
    """So many pairs more are accepted."""
    free = Comparison.objects.filter(project=project, decision=None)[:n]
    Decision.objects.bulk_create(
        Decision(comparison=one, project=project, outcome="accepted", winner="a") for one in free
    )


# A pipeline.


def test_a_pipeline_is_made_of_the_runs_that_led_to_one(
    project: Project, pipeline: Pipeline, evaluation: Run
) -> None:
    steps = {step.key: step for step in steps_of(version_now(pipeline))}
    assert list(steps) == KEYS
    assert steps["freeze"].recipe == RECIPE.to_json()
    assert (steps["reward"].seed, steps["policy"].run_kind) == (3, "ppo")
    assert steps["evaluate"].copied_from == evaluation.pk
    read = {
        key: {role: (one.origin, one.step) for role, one in steps[key].inputs.items()}
        for key in ("reward", "policy", "evaluate")
    }
    assert read["reward"] == {"data": ("step", "freeze"), "sft": ("fixed", "")}
    assert read["policy"]["reward"] == ("step", "reward")
    assert read["evaluate"] == {
        "prompts": ("fixed", ""),
        "policy": ("step", "policy"),
        "sft": ("fixed", ""),
        "reward": ("step", "reward"),
    }


@pytest.mark.parametrize("kind", ["reward", "assess", "ppo"])
def test_a_run_in_the_middle_finds_those_before_and_after_it(
    project: Project, evaluation: Run, emil: User, kind: str
) -> None:
    run = Run.objects.get(project=project, kind=kind)
    made = pipeline_make(project=project, run=run, name="By another", user=emil)
    assert [step.key for step in steps_of(version_now(made))] == KEYS


def test_a_version_never_changes(pipeline: Pipeline) -> None:
    version = version_now(pipeline)
    with pytest.raises(DatabaseError, match="never changes"), transaction.atomic():
        PipelineVersion.objects.filter(pk=version.pk).update(trigger_pairs=5)


def test_a_change_is_a_new_version_and_a_round_under_way_keeps_its_own(
    project: Project, pipeline: Pipeline, emil: User, ada: User
) -> None:
    row = round_start(pipeline=pipeline, user=emil)
    other = run_made(project, "reward", "other rewards", seed=9)
    version = change(
        pipeline,
        ada,
        trigger_pairs=500,
        steps={"reward": StepChange(copied_from=other.pk), "assess": StepChange(enabled=False)},
    )
    assert (version.number, version.trigger_pairs) == (2, 500)
    steps = {step.key: step for step in steps_of(version)}
    assert (steps["reward"].seed, steps["assess"].enabled) == (9, False)
    assert steps["reward"].inputs["data"].step == "freeze", "it reads what it read"
    row.refresh_from_db()
    assert row.version.number == 1
    with pytest.raises(Conflict) as refused:
        change(pipeline, emil, seen_version=1, trigger_pairs=3)
    assert refused.value.code == "changed_meanwhile"
    assert change(pipeline, emil).number == 2, "nothing changed, so no version"


def test_people_approve_in_every_round(pipeline: Pipeline, emil: User) -> None:
    with pytest.raises(DomainError) as refused:
        change(pipeline, emil, steps={"approve": StepChange(enabled=False)})
    assert (refused.value.code, refused.value.field) == ("step_required", "steps.approve")


# A round.


def test_a_round_goes_from_the_freeze_to_the_promotion(
    project: Project, pipeline: Pipeline, emil: User, ada: User
) -> None:
    row = swept(round_start(pipeline=pipeline, user=emil))
    assert states(row)["freeze"] == "running"
    frozen(row)
    reward = step_of(row, "reward")
    assert reward.run is not None
    assert reward.inputs["data"] == {"type": "snapshot", "id": step_of(row, "freeze").snapshot_id}
    assert (reward.run.seed, reward.run.launch_key) == (3, f"round:{row.pk}:reward:1")
    ended(row, "reward")
    ended(row, "assess")
    wait = wait_of(row, round_steps(row))
    assert (row.state, wait.step, wait.who) == ("waiting", "approve", "an engineer or admin")
    assert step_of(row, "reward").checkpoint_id in wait.url
    swept(row)
    assert Notice.objects.filter(kind="round.waiting").count() == 1, "told once"
    approved(row)
    assert states(row)["policy"] == "running"
    policy = RunInput.objects.get(run=step_of(row, "policy").run, role="reward")
    assert policy.checkpoint_id == step_of(row, "reward").checkpoint_id
    ended(row, "policy")
    ended(row, "evaluate", summary={"judge": {"win_rate": RATE}})
    wait = wait_of(row, round_steps(row))
    assert (wait.step, wait.url) == (
        "promote",
        reverse(
            "evaluation:promotion_new", args=["arguments", step_of(row, "policy").checkpoint_id]
        ),
    )
    round_act(round=row, action="skip", user=ada, step="promote", reason="Not this week")
    row.refresh_from_db()
    assert row.state == "finished"
    assert wait_of(row, round_steps(row)) is None
    assert swept(row).state == "finished"


def test_a_promotion_ends_the_round_with_its_decision(
    project: Project, pipeline: Pipeline, emil: User, ada: User
) -> None:
    row = at_promotion(pipeline, emil)
    policy = step_of(row, "policy").checkpoint_id
    asked = promotion_request(project=project, checkpoint_id=policy, stage="staging", user=emil)
    assert wait_of(swept(row), round_steps(row)).who == "an admin who did not ask"
    promotion_reject(project=project, request_id=asked.pk, user=ada, reason="Too long")
    assert swept(row).state == "finished"
    assert step_of(row, "promote").decision == "rejected"


@pytest.mark.parametrize("key", ["freeze", "reward"])
def test_a_sweep_killed_after_a_launch_launches_nothing_twice(
    project: Project,
    pipeline: Pipeline,
    emil: User,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
) -> None:
    row = round_start(pipeline=pipeline, user=emil)
    if key == "reward":
        swept(row)
        step = step_of(row, "freeze")
        assert snapshot_run(snapshot=step.snapshot_id) == "frozen"
    before = (Run.objects.count(), Snapshot.objects.count())
    save = RoundStep.save

    def killed(self: RoundStep, **given: Any) -> None:
        if self.key == key:
            raise KeyboardInterrupt
        save(self, **given)

    with monkeypatch.context() as patch:
        patch.setattr(RoundStep, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            rounds_sweep()
    assert (Run.objects.count(), Snapshot.objects.count()) == before, "nothing without its row"
    swept(row)
    swept(row)
    assert (Run.objects.count() + Snapshot.objects.count()) == sum(before) + 1


def test_a_run_whose_row_was_lost_is_found_by_its_key(
    project: Project, pipeline: Pipeline, emil: User
) -> None:
    row = swept(round_start(pipeline=pipeline, user=emil))
    frozen(row)
    first = step_of(row, "reward").run
    RoundStep.objects.filter(round=row, key="reward").update(run=None, state="pending")
    swept(row)
    assert step_of(row, "reward").run == first
    assert Run.objects.filter(launch_key__startswith=f"round:{row.pk}:").count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_schedulers_at_once_launch_one_run(project: Project, emil: User) -> None:
    crowd_make(project)
    made = pipeline_make(project=project, run=passed(project, emil), name="Weekly", user=emil)
    row = round_start(pipeline=made, user=emil)
    at_once(lambda _: rounds_sweep())
    assert Snapshot.objects.filter(project=project, state="draft").count() == 1
    assert states(row)["freeze"] == "running"


@pytest.mark.django_db(transaction=True)
def test_two_admins_who_start_at_once_start_one_round(project: Project, emil: User) -> None:
    crowd_make(project)
    made = pipeline_make(project=project, run=passed(project, emil), name="Weekly", user=emil)
    outcomes: list[str] = []

    def press(_: int) -> None:
        try:
            outcomes.append(round_start(pipeline=made, user=emil).state)
        except Conflict as error:
            outcomes.append(error.code)

    at_once(press)
    assert sorted(outcomes) == ["round_live", "running"]
    assert Round.objects.get(pipeline=made).number == 1


def at_once(act: Callable[[int], Any]) -> None:
    start = threading.Barrier(2)

    def one(number: int) -> None:
        start.wait()
        try:
            act(number)
        finally:
            connection.close()

    both = [threading.Thread(target=one, args=(number,)) for number in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()


def test_the_database_lets_no_second_live_round_in(pipeline: Pipeline, emil: User) -> None:
    row = round_start(pipeline=pipeline, user=emil)
    with pytest.raises(IntegrityError, match="round_one_at_a_time"), transaction.atomic():
        Round.objects.create(
            project=row.project, pipeline=pipeline, version=row.version, number=2, trigger="hand"
        )


# Triggers.


def test_a_trigger_that_stays_true_starts_one_round(
    project: Project, pipeline: Pipeline, emil: User
) -> None:
    change(pipeline, emil, trigger_pairs=10)
    accept(project, 9)
    assert tasks.sweep_rounds() == 0
    accept(project, 1)
    rounds_sweep()
    row = Round.objects.get(pipeline=pipeline)
    assert (row.trigger, row.fresh_pairs, row.started_by) == ("pairs", 10, None)
    round_act(round=row, action="stop", user=emil, reason="No machine today")
    for _ in range(3):
        rounds_sweep()
    pipeline.refresh_from_db()
    assert (fresh_pairs(pipeline), pipeline.disarmed) == (10, ["pairs"])
    assert Round.objects.filter(pipeline=pipeline).count() == 1, "it still holds, and starts none"


def test_a_freeze_arms_the_trigger_again(project: Project, pipeline: Pipeline, emil: User) -> None:
    change(pipeline, emil, trigger_pairs=10)
    accept(project, 12)
    rounds_sweep()
    row = Round.objects.get(pipeline=pipeline)
    frozen(row)
    pipeline.refresh_from_db()
    assert fresh_pairs(pipeline) == 0
    round_act(round=row, action="stop", user=emil, reason="Enough")
    rounds_sweep()
    accept(project, 10)
    rounds_sweep()
    assert Round.objects.filter(pipeline=pipeline).count() == 2


# What goes wrong.


def test_a_failed_run_makes_the_round_wait_with_the_failures_own_next_step(
    pipeline: Pipeline, emil: User
) -> None:
    row = swept(round_start(pipeline=pipeline, user=emil))
    frozen(row)
    ended(
        row,
        "reward",
        "failed",
        failure_kind="out_of_memory",
        fault="machine",
        failure_message="The card is full.",
    )
    wait = wait_of(row, round_steps(row))
    assert (row.state, states(row)["reward"], states(row)["assess"]) == (
        "waiting",
        "failed",
        "pending",
    )
    assert "The card is full. Machine problem." in wait.words
    assert step_of(row, "reward").run_id in wait.url
    Run.objects.filter(pk=step_of(row, "reward").run_id).update(state="queued", ended_at=None)
    assert (swept(row).state, states(row)["reward"]) == ("running", "running"), "resumed by hand"


def test_a_launch_that_is_refused_is_not_tried_at_every_beat(
    project: Project, pipeline: Pipeline, emil: User
) -> None:
    row = swept(round_start(pipeline=pipeline, user=emil))
    frozen(row)
    ended(row, "reward")
    ended(row, "assess")
    model = Checkpoint.objects.filter(pk=step_of(row, "approve").checkpoint_id)
    model.update(status="rejected")
    assert states(swept(row))["approve"] == "failed"
    round_act(round=row, action="skip", user=emil, step="approve", reason="A rehearsal")
    policy = step_of(row, "policy")
    assert (policy.state, policy.run) == ("failed", None)
    assert "rejected" in policy.problem
    n = Run.objects.count()
    swept(row)
    assert Run.objects.count() == n


def test_an_approval_that_was_skipped_is_the_policys_override(
    pipeline: Pipeline, emil: User
) -> None:
    row = swept(round_start(pipeline=pipeline, user=emil))
    frozen(row)
    ended(row, "reward")
    ended(row, "assess")
    with pytest.raises(DomainError) as refused:
        round_act(round=row, action="skip", user=emil, step="approve", reason=" ")
    assert refused.value.field == "reason"
    round_act(round=row, action="skip", user=emil, step="approve", reason="A rehearsal")
    assert step_of(row, "policy").run.override_reason == "A rehearsal"


def test_a_budget_used_up_ends_the_round_in_order(pipeline: Pipeline, emil: User) -> None:
    change(pipeline, emil, budget_minutes=30)
    row = swept(round_start(pipeline=pipeline, user=emil))
    frozen(row)
    run = step_of(row, "reward").run
    Run.objects.filter(pk=run.pk).update(state="running")
    RoundStep.objects.filter(round=row, key="reward").update(
        started_at=timezone.now() - timedelta(minutes=31)
    )
    swept(row)
    run.refresh_from_db()
    assert (row.state, row.reason) == ("stopped", "Its budget of wall time is used up.")
    assert (run.state, run.command) == ("stopping", "stop"), "it saves and ends"
    assert step_of(row, "freeze").snapshot.state == "frozen"


def test_people_who_take_long_use_no_budget(pipeline: Pipeline, emil: User) -> None:
    change(pipeline, emil, budget_minutes=30)
    row = swept(round_start(pipeline=pipeline, user=emil))
    frozen(row)
    ended(row, "reward")
    ended(row, "assess")
    RoundStep.objects.filter(round=row, key="approve").update(
        started_at=timezone.now() - timedelta(days=3)
    )
    assert swept(row).state == "waiting"
    assert spent_seconds(row, round_steps(row)) < 30 * 60


# The brake.


def test_a_paused_round_begins_no_step_until_it_is_resumed(pipeline: Pipeline, emil: User) -> None:
    row = swept(round_start(pipeline=pipeline, user=emil))
    round_act(round=row, action="pause", user=emil)
    step = step_of(row, "freeze")
    snapshot_run(snapshot=step.snapshot_id)
    assert swept(row).state == "paused"
    assert states(row)["reward"] == "pending"
    assert "Paused by Emil" in wait_of(row, round_steps(row)).words
    round_act(round=row, action="resume", user=emil)
    assert states(row)["reward"] == "running"


def test_a_stop_in_the_middle_cancels_what_has_not_begun_and_keeps_the_rest(
    pipeline: Pipeline, emil: User, ada: User
) -> None:
    row = swept(round_start(pipeline=pipeline, user=emil))
    frozen(row)
    round_act(round=row, action="stop", user=ada, reason="Wrong prompts")
    row.refresh_from_db()
    assert (row.state, row.reason) == ("stopped", "Wrong prompts")
    assert step_of(row, "reward").run.command == "cancel"
    assert step_of(row, "freeze").snapshot.state == "frozen"
    with pytest.raises(Conflict) as refused:
        round_act(round=row, action="redo", user=ada, step="freeze")
    assert refused.value.code == "round_ended"
    assert round_start(pipeline=pipeline, user=ada).number == 2
    event = AuditEvent.objects.get(action="round.stopped")
    assert event.details == {"round": 1, "pipeline": "Weekly", "reason": "Wrong prompts"}


def test_a_step_is_done_again_with_all_after_it(pipeline: Pipeline, emil: User) -> None:
    row = swept(round_start(pipeline=pipeline, user=emil))
    frozen(row)
    ended(row, "reward")
    ended(row, "assess")
    first = step_of(row, "reward").run_id
    round_act(round=row, action="redo", user=emil, step="reward")
    again = step_of(row, "reward")
    assert (again.attempt, again.state) == (2, "running")
    assert again.run_id != first
    assert again.run.launch_key.endswith(":reward:2")
    assert (states(row)["freeze"], states(row)["assess"]) == ("done", "pending")
    assert Run.objects.filter(pk=first, state="finished").exists(), "what was made stays"


def test_a_skipped_step_gives_what_the_round_before_gave(pipeline: Pipeline, emil: User) -> None:
    first = at_promotion(pipeline, emil)
    round_act(round=first, action="stop", user=emil, reason="Enough")
    second = round_start(pipeline=pipeline, user=emil)
    round_act(round=second, action="skip", user=emil, step="freeze", reason="No fresh votes")
    data = RunInput.objects.get(run=step_of(second, "reward").run, role="data")
    assert data.snapshot_id == step_of(first, "freeze").snapshot_id


def test_a_policy_is_compared_with_that_of_the_round_before(pipeline: Pipeline, emil: User) -> None:
    change(pipeline, emil, steps={"evaluate": StepChange(previous=True)})
    first = at_promotion(pipeline, emil)
    base = Checkpoint.objects.get(run__name="base")
    assert RunInput.objects.get(run=step_of(first, "evaluate").run, role="sft").checkpoint == base
    round_act(round=first, action="stop", user=emil, reason="Enough")
    second = at_promotion(pipeline, emil)
    compared = RunInput.objects.get(run=step_of(second, "evaluate").run, role="sft")
    assert compared.checkpoint_id == step_of(first, "policy").checkpoint_id


# What a round measured.


def test_win_rates_are_compared_under_one_protocol_alone(
    project: Project, pipeline: Pipeline, emil: User
) -> None:
    for value, sha256 in ((0.5, "a"), (0.7, "b"), (0.6, "a")):
        row = at_promotion(pipeline, emil)
        run = step_of(row, "evaluate").run
        Run.objects.filter(pk=run.pk).update(
            summary={"judge": {"win_rate": RATE | {"value": value}}}
        )
        kept, _ = EvaluationProtocol.objects.get_or_create(
            project=project, sha256=sha256 * 64, defaults={"content": {"engine": sha256}}
        )
        ProtocolUse.objects.create(run=run, protocol=kept)
        reward = step_of(row, "reward").run_id
        report = {"splits": {"train": {"accuracy": RATE}, "dev": {"accuracy": RATE}}}
        Run.objects.filter(pk=reward).update(summary=report)
        round_act(round=row, action="stop", user=emil, reason="Enough")
    found = figures_by_round(list(Round.objects.filter(pipeline=pipeline)))
    assert [found[n].before and found[n].before[0] for n in (1, 2, 3)] == [None, None, 1]
    assert found[3].change is None, "these runs kept no answers to be paired by"
    assert found[1].accuracy.of == "dev"


# Pages and the API.


def test_the_pages_lead_from_a_run_to_a_round(
    project: Project, evaluation: Run, emil: User, signed_in: SignedIn
) -> None:
    client = signed_in(emil)
    assert client.get(reverse("loop:pipelines", args=["arguments"])).status_code == 200
    new = reverse("loop:pipeline_new", args=["arguments"])
    assert evaluation.pk in client.get(f"{new}?run={evaluation.pk}").content.decode()
    refused = client.post(new, {"run": evaluation.pk, "name": "", "trigger_pairs": "0"})
    assert refused.status_code == 422
    client.post(new, {"run": evaluation.pk, "name": "Weekly", "trigger_pairs": "500"})
    made = Pipeline.objects.get()
    page = reverse("loop:pipeline", args=["arguments", made.pk])
    assert "at 500" in client.get(page).content.decode()
    client.post(reverse("loop:pipeline_start", args=["arguments", made.pk]))
    row = Round.objects.get()
    address = reverse("loop:round", args=["arguments", made.pk, 1])
    assert "Freeze the dataset." in client.get(address).content.decode()
    act = reverse("loop:round_act", args=["arguments", made.pk, 1])
    assert "reason" in client.post(act, {"action": "stop"}, follow=True).content.decode()
    client.post(act, {"action": "stop", "reason": "A rehearsal"})
    row.refresh_from_db()
    assert row.state == "stopped"
    assert "A rehearsal" in client.get(address).content.decode()
    assert "Round 1" in client.get(page).content.decode()


def test_a_pipeline_is_changed_on_its_page_without_json(
    pipeline: Pipeline, emil: User, signed_in: SignedIn
) -> None:
    client = signed_in(emil)
    address = reverse("loop:pipeline_edit", args=["arguments", pipeline.pk])
    page = client.get(address)
    form = page.context["form"]
    given = {name: form[name].value() or "" for name in form.fields}
    given = {name: "on" if value is True else value for name, value in given.items()}
    del given["enabled_assess"]
    given |= {"trigger_pairs": "500", "budget_minutes": "90", "previous_evaluate": "1"}
    answer = client.post(address, given)
    assert answer.status_code == 302, answer.context["form"].errors
    version = version_now(pipeline)
    assert (version.number, version.trigger_pairs, version.budget_minutes) == (2, 500, 90)
    steps = {step.key: step for step in steps_of(version)}
    assert [key for key, step in steps.items() if not step.enabled] == ["assess", "audit"]
    assert steps["evaluate"].inputs["sft"].origin == "previous"
    assert client.post(address, given).status_code == 422, "somebody saved meanwhile"


def test_the_api_makes_starts_and_stops(
    project: Project, evaluation: Run, emil: User, client: Client
) -> None:
    _, token = token_create(user=emil, name="api", scopes=["read", "train"], days=1)
    given = {"content_type": "application/json", "headers": {"Authorization": f"Bearer {token}"}}
    root = "/api/v1/projects/arguments/pipelines"
    made = client.post(root, {"run": evaluation.pk, "name": "Weekly"}, **given).json()
    one = f"{root}/{made['id']}"
    change = {"seen_version": 1, "budget_minutes": 60, "steps": {"assess": {"enabled": False}}}
    assert client.patch(one, change, **given).json()["version"] == 2
    started = client.post(f"{one}/rounds", **given)
    assert (started.status_code, started.json()["state"]) == (201, "running")
    assert "assess" not in {step["key"] for step in started.json()["steps"]}
    assert client.post(f"{one}/rounds", **given).json()["code"] == "round_live"
    stopped = client.post(
        f"{one}/rounds/1", {"action": "stop", "reason": "A rehearsal"}, **given
    ).json()
    assert (stopped["state"], stopped["waits_for"]) == ("stopped", None)
    assert client.get(f"{one}/rounds", **given).json()[0]["reason"] == "A rehearsal"
    assert client.get(one, **given).json()["live_round"] is None
