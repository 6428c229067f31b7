"""Every kind of training can be looked at before it runs, and run in small."""

import pytest

from tests.workers.recipes.conftest import PLANTED_PPO
from tests.workers.recipes.language import Workshop

PAIRS = {"batch_size": 16, "max_length": 32, "learning_rate": 1e-3}
KINDS = {
    "sft": ({"batch_size": 4, "max_length": 32, "epochs": 50}, {"base": "base"}),
    "reward": (PAIRS | {"epochs": 50, "folds": 2}, {"sft": "base", "data": "preferences"}),
    "dpo": (PAIRS | {"epochs": 50}, {"sft": "base", "data": "preferences"}),
    "ppo": (PLANTED_PPO | {"steps": 500, "reward_check": "warn"}, {"sft": "base"}),
}


def inputs_of(kind: str) -> dict[str, str]:
    return {"prompts": "prompts", "data": "demonstrations"} | KINDS[kind][1]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # inside TRL
@pytest.mark.parametrize("kind", KINDS)
def test_a_preflight_reports_and_trains_nothing(workshop: Workshop, kind: str) -> None:
    config = KINDS[kind][0] | {"preflight": True}
    outcome = workshop.run_here(workshop.spec(f"look_{kind}", kind, config, **inputs_of(kind)))
    assert outcome.summary["step"] == 0
    assert outcome.summary["preflight"]
    assert outcome.metric_names() == set()
    assert outcome.all("CheckpointSaved") == []
    assert any("Preflight" in line for log in outcome.all("Log") for line in log["lines"])


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # inside TRL
@pytest.mark.parametrize("kind", KINDS)
def test_a_minimal_reproduction_is_the_same_run_in_a_few_steps(
    workshop: Workshop, kind: str
) -> None:
    config = KINDS[kind][0] | {"minimal": True}
    outcome = workshop.run_here(workshop.spec(f"small_{kind}", kind, config, **inputs_of(kind)))
    assert 0 < outcome.summary["step"] <= 8
    told = [line for log in outcome.all("Log") for line in log["lines"]]
    assert any("minimal reproduction" in line for line in told)
