"""A reward model over several devices: where its layers go, and that it scores the same."""

import pytest
import torch
from accelerate import dispatch_model
from transformers import LlamaConfig, LlamaForSequenceClassification

from workers.contract.events import RecipeError
from workers.rewards import model as reward_model
from workers.rewards.model import device_map, lower, spread


def scorer(layers: int = 8) -> LlamaForSequenceClassification:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_labels=1,
        pad_token_id=0,
    )
    return LlamaForSequenceClassification(config).eval()


def bytes_on(model: torch.nn.Module, found: dict[str, int]) -> dict[int, int]:
    """By device, of the weights that lie there."""
    total: dict[int, int] = {}
    for name, weight in model.named_parameters():
        (where,) = {d for of, d in found.items() if name == of or name.startswith(f"{of}.")}
        total[where] = total.get(where, 0) + weight.numel() * weight.element_size()
    return total


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_layers_stay_whole_and_each_device_holds_about_its_share(precision: str) -> None:
    model = lower(scorer(), precision)
    found = device_map(model, {0: 10**9, 1: 10**9})
    of_layer = {f"model.layers.{n}": found.get(f"model.layers.{n}") for n in range(8)}
    assert set(of_layer.values()) == {0, 1}  # named whole, none by its parts
    assert list(of_layer.values()) == sorted(of_layer.values())  # in their order
    if precision == "float32":
        held = bytes_on(model, found)
        assert max(held.values()) < 0.7 * sum(held.values())


def test_what_fits_on_no_devices_together_is_refused() -> None:
    with pytest.raises(RecipeError, match="does not fit into what 2 GPUs have free") as raised:
        device_map(scorer(), {0: 10_000, 1: 10_000})
    assert raised.value.kind == "out_of_memory"


def test_a_machine_without_two_gpus_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(RecipeError, match="needs two GPUs or more, and this machine has 1"):
        spread(scorer())


def test_only_the_first_process_takes_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(reward_model.ranks, "is_first", lambda: False)
    model = scorer()
    assert spread(model) is model
    assert model.device.type == "cpu"


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_dispatched_layer_by_layer_it_scores_the_same(precision: str) -> None:
    """On processors every device is the same one; the hooks between layers are those of GPUs."""
    whole, placed = lower(scorer(), precision), lower(scorer(), precision)
    found = dict.fromkeys(device_map(placed, {0: 10**9, 1: 10**9}), "cpu")
    placed = dispatch_model(placed, found, main_device="cpu", force_hooks=True)
    ids = torch.randint(1, 64, (4, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    with torch.no_grad():
        expected = whole(input_ids=ids, attention_mask=mask).logits
        assert placed(input_ids=ids, attention_mask=mask).logits.equal(expected)
