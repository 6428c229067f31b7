"""A run in small keeps whatever could be the cause of trouble."""

from dataclasses import fields

import pytest

from workers.config import SETTINGS, settings_for
from workers.preflight.minimal import in_small

# What decides how long a run takes; everything else may be the cause of trouble.
SIZES = {
    *("steps", "max_steps", "max_seconds", "batch_size", "minibatch_size", "microbatch_size"),
    *("max_new_tokens", "sample_max_new_tokens", "rollout_chunk", "gradient_accumulation"),
    *("eval_every", "save_every", "sample_every", "log_every", "eval_prompts", "sample_prompts"),
    *("baseline_answers", "audit_samples", "critic_warmup_steps", "latency_requests"),
    *("bootstrap_replicates", "members", "folds"),
}
CONFIGS = [
    ("ppo", {"learning_rate": 3e-4, "kl_coef": 0.13, "clip": 0.4, "temperature": 0.7}),
    ("ppo", {"batch_size": 256, "minibatch_size": 64, "microbatch_size": 8, "critic": "separate"}),
    ("ppo", {"preset": "demo"}),
    ("grpo", {"group_size": 8, "batch_size": 64, "kl_coef": 0.1, "learning_rate": 1e-4}),
    ("grpo", {"group_size": 4, "batch_size": 48, "microbatch_size": 12}),
    (
        "grpo",
        {"update_epochs": 3, "eval_every": 9, "save_every": 12, "batch_size": 60, "group_size": 6},
    ),
    ("dpo", {"beta": 0.3, "loss_type": "ipo", "batch_size": 64, "gradient_accumulation": 16}),
    ("sft", {"learning_rate": 1e-3, "base_model": "x"}),
    ("reward", {"members": 5, "folds": 5, "dropout": 0.1}),
]


@pytest.mark.parametrize(("kind", "config"), CONFIGS)
def test_only_sizes_change_and_the_result_is_a_valid_run(kind: str, config: dict) -> None:
    settings = settings_for(kind, config)
    small = in_small(settings)
    assert small.changed
    assert set(small.changed) <= SIZES
    assert small.settings.max_seconds <= 60
    assert small.settings.batch_size <= max(16, 2 * getattr(settings, "group_size", 1))
    for field in fields(settings):
        if field.name not in small.changed:
            assert getattr(small.settings, field.name) == getattr(settings, field.name)
    # The smaller values pass the checks a configuration passes.
    values = {f.name: getattr(small.settings, f.name) for f in fields(small.settings)}
    assert settings_for(kind, values) == small.settings


def test_the_number_of_minibatches_stays() -> None:
    settings = settings_for("ppo", {"batch_size": 64, "minibatch_size": 16, "microbatch_size": 4})
    small = in_small(settings).settings
    assert (small.batch_size, small.minibatch_size, small.microbatch_size) == (8, 2, 1)


def test_groups_stay_whole_and_there_are_two() -> None:
    small = in_small(settings_for("grpo", {"group_size": 8, "batch_size": 64})).settings
    assert (small.group_size, small.batch_size) == (8, 16)


def test_a_person_is_told_what_was_changed() -> None:
    small = in_small(settings_for("ppo", {"steps": 500}))
    assert small.changed["steps"] == (500, 4)
    assert "steps 500 → 4" in small.message
    assert in_small(small.settings).changed == {}


def test_every_training_recipe_can_be_run_in_small() -> None:
    for kind in ("ppo", "grpo", "dpo", "sft", "reward"):
        assert in_small(SETTINGS[kind](**({"base_model": "x"} if kind == "sft" else {}))).settings
