"""Starting a round: which runs, waiting for which."""

import dataclasses

import pytest

from apps.accounts.models import Project, User
from apps.common import health
from apps.loop import selectors
from apps.loop.local import NEEDED, LocalWorkers
from apps.loop.selectors import NotIndependent
from apps.loop.services import CircleData, circle_start
from apps.training.models import Run, RunInput

pytestmark = pytest.mark.django_db


def wires(runs: dict[str, Run]) -> dict[str, dict[str, str]]:
    """{stage: {role: what it reads}}, snapshots by name and runs by stage."""
    stages = {run.pk: stage for stage, run in runs.items()}
    return {
        stage: {
            row.role: row.snapshot.name if row.snapshot else stages[row.upstream_id]
            for row in RunInput.objects.filter(run=run).select_related("snapshot")
        }
        for stage, run in runs.items()
    }


def test_a_round_is_a_chain_of_runs_that_wait_for_each_other(
    project: Project, data: CircleData, emil: User
) -> None:
    runs = circle_start(project=project, data=data, user=emil, preset="demo", seed=3)
    models = {"reward": "reward", "judge": "judge"}
    others = {"canaries": "Pairs for the judge"}
    known = others | {"reward_data": "Pairs"}
    assert wires(runs) == {
        "sft": {"data": "Shown"},
        "reward": {"data": "Pairs", "sft": "sft"} | others,
        "judge": {"data": "Pairs for the judge", "sft": "sft"},
        "dpo": {"data": "Pairs", "sft": "sft"} | others,
        "ppo": {"prompts": "Asked", "sft": "sft"} | models | known,
        "evaluate": {"prompts": "Asked", "policy": "ppo", "sft": "sft"} | models,
        "assess": {"data": "Pairs", "prompts": "Asked", "policy": "ppo", "sft": "sft"} | models,
        "generate": {"prompts": "Asked", "policy": "ppo", "sft": "sft"},
    }
    states = {stage: Run.objects.get(pk=run.pk).state for stage, run in runs.items()}
    assert states.pop("sft") == "queued"
    assert set(states.values()) == {"waiting"}
    assert {run.kind for run in runs.values()} == {
        "sft",
        "reward",
        "dpo",
        "ppo",
        "evaluate",
        "assess",
        "generate",
    }
    assert "nobody could approve" in runs["ppo"].override_reason
    people = {"to_people": True, "queue_priority": 1.0}
    for stage, run in runs.items():
        assert run.seed == 3
        assert run.config == {"preset": "demo"} | (people if stage == "generate" else {})


def test_starting_the_same_round_again_adds_no_run(project: Project, data: CircleData) -> None:
    first = circle_start(project=project, data=data)
    second = circle_start(project=project, data=data)
    assert {s: r.pk for s, r in first.items()} == {s: r.pk for s, r in second.items()}
    third = circle_start(project=project, data=data, round_number=2)
    assert not {r.pk for r in first.values()} & {r.pk for r in third.values()}
    assert Run.objects.count() == 16
    found = selectors.round_of(third["sft"])
    assert found == third
    left_out = {"policy", "encoder", "suite"}  # nothing is registered, and no suite given here
    assert tuple(found) == tuple(one for one in selectors.STAGES if one not in left_out)
    assert selectors.round_of(Run(project=project)) == {}


def test_the_judge_shares_nobody_and_nothing_with_the_reward_model(
    project: Project, data: CircleData
) -> None:
    found = selectors.independence(preferences=data.preferences, judge=data.judge_preferences)
    assert found.proved
    assert found.shared == {"annotators": 0, "groups": 0, "arguments": 0}
    assert len(found.first.annotators) > 3
    assert len(found.second.annotators) > 3
    assert (len(found.first.groups), len(found.second.groups)) == (8, 4)


def test_a_judge_that_learned_from_the_same_people_is_refused(
    project: Project, data: CircleData
) -> None:
    same = dataclasses.replace(data, judge_preferences=data.preferences)
    with pytest.raises(NotIndependent, match="annotators, 8 groups, 32 arguments"):
        circle_start(project=project, data=same)
    assert not Run.objects.exists()


# Workers for a headless demo: what is missing is started, what others run is left alone.


@pytest.fixture
def started(monkeypatch, settings, tmp_path) -> list[str]:
    settings.VAR_DIR = tmp_path
    names: list[str] = []
    monkeypatch.setattr(
        "apps.common.processes.Supervisor.add", lambda self, program: names.append(program.name)
    )
    return names


def test_only_what_gives_no_sign_of_life_is_started(started: list[str], monkeypatch) -> None:
    monkeypatch.setattr(health, "part", lambda n: None if n == "training worker" else "silent")
    workers = LocalWorkers(lambda line: None)
    workers.ensure()
    workers.ensure()
    assert sorted(started) == ["events", "imports", "scheduler"]


def test_what_others_stopped_running_is_taken_over(started: list[str], monkeypatch) -> None:
    alive = set(health.PARTS)
    monkeypatch.setattr(health, "part", lambda n: None if n in alive else "silent")
    workers = LocalWorkers(lambda line: None)
    workers.ensure()
    assert started == []
    alive.discard("default worker")
    workers.ensure()
    assert started == ["events"]


def test_every_part_of_a_healthy_site_is_covered() -> None:
    assert {part for parts in NEEDED.values() for part in parts} == set(health.PARTS)
