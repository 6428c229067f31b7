"""Going back to where nothing was wrong yet: which checkpoint, held to what, launched once."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict
from apps.snapshots.models import Snapshot
from apps.training import selectors, services
from apps.training.guidance import advised_changes
from apps.training.models import Alert, Checkpoint, Run, RunAttempt, RunEvent, RunInput
from apps.training.selectors.reference import checkpoints_judged, last_healthy
from tests.training.conftest import FakeWire
from tests.training.reports import batch, measured, report
from workers.contract import Failed, Finished, Log, Opened, Progress


def checkpoint(run: Run, step: int, *tags: str, **fields: Any) -> Checkpoint:
    return Checkpoint.objects.create(
        project=run.project,
        run=run,
        attempt=run.attempt,
        step=step,
        uri=f"runs/{run.pk}/{step}",
        sha256=f"{step:064d}",
        tags=list(tags),
        **fields,
    )


def alert(run: Run, step: int, severity: str = "critical") -> Alert:
    return Alert.objects.create(
        run=run,
        attempt=run.attempt,
        seq=step,
        step=step,
        rule="held_out_down",
        severity=severity,
        message="down",
        raised_at=timezone.now(),
    )


@pytest.fixture
def ended(project: Project) -> Callable[..., Run]:
    def make(kind: str = "ppo", state: str = "failed", **fields: Any) -> Run:
        values = {"failure_kind": "guard_reference_kl"} if state == "failed" else {}
        run = Run.objects.create(
            project=project,
            name=f"a {kind}",
            kind=kind,
            state=state,
            attempt=1,
            ended_at=timezone.now(),
            **(values | fields),
        )
        RunAttempt.objects.create(run=run, number=1)
        return run

    return make


@pytest.fixture
def policy(
    ended: Callable[..., Run], snapshot_make: Callable[..., Snapshot], wire: FakeWire
) -> Run:
    """PPO that a guardrail stopped at step 43: best at 20, last at 40, failed at 43."""
    sft = ended("sft", "finished")
    base = checkpoint(sft, 60, "final")
    reward = checkpoint(ended("reward", "finished"), 9, "final", status="approved")
    run = ended(config={"steps": 100, "learning_rate": 1e-5, "kl_coef": 0.05}, seed=7, step=43)
    RunInput.objects.create(run=run, role="prompts", snapshot=snapshot_make("prompts"))
    RunInput.objects.create(run=run, role="sft", checkpoint=base, upstream=sft)
    RunInput.objects.create(run=run, role="reward", checkpoint=reward)
    checkpoint(run, 10)
    checkpoint(run, 20, "best")
    checkpoint(run, 40, "last")
    checkpoint(run, 43, "failed")
    return run


def test_the_new_run_starts_at_the_last_sound_checkpoint_held_to_the_same_reference(
    policy: Run, emil: User
) -> None:
    made = services.run_roll_back(run=policy, user=emil)
    read = {row.role: row.checkpoint or row.snapshot for row in made.inputs.all()}
    assert read["policy"].step == 40
    assert read["policy"].run == policy
    assert read["reference"] == read["sft"] == Checkpoint.objects.get(step=60)
    assert made.config["reference_differs"] is True
    assert made.config["steps"] == 60  # of a hundred, forty are done
    assert (made.kind, made.created_by, made.name[-7:]) == ("ppo", emil, "step 40")
    assert made.seed == 8
    event = AuditEvent.objects.get(action="run.rolled_back", subject=policy.pk)
    assert (event.details["run"], event.details["step"]) == (made.pk, 40)
    assert [node.id for node in selectors.lineage_up(made) if node.role == "policy"] == [policy.pk]


def test_the_change_that_the_guardrail_advises_is_made_and_can_be_left_out(policy: Run) -> None:
    """reference_kl adjusts kl_coef by half as much again."""
    assert advised_changes(policy) == {"kl_coef": pytest.approx(0.075)}
    assert services.run_roll_back(run=policy).config["kl_coef"] == pytest.approx(0.075)
    assert services.run_roll_back(run=policy, advised=False).config["kl_coef"] == 0.05


def test_the_same_key_goes_back_once(policy: Run) -> None:
    first = services.run_roll_back(run=policy, idempotency_key="k")
    assert services.run_roll_back(run=policy, idempotency_key="k") == first
    assert AuditEvent.objects.filter(action="run.rolled_back").count() == 1


def test_the_start_is_the_sft_model_and_nothing_of_the_run(policy: Run) -> None:
    made = services.run_roll_back(run=policy, to=services.START)
    assert {row.role for row in made.inputs.all()} == {"prompts", "sft", "reward"}
    assert "reference_differs" not in made.config
    assert made.config["steps"] == 100
    assert made.seed == 8


def test_a_checkpoint_can_be_named_and_must_be_sound(policy: Run) -> None:
    best = Checkpoint.objects.get(run=policy, step=20)
    assert services.run_roll_back(run=policy, to=best.pk).config["steps"] == 80
    failed = Checkpoint.objects.get(run=policy, step=43)
    with pytest.raises(Conflict, match="step 43"):
        services.run_roll_back(run=policy, to=failed.pk)
    with pytest.raises(Conflict, match="no such checkpoint"):
        services.run_roll_back(run=policy, to="nobodys")


def test_what_was_saved_under_a_critical_alert_is_not_gone_back_to(policy: Run) -> None:
    alert(policy, 30)
    doubts = {one.checkpoint.step: one.doubt for one in checkpoints_judged(policy)}
    assert doubts[20] == ""
    assert "of step 30" in doubts[40]
    assert last_healthy(policy).step == 20
    alert(policy, 5, "warning")
    assert last_healthy(policy).step == 20


def test_an_alert_of_a_past_that_was_left_does_not_count(policy: Run) -> None:
    alert(policy, 42)
    RunAttempt.objects.create(run=policy, number=2, resumed_from_step=40)
    Run.objects.filter(pk=policy.pk).update(attempt=2)
    assert last_healthy(policy).step == 40


def test_without_a_sound_checkpoint_it_is_refused_naming_each(policy: Run) -> None:
    alert(policy, 1)
    Checkpoint.objects.filter(step=20).update(status="rejected")
    with pytest.raises(Conflict) as refusal:
        services.run_roll_back(run=policy)
    assert refusal.value.code == "no_healthy_checkpoint"
    for words in ("step 43", "step 40", "rejected by a person", "Roll back to its start"):
        assert words in refusal.value.message
    Checkpoint.objects.filter(run=policy).delete()
    with pytest.raises(Conflict, match="saved no checkpoint"):
        services.run_roll_back(run=policy)
    assert services.run_roll_back(run=policy, to=services.START)


def test_a_run_that_trains_is_not_gone_back_from(policy: Run) -> None:
    Run.objects.filter(pk=policy.pk).update(state="running", ended_at=None)
    policy.refresh_from_db()
    with pytest.raises(Conflict, match="cancel it first"):
        services.run_roll_back(run=policy)


def test_a_second_way_back_keeps_the_first_reference(policy: Run) -> None:
    first = services.run_roll_back(run=policy)
    checkpoint(first, 12, "last")
    Run.objects.filter(pk=first.pk).update(state="cancelled", ended_at=timezone.now())
    first.refresh_from_db()
    second = services.run_roll_back(run=first)
    assert second.inputs.get(role="reference").checkpoint.step == 60
    assert second.inputs.get(role="policy").checkpoint.run == first


def test_dpo_goes_back_to_its_start_only(
    ended: Callable[..., Run], snapshot_make: Callable[..., Snapshot], wire: FakeWire
) -> None:
    run = ended("dpo", failure_kind="guard_gradient", config={"learning_rate": 1e-6})
    RunInput.objects.create(run=run, role="data", snapshot=snapshot_make("preferences"))
    base = checkpoint(ended("sft", "finished"), 60, "final")
    RunInput.objects.create(run=run, role="sft", checkpoint=base)
    checkpoint(run, 10, "last")
    with pytest.raises(Conflict, match="starts from"):
        services.run_roll_back(run=run)
    made = services.run_roll_back(run=run, to=services.START)
    assert made.config["learning_rate"] == pytest.approx(5e-7)
    assert made.inputs.get(role="sft").checkpoint == base


# --- doing it again ---


def test_a_policy_is_evaluated_with_what_its_run_read(policy: Run, emil: User) -> None:
    model = Checkpoint.objects.get(run=policy, step=40)
    Run.objects.filter(pk=policy.pk).update(config={"max_new_tokens": 24, "steps": 3})
    model.refresh_from_db()
    made = services.checkpoint_evaluate(checkpoint=model, user=emil)
    read = {row.role: row.checkpoint or row.snapshot for row in made.inputs.all()}
    assert read["policy"] == model
    assert read["sft"].step == 60
    assert read["reward"].step == 9
    assert read["prompts"].kind == "prompts"
    assert (made.kind, made.config, made.seed) == ("evaluate", {"max_new_tokens": 24}, 7)
    assert made.name == "a ppo, step 40: evaluation"


def test_a_policy_of_a_policy_is_compared_with_the_sft_model_both_come_from(policy: Run) -> None:
    later = services.run_roll_back(run=policy)
    model = checkpoint(later, 5, "last")
    read = services.evaluation_inputs(model)
    assert read["sft"].step == 60
    assert read["reward"].step == 9


def test_a_reward_model_is_not_evaluated_as_a_policy(ended: Callable[..., Run]) -> None:
    model = checkpoint(ended("reward", "finished"), 9, "final")
    with pytest.raises(Conflict, match="Only a policy"):
        services.checkpoint_evaluate(checkpoint=model)


def test_the_same_run_in_small_differs_in_nothing_else(policy: Run, emil: User) -> None:
    made = services.run_reproduce_small(run=policy, user=emil, idempotency_key="m")
    assert made.config == policy.config | {"minimal": True}
    assert made.seed == policy.seed
    assert {row.role for row in made.inputs.all()} == {row.role for row in policy.inputs.all()}
    assert services.run_reproduce_small(run=policy, idempotency_key="m") == made
    assert AuditEvent.objects.get(action="run.reproduced").details == {"run": made.pk}


def test_a_kind_without_a_small_form_says_so(ended: Callable[..., Run]) -> None:
    with pytest.raises(Conflict, match="no small form"):
        services.run_reproduce_small(run=ended("drill", "finished"))


# `manage.py replay_events`: a spool is imported as often as one likes.


KILLED = Failed("killed", "machine", "It was killed.", retryable=True)


def spool(path: Path, *batches: dict) -> Path:
    lines = [json.dumps(event) for each in batches for event in each["events"]]
    path.write_text("\n".join(lines) + "\n")
    return path


def replay(path: Path) -> dict[str, int]:
    out = StringIO()
    call_command("replay_events", str(path), stdout=out, stderr=StringIO())
    words = (line.split() for line in out.getvalue().splitlines())
    return {line[0]: int(line[1]) for line in words}


def test_a_spool_is_applied_once_and_skipped_from_then_on(run: Run, tmp_path: Path) -> None:
    logs = [Log(lines=[str(n)]) for n in range(450)]
    path = spool(tmp_path / "s", batch(run, Opened(), *logs, Progress(step=9), Finished(step=9)))
    nothing = {"applied": 0, "superseded": 0, "skipped": 0, "invalid": 0, "unreadable": 0}
    assert replay(path) == nothing | {"applied": 453}
    run.refresh_from_db()
    assert (run.state, run.step) == ("finished", 9)
    assert replay(path) == nothing | {"skipped": 453}


def test_it_continues_where_the_wire_was_cut(run: Run, tmp_path: Path) -> None:
    events = [Opened(), measured(1, 3), Progress(step=3), Finished(step=3)]
    report(run, *events[:2])
    found = replay(spool(tmp_path / "s", batch(run, *events)))
    assert (found["skipped"], found["applied"]) == (2, 2)


def test_events_of_a_superseded_attempt_are_kept_for_the_record(run: Run, tmp_path: Path) -> None:
    report(run, Opened(), KILLED)
    path = spool(tmp_path / "s", batch(run, Opened(), KILLED, Log(lines=["late"])))
    found = replay(path)
    assert (found["skipped"], found["superseded"], found["applied"]) == (2, 1, 0)
    run.refresh_from_db()
    assert (run.attempt, run.state) == (2, "queued")
    assert RunEvent.objects.filter(run=run, attempt=1).count() == 3


def test_torn_and_foreign_lines_are_counted_and_passed_over(run: Run, tmp_path: Path) -> None:
    path = spool(tmp_path / "s", batch(run, Opened(), Progress(step=2)))
    path.write_text("a warning\n\n" + path.read_text() + '{"version": 1, "run"')
    found = replay(path)
    assert (found["applied"], found["unreadable"]) == (2, 2)


def test_a_spool_with_a_hole_is_refused_from_there_on_and_says_so(run: Run, tmp_path: Path) -> None:
    sent = batch(run, Opened(), Progress(step=1), Progress(step=2))
    del sent["events"][1]
    error = StringIO()
    with pytest.raises(CommandError, match="Not everything"):
        call_command(
            "replay_events", str(spool(tmp_path / "s", sent)), stdout=StringIO(), stderr=error
        )
    assert "event 2 is missing" in error.getvalue()
    run.refresh_from_db()
    assert run.step == 0


def test_a_spool_of_a_run_from_elsewhere_is_refused(run: Run, tmp_path: Path) -> None:
    sent = batch(run, Opened())
    sent["events"][0]["run"] = "elsewhere"
    error = StringIO()
    with pytest.raises(CommandError):
        call_command(
            "replay_events", str(spool(tmp_path / "s", sent)), stdout=StringIO(), stderr=error
        )
    assert "run elsewhere, attempt 1" in error.getvalue()


def test_a_file_that_cannot_be_read_is_an_error(db: None, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        call_command("replay_events", str(tmp_path / "none"))
