"""DPO runs: the reference they take, adapters, and going on where they were stopped."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer

from tests.workers.recipes.conftest import preference_rows
from tests.workers.recipes.language import (
    Outcome,
    Workshop,
    tiny_llama,
    trl_computes,
    user,
    word_tokenizer,
)
from tests.workers.recipes.test_dpo_losses import ROWS, arguments, assistant, preferences
from tests.workers.recipes.test_resume import check_joined, curves, stop_and_resume
from workers.artifacts import state_of
from workers.config import settings_for
from workers.contract.events import RecipeError
from workers.contract.jobs import ONE
from workers.models.loading import load_causal, save_model
from workers.recipes.dpo import with_reference
from workers.trainers.dpo import FILE, PairTrainer, encode_pairs

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
SHORT = {
    "learning_rate": 1e-3,
    "batch_size": 16,
    "max_length": 32,
    "max_steps": 8,
    "epochs": 2,
    "log_every": 1,
    "eval_every": 4,
    "save_every": 100,
    "sample_max_new_tokens": 4,
    "sample_prompts": 2,
}
DATA = {"sft": "base", "data": "preferences"}


def checkpoint(workshop: Workshop, outcome: Outcome) -> Path:
    """The folder of a run's last checkpoint."""
    saved = outcome.all("CheckpointSaved")[-1]
    cache = workshop.root / "looked"
    return workshop.store.get_tree(saved["uri"], sha256=saved["sha256"], cache=cache)


@trl_computes
@pytest.mark.parametrize("rank", [0, 4])
def test_a_policy_edited_in_memory_is_its_own_reference_and_not_what_lies_at_its_path(
    tmp_path: Path, rank: int
) -> None:
    """TRL loads the reference from the path in the policy's configuration: the unedited model."""
    save_model(tiny_llama(), word_tokenizer(), tmp_path / "model")

    def edited() -> Any:
        policy = load_causal(tmp_path / "model")
        with torch.no_grad():
            for weight in policy.parameters():
                weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(3)))
        return policy

    settings = settings_for("dpo", {"lora_rank": rank})
    policy, reference = with_reference(edited(), settings, ONE)
    pairs = encode_pairs(word_tokenizer(), preferences(), 64)
    ours = PairTrainer(
        model=policy,
        args=DPOConfig(**arguments(tmp_path / "ours"), max_length=64),
        settings=settings,
        train_pairs=pairs,
        eval_pairs=pairs,
        tokenizer=word_tokenizer(),
        reference=reference,
    )
    figures = ours.evaluate()
    assert figures["eval_rewards/chosen"] == pytest.approx(0.0, abs=1e-6)
    assert figures["eval_loss"] == pytest.approx(torch.tensor(2.0).log().item(), abs=1e-6)
    if rank:
        return
    rows = [
        {"prompt": user(p), "chosen": assistant(c), "rejected": assistant(r)} for p, c, r in ROWS
    ]
    theirs = DPOTrainer(
        model=edited(),
        args=DPOConfig(**arguments(tmp_path / "theirs"), max_length=64),
        train_dataset=Dataset.from_list(rows),
        eval_dataset=Dataset.from_list(rows),
        processing_class=word_tokenizer(),
    )
    assert abs(theirs.evaluate()["eval_rewards/chosen"]) > 0.1


@trl_computes
def test_adapters_that_are_trained_already_are_no_reference(tmp_path: Path) -> None:
    """TRL copies them as they are, and finds no distance between a trained policy and itself."""

    def trained() -> Any:
        settings = settings_for("dpo", {"lora_rank": 4})
        policy, reference = with_reference(tiny_llama(), settings, ONE)
        with torch.no_grad():
            for name, weight in policy.named_parameters():
                if "lora_B" in name:
                    weight.fill_(0.05)
        return policy, reference, settings

    policy, reference, settings = trained()
    pairs = encode_pairs(word_tokenizer(), preferences(), 64)
    ours = PairTrainer(
        model=policy,
        args=DPOConfig(**arguments(tmp_path / "ours"), max_length=64),
        settings=settings,
        train_pairs=pairs,
        eval_pairs=pairs,
        tokenizer=word_tokenizer(),
        reference=reference,
    )
    assert abs(ours.evaluate()["eval_rewards/chosen"]) > 0.01
    rows = Dataset.from_list(
        [{"prompt": user(p), "chosen": assistant(c), "rejected": assistant(r)} for p, c, r in ROWS]
    )
    theirs = DPOTrainer(
        model=trained()[0],
        args=DPOConfig(**arguments(tmp_path / "theirs"), max_length=64),
        train_dataset=rows,
        eval_dataset=rows,
        processing_class=word_tokenizer(),
    )
    assert theirs.evaluate()["eval_rewards/chosen"] == pytest.approx(0.0, abs=1e-6)


