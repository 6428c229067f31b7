"""The registered metrics against what the recipes really emit, in both directions."""

import json
import re

import pytest

from tests.workers.ray import BY_ACTORS
from tests.workers.recipes.conftest import PLANTED_PPO, SUBJECTS, preference_rows
from tests.workers.recipes.language import Outcome, Workshop, user
from tests.workers.recipes.test_grpo import PLANTED as PLANTED_GRPO
from tests.workers.recipes.test_ppo_ensemble import put_ensemble
from tests.workers.recipes.test_process_reward import trajectories
from tests.workers.test_machine_curves import BY_MACHINE
from workers.contract.metrics import METRICS, PEOPLE, Metric, metric_of

REWARD = {
    "type": "sum",
    "parts": [
        {"name": "people", "source": {"type": "model"}},
        {
            "name": "house",
            "source": {
                "type": "rules",
                "rules": [{"name": "polite", "lacks": ["bad"], "on_violation": "block"}],
            },
        },
    ],
}
ASSESSED = {"probe_prompts": 10, "effect_answers": 10, "check_precision": False}


def emitted(planted: dict[str, Outcome], models: Workshop) -> set[str]:
    names = set().union(*(outcome.metric_names() for outcome in planted.values()))
    roles = {"sft": "base", "prompts": "prompts", "reward": "scorer", "judge": "judge"}
    asked = {"canaries": "preferences", "reward_data": "preferences"}
    asked |= {"demonstrations": "demonstrations"}
    put_ensemble(models, "documented_ensemble", threshold=1e9)
    ppo = models.spec(
        "documented_ppo",
        "ppo",
        PLANTED_PPO | {"steps": 1, "reward": REWARD, "watch_phrases": ["good dog"]},
        **roles | asked | {"reward": "documented_ensemble"},
    )
    grpo = models.spec(
        "documented_grpo",
        "grpo",
        PLANTED_GRPO | {"steps": 1, "sample_every": 1, "reward": REWARD},
        **roles | {"reward": "documented_ensemble"},
    )
    final = json.dumps({"category": "sums", "test": "final_state", "value": {}})
    tasks = [{"prompt": user(s), "answer": "good", "check": final} for s in SUBJECTS]
    models.put_snapshot("documented_tasks", train=tasks)
    acting = {"environment": "calculator", "tool_template": "plain", "max_prompt_length": 56}
    tools = models.spec(
        "documented_tools",
        "grpo",
        PLANTED_GRPO
        | acting
        | {"steps": 1, "reward": {"type": "verifier", "check": "final_state"}},
        sft="base",
        prompts="documented_tasks",
    )
    models.put_snapshot("documented_steps", train=trajectories(8, 1), dev=trajectories(32, 2))
    steps = models.spec(
        "documented_process_reward",
        "process_reward",
        {"batch_size": 4, "max_length": 64, "max_steps": 1},
        sft="base",
        data="documented_steps",
    )
    check = json.dumps({"category": "says something", "test": "answers"})
    asked_known = [{"prompt": user(s), "answer": "a", "check": check} for s in SUBJECTS]
    models.put_snapshot("documented_answers", train=asked_known[:1], dev=asked_known[1:])
    evaluation = models.spec(
        "documented_evaluation",
        "evaluate",
        {"max_new_tokens": 4, "max_prompt_length": 16, "max_prompts": 4},
        policy="policy",
        **roles | {"prompts": "documented_answers"},
    )
    assessment = models.spec(
        "documented_assessment", "assess", ASSESSED, reward="scorer", data="preferences"
    )
    imitation = models.spec(
        "documented_sft",
        "sft",
        {"batch_size": 4, "max_length": 32, "max_steps": 1, "sample_max_new_tokens": 4},
        base="base",
        data="demonstrations",
        general="demonstrations",
    )
    mixed = preference_rows(1)
    for row in mixed[::3]:  # held-out pairs that no margins separate
        row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
    models.put_snapshot("documented_mixed", train=preference_rows(0), dev=mixed)
    members = models.spec(
        "documented_members",
        "reward",
        {"batch_size": 4, "max_length": 32, "max_steps": 2, "eval_every": 1, "members": 2},
        sft="base",
        data="documented_mixed",
    )
    drill = models.spec("documented_drill", "drill", {"steps": 1, "metrics_per_step": 2})
    for spec in (ppo, grpo, tools, steps, evaluation, assessment, imitation, members, drill):
        names |= models.run_here(spec).metric_names()
    return names


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # inside TRL
def test_every_emitted_metric_is_registered_and_every_registered_one_emitted(
    planted: dict[str, Outcome], models: Workshop
) -> None:
    seen = emitted(planted, models) | BY_ACTORS | BY_MACHINE
    # Figures of projects, not of runs: each is planted in tests/monitoring/test_people.py.
    seen |= {one.name for one in METRICS if one.panel == PEOPLE}
    assert {name for name in seen if metric_of(name) is None} == set()
    never = [one.name for one in METRICS if not any(stands_for(one, name) for name in seen)]
    assert never == []


def stands_for(metric: Metric, name: str) -> bool:
    pattern = re.sub(r"<\w+>", ".+", re.escape(metric.name))
    return re.fullmatch(pattern, name) is not None
