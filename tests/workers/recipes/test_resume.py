"""A run that is stopped and resumed shows the curve of one that never stopped.

In this process rather than in one of its own, on the same recipes: five processes would cost half
a minute of imports.
"""

import pytest

from tests.workers.recipes.conftest import PLANTED_PPO
from tests.workers.recipes.language import Outcome, Workshop


def curves(outcome: Outcome) -> dict[str, dict[int, float]]:
    return {name: outcome.curve(name) for name in sorted(outcome.repeated_names())}


def stop_and_resume(
    workshop: Workshop, kind: str, config: dict, after: int, *, prefix: str = "", **inputs: str
):
    """(the uninterrupted run, its first part, its second part), named `prefix` and kind."""
    name = prefix + kind
    whole = workshop.run_here(workshop.spec(f"{name}_whole", kind, config, **inputs))
    first_spec = workshop.spec(f"{name}_cut", kind, config, **inputs)
    first = workshop.run_here(first_spec, after_step=after)
    second = workshop.run_here(
        workshop.spec(
            f"{name}_cut", kind, config, attempt=2, resume=workshop.resume(first), **inputs
        )
    )
    return whole, first, second


def check_joined(whole: Outcome, first: Outcome, second: Outcome) -> None:
    stopped_at = first.all("CheckpointSaved")[-1]["step"]
    wanted, before, after = curves(whole), curves(first), curves(second)
    assert stopped_at < max(step for points in wanted.values() for step in points)
    for name, points in wanted.items():
        joined = {s: v for s, v in before.get(name, {}).items() if s <= stopped_at}
        joined |= {s: v for s, v in after.get(name, {}).items() if s > stopped_at}
        # the stop itself adds points (a last evaluation); none of the whole run's may be missing
        assert {step: joined[step] for step in points} == points, name
    assert min(step for points in after.values() for step in points) > stopped_at


def test_ppo_goes_on_bit_for_bit_where_it_was_stopped(workshop: Workshop) -> None:
    config = PLANTED_PPO | {
        "steps": 6,
        "kl_controller": "adaptive",
        "kl_target": 0.5,
        "warmup_share": 0.5,
        "eval_every": 2,
    }
    parts = stop_and_resume(workshop, "ppo", config, 3, sft="base", prompts="prompts")
    check_joined(*parts)
    whole, _, second = parts
    assert second.summary["last"] == whole.summary["last"]
    assert len(set(whole.curve("kl_coef").values())) > 1  # the controller did move


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # inside TRL
@pytest.mark.parametrize("kind", ["reward", "dpo"])
def test_pair_training_goes_on_bit_for_bit_where_it_was_stopped(
    workshop: Workshop, kind: str
) -> None:
    config = {
        "learning_rate": 1e-3,
        "batch_size": 16,
        "max_length": 32,
        "max_steps": 8,
        "epochs": 2,
        "log_every": 1,
        "eval_every": 4,
        "save_every": 100,
    }
    if kind == "dpo":
        config |= {"sample_max_new_tokens": 4, "sample_prompts": 2}
    check_joined(*stop_and_resume(workshop, kind, config, 5, sft="base", data="preferences"))


def test_sft_goes_on_bit_for_bit_with_the_tokenizer_it_built(workshop: Workshop) -> None:
    config = {
        "learning_rate": 5e-3,
        "batch_size": 4,
        "epochs": 3,
        "max_length": 64,
        "base_vocabulary": 300,
        "base_width": 32,
        "base_layers": 1,
        "base_heads": 2,
        "base_context": 64,
        "held_out_share": 0.2,
        "log_every": 1,
        "eval_every": 3,
        "sample_prompts": 0,
    }
    check_joined(*stop_and_resume(workshop, "sft", config, 4, data="demonstrations"))


def test_a_cancelled_run_saves_where_it_was_and_leaves_evaluation_and_audit(
    workshop: Workshop,
) -> None:
    spec = workshop.spec("cancelled", "ppo", PLANTED_PPO, sft="base", prompts="prompts")
    outcome = workshop.run_here(spec, command="cancel", after_step=2)
    saved = outcome.all("CheckpointSaved")[-1]
    assert saved["step"] < 5
    assert saved["tags"] == ["last"]
    assert not outcome.all("Generated")


# Every kind of training can be looked at before it runs, and run in small.


PAIRS = {"batch_size": 16, "max_length": 32, "learning_rate": 1e-3}
KINDS = {
    "sft": ({"batch_size": 4, "max_length": 32, "epochs": 50}, {"base": "base"}),
    "reward": (PAIRS | {"epochs": 50, "folds": 2}, {"sft": "base", "data": "preferences"}),
    "dpo": (PAIRS | {"epochs": 50}, {"sft": "base", "data": "preferences"}),
    "kto": (PAIRS | {"epochs": 50}, {"sft": "base", "data": "answers"}),
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
