"""Weights kept in bfloat16 or 4 bits: what a model then says, learns, and saves."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from tests.workers.recipes.language import tiny_gpt2, tiny_llama, word_tokenizer
from workers.config.policy import PPOSettings
from workers.memory.plan import plan_of
from workers.models.forward import score_responses
from workers.models.loading import Keep, hold_in_half, load_causal, save_model, weights_sha256
from workers.models.lora import attach_policy_lora, merged

HALF = Keep(frozen="bfloat16")
MODELS = {"llama": tiny_llama, "gpt2": tiny_gpt2}


@pytest.fixture(params=MODELS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model whose files hold bfloat16."""
    model = MODELS[request.param](3).bfloat16()
    model.config.dtype = torch.bfloat16
    save_model(model, word_tokenizer(), tmp_path / "model")
    return tmp_path / "model"


def sequences() -> tuple[Tensor, ...]:
    ids = torch.arange(4, 12).reshape(2, 4)
    return ids, torch.ones_like(ids), ids.flip(1), torch.ones_like(ids)


def said(model: Any) -> Tensor:
    return score_responses(model, *sequences(), temperature=1.0).logprobs


def bytes_of(model: torch.nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())


def test_a_model_kept_in_half_says_what_it_says_in_float32_to_the_bit(folder: Path) -> None:
    wide, half = load_causal(folder), load_causal(folder, keep=HALF)
    with torch.no_grad():
        assert torch.equal(said(half), said(wide))
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(said(half), said(wide))
        assert not torch.equal(said(wide.bfloat16().float()), said(tiny_llama(4)))
    assert weights_sha256(half) == weights_sha256(load_causal(folder))
    assert bytes_of(half) < 0.6 * bytes_of(wide.float())
    ids = sequences()[0]
    answers = [
        m.generate(ids, max_new_tokens=6, do_sample=False) for m in (half, load_causal(folder))
    ]
    assert torch.equal(*answers)


def test_adapters_over_it_get_the_gradient_of_float32(folder: Path) -> None:
    gradients = []
    for kept in (Keep(), HALF):
        torch.manual_seed(0)
        model = attach_policy_lora(load_causal(folder, keep=kept), rank=2, alpha=4.0)
        with torch.no_grad():  # both factors take part
            for name, parameter in model.named_parameters():
                if "lora_" in name:
                    parameter.normal_(generator=torch.Generator().manual_seed(len(name)))
        assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}
        said(model).sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.requires_grad])
    assert len(gradients[0]) > 4
    for wide, half in zip(*gradients, strict=True):
        assert torch.allclose(half, wide, rtol=1e-5, atol=1e-7)
        assert wide.abs().max() > 0


def test_no_wide_copy_waits_for_the_backward_pass(folder: Path) -> None:
    model = load_causal(folder, keep=HALF)
    model.get_input_embeddings().weight.requires_grad_(False)
    kept: list[Tensor] = []
    adapted = attach_policy_lora(model, rank=2, alpha=4.0)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        said(adapted)
    shapes = {tuple(p.shape) for p in model.parameters() if p.dtype == torch.bfloat16}
    shapes |= {shape[::-1] for shape in shapes}
    own = {p.data_ptr() for p in adapted.parameters()}
    wide = [t for t in kept if tuple(t.shape) in shapes and t.dtype == torch.float32]
    assert not [t for t in wide if t.data_ptr() not in own]


def test_it_is_saved_as_its_files_were(folder: Path, tmp_path: Path) -> None:
    half = load_causal(folder, keep=HALF)
    save_model(half, word_tokenizer(), tmp_path / "again")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "again", dtype="auto")
    before = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert {p.dtype for p in again.parameters()} == {torch.bfloat16}
    for name, value in before.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)


def test_merged_it_is_what_float32_merges_to(folder: Path) -> None:
    made = []
    for kept in (Keep(), HALF):
        torch.manual_seed(0)
        model = attach_policy_lora(load_causal(folder, keep=kept), rank=2, alpha=4.0)
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                torch.nn.init.constant_(parameter, 0.1)
        made.append(merged(model))
    wide, half = (model.state_dict() for model in made)
    assert all(torch.equal(half[name].float(), value) for name, value in wide.items())


def test_auto_keeps_float32_without_a_gpu(folder: Path) -> None:
    model = load_causal(folder, keep=Keep(frozen="auto"))
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_tied_tables_stay_one(tmp_path: Path) -> None:
    model = tiny_gpt2(1)
    assert model.lm_head.weight is model.transformer.wte.weight
    half = hold_in_half(copy.deepcopy(model))
    assert half.lm_head.weight is half.transformer.wte.weight
    assert half.lm_head.weight.dtype == torch.bfloat16


# In 4 bits.


@pytest.fixture
def wide_folder(tmp_path: Path) -> Path:
    save_model(tiny_llama(5, width=64), word_tokenizer(), tmp_path / "wide")
    return tmp_path / "wide"


def test_4_bits_say_almost_the_same_and_take_less(wide_folder: Path) -> None:
    wide, small = load_causal(wide_folder), load_causal(wide_folder, keep=Keep(four_bit=True))
    with torch.no_grad():
        gap = (said(small) - said(wide)).abs().mean()
    assert 0 < gap < 0.5
    assert bytes_of(small) < 0.6 * bytes_of(wide)  # tables and norms are whole


def test_a_checkpoint_of_adapters_over_4_bits_answers_as_they_did(
    wide_folder: Path, tmp_path: Path
) -> None:
    torch.manual_seed(2)  # of the adapters
    model = attach_policy_lora(
        load_causal(wide_folder, keep=Keep(four_bit=True)), rank=2, alpha=4.0
    )
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    with torch.no_grad():
        before = -said(model).mean()
    for _ in range(5):
        loss = -said(model).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert -said(model).mean() < before
    save_model(merged(model), word_tokenizer(), tmp_path / "merged")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert {p.dtype for p in plain.parameters()} == {torch.float32}
    with torch.no_grad():
        assert torch.allclose(said(plain), said(model), atol=1e-3)
        assert (said(plain) - said(load_causal(wide_folder))).abs().max() > 0.05


def test_answering_in_between_changes_no_gradient_of_adapters_over_4_bits(
    wide_folder: Path,
) -> None:
    """On processors with AVX512-BF16 the library would go over to a kernel without gradients."""
    model = attach_policy_lora(
        load_causal(wide_folder, keep=Keep(four_bit=True)), rank=2, alpha=4.0
    )
    trained = [p for p in model.parameters() if p.requires_grad]
    for parameter in trained:
        torch.nn.init.normal_(parameter, std=0.1)

    def gradients() -> list[Tensor]:
        return list(torch.autograd.grad(said(model).mean(), trained))

    before = gradients()
    with torch.no_grad():
        said(model)
    after = gradients()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(gradient.abs().max() > 0 for gradient in before)


def test_the_ledger_knows_what_they_take(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=2000,
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=8,
        num_attention_heads=4,
        pad_token_id=0,
    )
    save_model(LlamaForCausalLM(config), word_tokenizer(), tmp_path / "model")
    for settings, kept in (
        (PPOSettings(), Keep()),
        (PPOSettings(frozen_weights="bfloat16"), HALF),
        (PPOSettings(base_4bit=True), Keep(four_bit=True)),
    ):
        held = plan_of("ppo", settings, policy=config).models[0]
        told = held.own_parameters * held.weight_bytes
        assert told == pytest.approx(bytes_of(load_causal(tmp_path / "model", keep=kept)), rel=0.1)