def test_dpo_with_adapters_goes_on_bit_for_bit_and_leaves_a_model_anyone_can_load(
    workshop: Workshop,
) -> None:
    config = SHORT | {"lora_rank": 4, "lora_alpha": 8, "learning_rate": 1e-2}
    whole, first, second = stop_and_resume(workshop, "dpo", config, 5, prefix="lora_", **DATA)
    check_joined(whole, first, second)
    assert second.summary["reference_sha256"] == whole.summary["reference_sha256"]
    assert abs(whole.curve("eval/rewards/margins")[0]) < 1e-6
    assert 0 not in whole.curve("eval/rewards/accuracies")  # it prefers neither answer yet
    assert whole.curve("eval/rewards/margins")[8] > 0.1
    assert abs(whole.curve("objective/kl")[0]) < 1e-6
    folder = checkpoint(workshop, whole)
    names = {path.name for path in folder.iterdir()}
    assert {"model.safetensors", "tokenizer.json", "adapter"} <= names
    assert not any("lora" in name for name in load_file(folder / "model.safetensors"))
    config_file = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    assert config_file["r"] == 4
    assert [path.name for path in (folder / "adapter").iterdir() if path.is_dir()] == []
    moved = AutoModelForCausalLM.from_pretrained(folder)
    base = tiny_llama()
    ids = torch.tensor([encode_pairs(word_tokenizer(), preferences(), 64)[0].chosen.ids])
    assert not torch.allclose(moved(ids).logits, base(ids).logits, atol=1e-3)


def test_a_resumed_run_reads_the_references_values_back_and_goes_on_bit_for_bit(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SHORT | {"precompute_reference": True, "max_tokens_per_batch": 200}
    spec = workshop.spec("known_whole", "dpo", config, **DATA)
    whole = workshop.run_here(spec)
    first = workshop.run_here(workshop.spec("known_cut", "dpo", config, **DATA), after_step=5)
    monkeypatch.setattr("workers.recipes.dpo.precompute", None)  # nothing is computed again
    resume = workshop.resume(first)
    second = workshop.run_here(
        workshop.spec("known_cut", "dpo", config, attempt=2, resume=resume, **DATA)
    )
    check_joined(whole, first, second)
    assert whole.summary["reference_precomputed"]
    live = workshop.run_here(
        workshop.spec("asked", "dpo", config | {"precompute_reference": False}, **DATA)
    )
    for step, value in live.curve("eval/loss").items():
        assert whole.curve("eval/loss")[step] == pytest.approx(value, abs=1e-5)
    assert (state_of(checkpoint(workshop, second)) / FILE).is_file()
    assert not (state_of(checkpoint(workshop, live)) / FILE).exists()


def test_splitting_a_step_and_checkpointing_activations_leave_the_curve_as_it_was(
    workshop: Workshop,
) -> None:
    plain = workshop.run_here(workshop.spec("plain", "dpo", SHORT, **DATA))
    config = SHORT | {"max_tokens_per_batch": 100, "gradient_checkpointing": True}
    split = workshop.run_here(workshop.spec("split", "dpo", config, **DATA))
    one, other = curves(plain), curves(split)
    assert one.keys() == other.keys()
    for name in ("loss", "eval/loss", "eval/rewards/margins", "entropy", "logps/chosen"):
        assert other[name] == pytest.approx(one[name], rel=1e-3, abs=1e-4), name


@pytest.mark.parametrize(
    ("loss", "config"),
    [("simpo", {"beta": 2.0, "simpo_gamma": 1.0}), ("orpo", {"beta": 0.5, "lora_rank": 4})],
)
def test_without_a_reference_it_prefers_the_chosen_answers_and_goes_on_bit_for_bit(
    workshop: Workshop, loss: str, config: dict
) -> None:
    config = SHORT | {"max_steps": 12, "learning_rate": 5e-3, "loss_type": loss} | config
    parts = stop_and_resume(workshop, "dpo", config, 7, prefix=f"{loss}_", **DATA)
    check_joined(*parts)
    whole = parts[0]
    margins = whole.curve("eval/rewards/margins")
    assert margins[12] > margins[0] + 0.1
    assert whole.summary["held_out_accuracy"] > 0.9
    assert whole.curve("objective/kl")[12] > abs(whole.curve("objective/kl")[0])


def test_weights_that_dpo_does_not_read_are_told(workshop: Workshop) -> None:
    rows = [row | {"weight": 2.0} for row in preference_rows(0)]
    workshop.put_snapshot("weighty", train=rows, dev=preference_rows(1))
    spec = workshop.spec("weighty", "dpo", SHORT | {"max_steps": 1}, sft="base", data="weighty")
    outcome = workshop.run_here(spec)
    assert any("every pair" in "".join(log["lines"]) for log in outcome.all("Log"))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"loss_type": "exo_pair"}, "exo_pair needs one over 0"),
        ({"label_smoothing": 0.1}, "sigmoid has none"),
        ({"loss_type": "aot", "max_tokens_per_batch": 100}, "cannot be split"),
        ({"loss_type": "aot", "gradient_accumulation": 2}, "cannot be split"),
        ({"loss_type": "kto_pair"}, "is none of"),
    ],
)
def test_losses_that_do_not_go_with_other_fields_are_refused_before_anything_is_loaded(
    config: dict, said: str
) -> None:
    with pytest.raises(RecipeError) as raised:
        settings_for("dpo", config)
    assert raised.value.kind == "bad_config"
    assert said in raised.value.message
