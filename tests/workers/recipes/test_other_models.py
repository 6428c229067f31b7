"""Models that Concord did not build: a local folder by path, and another architecture."""

import pytest

from tests.workers.recipes.conftest import PLANTED_PPO
from tests.workers.recipes.language import Workshop, tiny_gpt2, word_tokenizer
from workers.models.loading import save_model

SHORT = {"learning_rate": 1e-3, "batch_size": 8, "max_steps": 3, "log_every": 1}


@pytest.fixture(scope="module")
def gpt2(workshop: Workshop) -> Workshop:
    """An SFT model of the GPT-2 shape (absolute positions, dropout) that pads with its end."""
    tokenizer = word_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.model_max_length = 10**30  # as tokenizers say that have no limit
    folder = workshop.root / "gpt2"
    save_model(tiny_gpt2(), tokenizer, folder)
    config = SHORT | {"base_model": str(folder), "max_length": 512, "sample_prompts": 1}
    outcome = workshop.run_here(workshop.spec("gpt2", "sft", config, data="demonstrations"))
    assert outcome.summary["max_length"] == 64  # the model's positions, not the command
    workshop.adopt("gpt2", outcome)
    return workshop


def test_a_reward_model_and_ppo_start_from_a_model_of_absolute_positions(gpt2: Workshop) -> None:
    reward = gpt2.run_here(
        gpt2.spec("gpt2_reward", "reward", SHORT, sft="gpt2", data="preferences")
    )
    gpt2.adopt("gpt2_reward", reward)
    config = PLANTED_PPO | {"steps": 2, "reward": {"type": "model"}}
    outcome = gpt2.run_here(
        gpt2.spec("gpt2_ppo", "ppo", config, sft="gpt2", prompts="prompts", reward="gpt2_reward")
    )
    assert outcome.curve("objective/kl")[1] == pytest.approx(0.0, abs=1e-4)
    assert outcome.curve("objective/kl")[2] > 0.0


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # inside TRL
def test_dpo_starts_from_a_model_that_pads_with_its_end_token(gpt2: Workshop) -> None:
    config = SHORT | {"sample_max_new_tokens": 4, "sample_prompts": 2}
    outcome = gpt2.run_here(gpt2.spec("gpt2_dpo", "dpo", config, sft="gpt2", data="preferences"))
    margins = outcome.curve("eval/rewards/margins")
    assert margins[0] == pytest.approx(0.0, abs=1e-4)
    assert margins[3] > 0.0
