"""Experiments are launched about a run with what it left, or say what is missing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import DomainError, Missing
from apps.monitoring.models import Incident
from apps.monitoring.selectors.checks import IN_SMALL
from apps.monitoring.services.alerting import incidents_sweep
from apps.monitoring.services.checks import check_launch, check_results, experiment_states
from apps.snapshots.models import Snapshot
from apps.training import selectors, services
from apps.training.models import Checkpoint, Run, RunAttempt, RunInput
from tests.training.conftest import FakeWire
from tests.training.reports import report, saved
from workers.contract import Alert, ArtifactSaved, Failed, Finished, Metrics, Opened, spec_from_json
from workers.contract.events import Event, Fault
from workers.preflight.minimal import MOST
from workers.rules.experiments import EXPERIMENTS

OPENED = Opened()
CONFIG = {"temperature": 0.7, "max_new_tokens": 48, "save_every": 20, "learning_rate": 0.001}


def rollouts(seq: int) -> ArtifactSaved:
    uri = f"runs/x/attempt-1/artifacts/rollouts-{seq}/rollouts.jsonl"
    return ArtifactSaved("rollouts.jsonl", uri, f"{seq:064d}", 10, "application/x-ndjson")


def snapshot(project: Project, kind: str, **rows: int) -> Snapshot:
    return Snapshot.objects.create(
        project=project,
        name=f"some {kind}",
        kind=kind,
        state="frozen",
        uri="snapshots/x",
        sha256="0" * 64,
        counts={"rows": rows},
        frozen_at=timezone.now(),
    )


def model(project: Project, kind: str, data: Snapshot | None = None) -> Checkpoint:
    run = Run.objects.create(project=project, name=f"a {kind}", kind=kind, attempt=1)
    RunAttempt.objects.create(run=run, number=1)
    if data is not None:
        RunInput.objects.create(run=run, role="data", snapshot=data)
    report(run, OPENED, saved(9, "final", sha256=f"{run.pk:0>64}"), Finished(step=9))
    return Checkpoint.objects.get(run=run)


@pytest.fixture
def pairs(project: Project) -> Snapshot:
    return snapshot(project, "preferences", train=80, dev=10, test=20)


@pytest.fixture
def ppo(
    project: Project, wire: FakeWire, artifacts: Path, pairs: Snapshot, emil: User
) -> Callable[..., Run]:
    """A PPO run that has reported `events`; keyword arguments change its launch."""

    def make(*events: Event, **changes: Any) -> Run:
        given: dict[str, Any] = {
            "project": project,
            "kind": "ppo",
            "name": "the policy",
            "config": CONFIG,
            "inputs": {
                "prompts": snapshot(project, "prompts", train=50, dev=5),
                "sft": model(project, "sft"),
                "reward": model(project, "reward", pairs),
            },
            "seed": 5,
            "user": emil,
            "override_reason": "to look into it",
        }
        run = services.run_launch(**(given | changes))
        wire.claimed(run)
        report(run, OPENED, *events)
        return run

    return make


LOOKED = Metrics(
    steps=[0, 20, 40],
    values={
        "eval/kl": [0.0, 1.5, 4.0],
        "eval/score": [0.1, 0.4, 0.9],
        "val/explained_variance": [0.0, 0.2, 0.3],
    },
)
LEFT = (LOOKED, saved(20, "best"), rollouts(20), saved(40, "last"), rollouts(40))


def given(made: Run) -> dict[str, Any]:
    rows = RunInput.objects.filter(run=made)
    return {row.role: row.snapshot or row.checkpoint or row.artifact for row in rows}


def test_a_check_reads_what_the_run_left_and_asks_as_the_run_asked(
    ppo: Callable[..., Run], emil: User
) -> None:
    run = ppo(*LEFT)
    made = check_launch(run=run, experiment="kl_reference", user=emil)
    assert (made.kind, made.queue, made.about, made.seed) == ("check", "short", run, 5)
    read = given(made)
    assert read["policy"].step == 40
    assert read["reference"] == run.inputs.get(role="sft").checkpoint
    assert read["rollouts"].sha256 == f"{40:064d}", "the newest counts"
    assert made.config["reported"] == 4.0
    asked = {name: made.config[name] for name in ("check", "temperature", "max_new_tokens", "step")}
    assert asked == {
        "check": "kl_reference",
        "temperature": 0.7,
        "max_new_tokens": 48,
        "step": 40,
    }
    spec = spec_from_json(RunAttempt.objects.get(run=made).spec)
    ref = spec.input("rollouts")
    assert (ref.kind, ref.uri, ref.sha256) == (
        "artifact",
        read["rollouts"].uri,
        read["rollouts"].sha256,
    )
    event = AuditEvent.objects.get(action="run.checked")
    assert (event.subject, event.details) == (
        run.pk,
        {"experiment": "kl_reference", "run": made.pk},
    )


def test_the_checkpoint_nearest_the_trouble_is_asked(ppo: Callable[..., Run]) -> None:
    made = check_launch(run=ppo(*LEFT), experiment="protocol", step=22)
    assert (given(made)["policy"].step, made.config["step"]) == (20, 20)
    assert made.config["reported"] == pytest.approx(0.3)


@pytest.mark.parametrize("name", sorted(set(EXPERIMENTS) - {"fewer_passes"}))  # of rows
def test_every_experiment_can_be_launched_about_a_run_that_left_everything(
    ppo: Callable[..., Run], emil: User, name: str
) -> None:
    made = check_launch(run=ppo(*LEFT), experiment=name, user=emil)
    assert made.queue == "short"
    assert made.about.name == "the policy"
    assert len(made.name) > len("the policy")


def test_canaries_are_pairs_of_their_own_or_those_the_reward_never_learned_from(
    ppo: Callable[..., Run], pairs: Snapshot, project: Project
) -> None:
    made = check_launch(run=ppo(*LEFT), experiment="canaries")
    assert (given(made)["canaries"], made.config["canary_rows"]) == (pairs, "held_out")
    assert given(made)["reward_data"] == pairs
    gold = snapshot(project, "preferences", train=30)
    run = ppo(*LEFT)
    RunInput.objects.create(run=run, role="canaries", snapshot=gold)
    made = check_launch(run=run, experiment="canaries")
    assert (given(made)["canaries"], made.config["canary_rows"]) == (gold, "all")
    bare = snapshot(project, "preferences", train=30, private_test=20)
    inputs = {
        "prompts": snapshot(project, "prompts", train=5, dev=2),
        "sft": model(project, "sft"),
        "reward": model(project, "reward", bare),
    }
    with pytest.raises(DomainError) as refusal:
        check_launch(run=ppo(*LEFT, inputs=inputs), experiment="canaries")
    assert (refusal.value.code, refusal.value.field) == ("nothing_to_check", "canaries")


def test_a_reward_that_is_a_rule_needs_no_model(ppo: Callable[..., Run], project: Project) -> None:
    rule = {"reward": {"type": "token_count", "token": "good"}}
    inputs = {"prompts": snapshot(project, "prompts", train=5, dev=2), "sft": model(project, "sft")}
    run = ppo(*LEFT, config=CONFIG | rule, inputs=inputs)
    made = check_launch(run=run, experiment="rescore")
    assert (set(given(made)), made.config["reward"]) == ({"rollouts"}, rule["reward"])


def test_what_is_missing_is_told_with_what_to_do(ppo: Callable[..., Run], project: Project) -> None:
    run = ppo()
    states = {one.experiment.id: one for one in experiment_states(run)}
    assert "come back" in states["reward_plot"].why_not
    assert "every 20 steps" in states["kl_reference"].why_not
    assert states["canaries"].available
    assert states["minimal"].available
    with pytest.raises(DomainError, match="no checkpoint"):
        check_launch(run=run, experiment="sampler")
    with pytest.raises(Missing):
        check_launch(run=run, experiment="magic")
    grpo = ppo(*LEFT, kind="grpo")
    states = {one.experiment.id: one for one in experiment_states(grpo)}
    assert "has no critic" in states["critic_fit"].why_not
    elsewhere = Run.objects.create(project=project, name="theirs", kind="imported")
    assert not any(one.available for one in experiment_states(elsewhere))
    sft = Run.objects.create(project=project, name="taught", kind="sft")
    states = {one.experiment.id: one for one in experiment_states(sft)}
    assert states["minimal"].available
    assert "follows no reward" in states["rescore"].why_not
    assert "'update_epochs'" in states["fewer_epochs"].why_not


def test_numbers_that_broke_are_not_asked(ppo: Callable[..., Run]) -> None:
    run = ppo(
        *LEFT,
        saved(41, "failed", uri="runs/x/attempt-1/checkpoints/step-41"),
        Failed("non_finite", Fault.GUARD, "a loss is NaN"),
    )
    assert given(check_launch(run=run, experiment="sampler"))["policy"].step == 40
    other = ppo(
        *LEFT,
        saved(41, "failed", uri="runs/x/attempt-1/checkpoints/step-41"),
        Failed("guard_kl", Fault.GUARD, "too far"),
    )
    assert given(check_launch(run=other, experiment="sampler"))["policy"].step == 41


def test_two_clicks_are_one_launch_and_what_is_under_way_is_given_again(
    ppo: Callable[..., Run],
) -> None:
    run = ppo(*LEFT)
    first = check_launch(run=run, experiment="rescore", key="a")
    assert check_launch(run=run, experiment="rescore", key="a") == first
    assert check_launch(run=run, experiment="rescore", key="b") == first, "still under way"
    assert check_launch(run=run, experiment="reward_plot", key="a") != first
    report(first, OPENED, Finished(step=1, summary={}))
    assert check_launch(run=run, experiment="rescore", key="a") == first
    again = check_launch(run=run, experiment="rescore", key="c")
    assert again != first


def test_a_repetition_changes_one_setting_and_keeps_the_rest(ppo: Callable[..., Run]) -> None:
    run = ppo(*LEFT)
    small = check_launch(run=run, experiment="minimal")
    assert (small.kind, small.config) == ("ppo", CONFIG | {"minimal": True})
    slower = check_launch(run=run, experiment="slower")
    assert slower.config == CONFIG | {"minimal": True, "learning_rate": pytest.approx(1e-4)}
    passes = check_launch(run=run, experiment="fewer_epochs")
    assert passes.config["update_epochs"] == 1
    assert given(slower) == given(run)
    assert slower.override_reason
    alone = ppo(*LEFT, config=CONFIG | {"update_epochs": 1})
    with pytest.raises(DomainError, match="is 1 already"):
        check_launch(run=alone, experiment="fewer_epochs")


def test_results_stand_beside_their_experiment(ppo: Callable[..., Run]) -> None:
    run = ppo(*LEFT)
    made = check_launch(run=run, experiment="rescore")
    (state,) = check_results(run)
    assert (state.run, state.outcome, state.is_live) == (made, "", True)
    report(made, OPENED, Finished(step=1, summary={"outcome": "refutes", "words": "The same."}))
    (state,) = check_results(run)
    assert (state.outcome, state.words, state.is_live) == ("refutes", "The same.", False)
    broken = check_launch(run=run, experiment="sampler")
    report(broken, OPENED, Failed("damaged_input", Fault.DATA, "input 'policy': damaged"))
    states = {one.experiment.id: one for one in check_results(run)}
    assert states["sampler"].outcome == "undecided"
    assert "input 'policy': damaged" in states["sampler"].words


def alert(rule: str) -> Alert:
    return Alert(rule=rule, severity="warning", step=2, message=rule, value=1.0)


@pytest.mark.parametrize(
    ("experiment", "events", "outcome"),
    [
        ("minimal", (alert("kl"), Finished(step=4, summary={})), "confirms"),
        ("minimal", (alert("entropy"), Finished(step=4, summary={})), "undecided"),
        ("slower", (alert("kl"), Finished(step=4, summary={})), "refutes"),
        ("slower", (Failed("no_rows", Fault.DATA, "nothing fits"),), "undecided"),
    ],
)
def test_a_trouble_that_comes_back_in_small_is_told(
    ppo: Callable[..., Run], experiment: str, events: tuple[Event, ...], outcome: str
) -> None:
    run = ppo(*LEFT, alert("kl"))
    made = check_launch(run=run, experiment=experiment)
    report(made, OPENED, *events)
    (state,) = check_results(run)
    assert state.outcome == outcome, state.words


def test_a_change_runs_as_long_as_it_takes_to_decide_and_says_so_before(
    ppo: Callable[..., Run],
) -> None:
    late = Alert(rule="kl", severity="warning", step=20, message="kl", value=1.0)
    run = ppo(*LEFT, late)
    states = {one.experiment.id: one for one in experiment_states(run)}
    assert "it must run 30 steps" in states["slower"].needs
    assert "by step 20" in states["slower"].needs
    assert states["minimal"].needs == ""
    made = check_launch(run=run, experiment="slower")
    assert made.config == CONFIG | {"steps": 30, "learning_rate": pytest.approx(1e-4)}
    assert made.queue == run.queue
    report(made, OPENED, Finished(step=30, summary={}))
    (state,) = check_results(run)
    assert (state.outcome, "In 30 steps" in state.words) == ("confirms", True)


def test_what_is_small_is_what_the_trainer_makes_small() -> None:
    assert {name: MOST[name] for name in IN_SMALL} == IN_SMALL


def test_a_contract_that_holds_in_small_refutes(ppo: Callable[..., Run]) -> None:
    run = ppo(*LEFT, Failed("contract_kl_at_start", Fault.CONFIGURATION, "another checkpoint"))
    made = check_launch(run=run, experiment="minimal")
    report(made, OPENED, Finished(step=4, summary={}))
    (state,) = check_results(run)
    assert state.outcome == "refutes"


def test_lineage_names_the_run_whose_file_was_read_and_builds_nothing_on_a_check(
    ppo: Callable[..., Run],
) -> None:
    run = ppo(*LEFT)
    made = check_launch(run=run, experiment="kl_reference")
    nodes = {node.role: node for node in selectors.lineage_up(made)}
    assert nodes["rollouts"].id == run.pk
    assert nodes["rollouts"].detail.endswith("rollouts.jsonl")
    assert selectors.lineage_down(run) == []


def test_files_of_other_projects_and_other_files_are_refused(
    ppo: Callable[..., Run], olga: User
) -> None:
    run = ppo(*LEFT, ArtifactSaved("audit.jsonl", "runs/x/audit.jsonl", "a" * 64, 3, "x"))
    files = {row.name: row for row in run.artifacts.all()}
    check = {"kind": "check", "name": "mine", "config": {}, "seed": 1}
    elsewhere = Project.objects.get(slug="elsewhere")
    with pytest.raises(DomainError) as refusal:
        services.run_launch(
            project=elsewhere, inputs={"rollouts": files["rollouts.jsonl"]}, **check
        )
    assert (refusal.value.code, refusal.value.field) == ("unknown_input", "inputs.rollouts")
    with pytest.raises(DomainError, match=r"audit\.jsonl"):
        services.run_launch(project=run.project, inputs={"rollouts": files["audit.jsonl"]}, **check)
    with pytest.raises(DomainError, match="'rollouts'"):
        services.run_launch(project=run.project, inputs={}, **check)
    with pytest.raises(DomainError, match="no such run"):
        services.run_launch(project=elsewhere, inputs={}, about=run, **check | {"kind": "drill"})


def test_a_check_whose_model_made_room_while_it_waited_asks_the_newer_one(
    ppo: Callable[..., Run], commits: Callable[..., Any], emil: User
) -> None:
    run = ppo(*LEFT)
    first = check_launch(run=run, experiment="sampler", user=emil)
    report(run, saved(60, "last"), first=2 + len(LEFT))
    gone = Failed("damaged_input", Fault.DATA, "input 'policy': artifact 'x' is missing")
    with commits():
        report(first, OPENED, gone)
    (state,) = check_results(run)
    assert (state.run.pk != first.pk, state.is_live, state.run.created_by) == (True, True, emil)
    assert given(state.run)["policy"].step == 60
    for _ in range(2):
        (state,) = check_results(run)
        with commits():
            report(state.run, OPENED, gone)
    assert Run.objects.filter(about=run).count() == 3, "twice again, and no more"
    report(run, Finished(step=60, summary={}), first=3 + len(LEFT))
    after = check_launch(run=run, experiment="sampler", user=emil)
    with commits():
        report(after, OPENED, gone)
    assert Run.objects.filter(about=run).count() == 4, "what an ended run left does not make room"


def test_a_trouble_that_a_repetition_brings_back_opens_no_incident(
    ppo: Callable[..., Run], commits: Callable[..., Any]
) -> None:
    with commits():
        run = ppo(*LEFT, alert("kl"))
    assert Incident.objects.filter(run=run).count() == 1
    made = check_launch(run=run, experiment="minimal")
    with commits():
        report(made, OPENED, alert("kl"), Failed("contract_mask", Fault.BUG, "row 3"))
    incidents_sweep()
    assert list(Incident.objects.values_list("run", flat=True)) == [run.pk]
