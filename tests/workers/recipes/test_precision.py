"""Trainings with frozen weights in bfloat16, bases in 4 bits, moments in 8."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.workers.recipes.conftest import PLANTED_PPO
from tests.workers.recipes.language import Workshop, tiny_llama
from tests.workers.recipes.test_resume import check_joined, curves, stop_and_resume
from workers.artifacts import state_of
from workers.contract.events import RecipeError
from workers.models import loading
from workers.models.loading import hold_in_half

pytestmark = pytest.mark.spread

SHORT = {"learning_rate": 1e-3, "batch_size": 8, "max_steps": 4, "log_every": 1, "eval_every": 2}
SAMPLED = SHORT | {"sample_prompts": 2, "sample_max_new_tokens": 4}
ADAPTED = {"lora_rank": 4}
PPO = PLANTED_PPO | {"steps": 3, "eval_every": 2}
GRPO = {name: value for name, value in PPO.items() if name != "minibatch_size"} | {
    "group_size": 4,
    "batch_size": 16,
    "kl_coef": 0.05,
}
INPUTS = {"sft": "half", "data": "preferences"}


@pytest.fixture(scope="module")
def models(workshop: Workshop) -> Workshop:
    """`half`: its files hold bfloat16; `wide`: layers of over 4,096 weights."""
    half = tiny_llama(7).bfloat16()
    half.config.dtype = torch.bfloat16
    workshop.put_model("half", half)
    workshop.put_model("wide", tiny_llama(8, width=64))
    return workshop


@pytest.mark.parametrize("kind", ["dpo", "ppo", "grpo"])
def test_a_reference_of_its_own_in_bfloat16_gives_the_curves_of_one_in_float32(
    models: Workshop, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []
    monkeypatch.setattr(loading, "hold_in_half", lambda m: held.append(m) or hold_in_half(m))
    config, inputs = SAMPLED, INPUTS
    if kind != "dpo":
        config = PPO if kind == "ppo" else GRPO
        config, inputs = config | {"lora_rank": 0}, {"sft": "half", "prompts": "prompts"}
    made = [
        models.run_here(
            models.spec(f"{kind}_{frozen}", kind, config | {"frozen_weights": frozen}, **inputs)
        )
        for frozen in ("float32", "bfloat16")
    ]
    wide, half = (curves(outcome) for outcome in made)
    assert len(wide) > 10
    assert half == wide
    assert len(held) == 1


@pytest.mark.parametrize("kind", ["sft", "dpo", "reward", "ppo", "grpo"])
@pytest.mark.parametrize("kept", [{"frozen_weights": "bfloat16"}, {"base_4bit": True}], ids=str)
def test_adapters_train_over_weights_that_take_less(
    models: Workshop, kind: str, kept: dict
) -> None:
    name = f"{kind}_{'_'.join(kept)}"
    optimised = {"sft": "wide", "prompts": "prompts"}
    inputs = {
        "sft": {"base": "wide", "data": "demonstrations"},
        "dpo": INPUTS | {"sft": "wide"},
        "reward": INPUTS | {"sft": "wide"},
    }.get(kind, optimised)
    config = {"sft": SAMPLED | {"imitation_prompts": 0}, "dpo": SAMPLED, "reward": SHORT}.get(
        kind, PPO if kind == "ppo" else GRPO
    )
    outcome = models.run_here(models.spec(name, kind, config | ADAPTED | kept, **inputs))
    assert outcome.ending == "Finished"
    if kind in ("ppo", "grpo"):
        kl = outcome.curve("objective/kl")
        assert kl[min(kl)] == pytest.approx(0.0, abs=1e-4)
    if kind == "reward":
        return
    saved = outcome.all("CheckpointSaved")[-1]
    folder = models.store.get_tree(
        saved["uri"], sha256=saved["sha256"], cache=models.root / "cache"
    )
    plain = AutoModelForCausalLM.from_pretrained(folder)  # nothing of ours is needed
    assert {p.dtype for p in plain.parameters()} == {torch.float32}
    assert not getattr(plain, "is_quantized", False)


@pytest.mark.parametrize("kind", ["sft", "ppo"])
def test_moments_in_8_bits_go_on_bit_for_bit(models: Workshop, kind: str) -> None:
    config = {"optimizer": "adamw_8bit"}
    if kind == "sft":
        config |= SHORT | {"save_every": 2, "imitation_prompts": 0, "sample_prompts": 0}
        inputs = {"base": "wide", "data": "demonstrations"}
    else:
        config |= PPO | {"steps": 4, "lora_rank": 0}
        inputs = {"sft": "wide", "prompts": "prompts"}
    parts = stop_and_resume(models, kind, config, 2, prefix="bits_", **inputs)
    check_joined(*parts)
    if kind == "ppo":
        saved = parts[1].all("CheckpointSaved")[-1]
        folder = models.store.get_tree(
            saved["uri"], sha256=saved["sha256"], cache=models.root / "cache"
        )
        moments = load_file(state_of(folder) / "training_state.safetensors")
        first = [t for name, t in moments.items() if name.endswith("up_proj.weight.state1")]
        assert {tensor.dtype for tensor in first} == {torch.uint8}


def test_what_the_machine_lacks_is_named_before_anything_is_trained(
    models: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for field, value, said in (
        ("liger", True, "liger"),
        ("attention", "flash_attention_2", "attention"),
    ):
        spec = models.spec(f"no_{field}", "dpo", SHORT | {field: value}, **INPUTS)
        with pytest.raises(RecipeError, match=f"^{said}: ") as error:
            models.run_here(spec)
        assert error.value.kind == "bad_config"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for field, value in (("base_4bit", True), ("optimizer", "adamw_8bit")):
        spec = models.spec(f"no_{field}", "dpo", SHORT | ADAPTED | {field: value}, **INPUTS)
        with pytest.raises(RecipeError, match=f"^{field}: needs bitsandbytes"):
            models.run_here(spec)


@pytest.mark.parametrize("kind", ["grpo", "ppo"])
def test_a_run_with_this_setting_is_refused_where_there_are_no_two_gpus(
    workshop: Workshop, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    config = {"reward": {"type": "model"}, "spread_reward": True, "learning_rate": 1e-3}
    config |= {"max_prompt_length": 16, "max_new_tokens": 8}
    inputs = {"sft": "base", "prompts": "prompts", "reward": "base"}
    with pytest.raises(RecipeError, match="spread_reward: needs two GPUs") as raised:
        workshop.run_here(workshop.spec(f"spread_{kind}", kind, config, **inputs))
    assert raised.value.kind == "too_few_gpus"
