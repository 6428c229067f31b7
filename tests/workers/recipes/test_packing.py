"""Demonstrations that share rows: the steps, losses and weights of those that have rows alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
)
from trl import SFTConfig

from tests.workers.recipes.conftest import SUBJECTS
from tests.workers.recipes.language import (
    Workshop,
    assistant,
    tiny_gpt2,
    tiny_llama,
    user,
    word_tokenizer,
)
from tests.workers.recipes.test_dpo_losses import arguments, gradients, one_step
from tests.workers.recipes.test_resume import check_joined, curves, stop_and_resume
from tests.workers.recipes.test_several_processes import weights
from workers.config import SettingsError, settings_for
from workers.contract.events import RecipeError
from workers.data.batches import (
    encode_turns,
    padded_tokens,
    parts_under,
    row_tokens,
    shared_rows,
)
from workers.layouts.shards import Shares
from workers.memory.plan import plan_of
from workers.models.loading import disable_dropout
from workers.trainers.sft import DemonstrationTrainer

pytestmark = [
    pytest.mark.spread,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
]
CONFIG = {
    "learning_rate": 2e-3,
    "batch_size": 8,
    "max_length": 64,
    "max_steps": 6,
    "epochs": 4,
    "log_every": 1,
    "eval_every": 3,
    "save_every": 100,
    "sample_prompts": 0,
    "imitation_prompts": 0,
}
INPUTS = {"base": "base", "data": "uneven_talks"}


def talk(subject: str, length: int, turns: int) -> list[dict[str, str]]:
    earlier = (user(f"{subject} sleeps") + assistant("a bad cat")) * (turns - 1)
    return earlier + user(subject) + assistant(f"{subject} runs " * length + "a good dog")


@pytest.fixture(scope="module")
def shop(workshop: Workshop) -> Workshop:
    """Short and long talks, of one answer and of several."""
    rows = [
        {"messages": talk(subject, 1 + 5 * (i % 4 == 0), 1 + i % 3)}
        for i, subject in enumerate(SUBJECTS)
    ]
    workshop.put_snapshot("uneven_talks", train=rows[::2] + rows[1:12:2], dev=rows[13::2])
    workshop.put_model("gpt2", tiny_gpt2())
    workshop.put_model("bloom", bloom())
    return workshop


def bloom() -> PreTrainedModel:
    """It weighs tokens by their distance in the row and takes no positions."""
    config = BloomConfig(vocab_size=len(word_tokenizer()), hidden_size=16, n_layer=2, n_head=2)
    return BloomForCausalLM(config)


def windowed() -> PreTrainedModel:
    shape = tiny_llama().config.to_dict() | {"sliding_window": 4}
    shape = {name: value for name, value in shape.items() if name != "model_type"}
    torch.manual_seed(0)
    return MistralForCausalLM(MistralConfig(**shape)).eval()


def eager() -> PreTrainedModel:
    model = tiny_llama()
    model.set_attn_implementation("eager")
    return model


def trainer_of(
    folder: Path, model: PreTrainedModel, rows: list[Any], shares: Shares, **config: Any
) -> DemonstrationTrainer:
    disable_dropout(model)
    return DemonstrationTrainer(
        model=model,
        args=SFTConfig(**arguments(folder), max_length=64),
        settings=settings_for("sft", config),
        train_rows=rows,
        eval_rows=rows,
        tokenizer=word_tokenizer(),
        shares=shares,
    )


def tokens_of(parts: list[dict[str, Any]]) -> list[int]:
    """Of each part, padding included."""
    return [sum(labels.numel() for _, labels in part["rectangles"]) for part in parts]


@pytest.mark.parametrize("budget", [None, 70])
@pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2, windowed, eager], ids=lambda f: f.__name__)
def test_loss_and_gradient_are_those_of_rows_alone_in_fewer_tokens(
    make: Callable[[], PreTrainedModel], budget: int | None, tmp_path: Path
) -> None:
    tokenizer = word_tokenizer()
    talks = [talk(subject, 1 + i % 5, 1 + i % 3) for i, subject in enumerate(SUBJECTS[:9])]
    rows = [
        encode_turns(tokenizer, each[:-1], each[-1]["content"], max_length=64)[0] for each in talks
    ]
    assert any(row.others for row in rows)
    found = []
    for packing in (False, True):
        trainer = trainer_of(
            tmp_path / f"{packing}",
            make(),
            rows,
            Shares(),
            packing=packing,
            max_tokens_per_batch=budget,
        )
        step = trainer.data_collator(rows)
        inputs = [inputs for part in step for inputs, _ in part["rectangles"]]
        assert any("position_ids" in given for given in inputs) == packing
        found.append((one_step(trainer, step), gradients(trainer.model), tokens_of(step)))
        assert trainer.evaluate()["eval_loss"] == pytest.approx(float(found[-1][0]), rel=1e-5)
    (loss, gradient, tokens), (packed_loss, packed_gradient, packed_tokens) = found
    assert float(packed_loss) == pytest.approx(float(loss), rel=1e-6)
    assert (packed_gradient - gradient).norm() < 1e-5 * gradient.norm()
    assert sum(packed_tokens) < sum(tokens)
    assert max(packed_tokens) <= (budget or max(tokens))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"lora_rank": 4, "gradient_accumulation": 2},
        {"max_tokens_per_batch": 80, "gradient_checkpointing": True, "loss_type": "dft"},
    ],
    ids=["whole", "adapters", "budget"],
)
@pytest.mark.parametrize("base", ["base", "gpt2"])
def test_a_run_has_the_curves_and_weights_of_one_that_pads(
    shop: Workshop, base: str, more: dict[str, Any]
) -> None:
    name = f"{base}_{'_'.join(more)}"
    alone, packed = (
        shop.run_here(
            shop.spec(
                f"packs_{packing}_{name}",
                "sft",
                CONFIG | more | {"packing": packing},
                **INPUTS | {"base": base},
            )
        )
        for packing in (False, True)
    )
    expected, found = curves(alone), curves(packed)
    assert found.keys() == expected.keys()
    for metric, points in expected.items():
        assert found[metric] == pytest.approx(points, rel=1e-4, abs=1e-5), metric
    assert abs(expected["eval/loss"][6] - expected["eval/loss"][0]) > 0.01
    torch.testing.assert_close(
        determined(weights(shop, packed)), determined(weights(shop, alone)), rtol=1e-4, atol=1e-4
    )


def determined(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Without the biases of keys: they move no probability of attention, so their gradients are
    what rounding leaves, and Adam makes whole steps of those, others on each kind of processor."""
    parts = {name: value.chunk(3) for name, value in found.items() if "c_attn.bias" in name}
    return found | {name: torch.cat((query, value)) for name, (query, _, value) in parts.items()}


def test_it_goes_on_bit_for_bit_where_it_was_stopped(shop: Workshop) -> None:
    config = CONFIG | {"packing": True, "max_tokens_per_batch": 100}
    check_joined(*stop_and_resume(shop, "sft", config, 4, prefix="packs_", **INPUTS))


def test_a_model_that_knows_no_positions_of_texts_is_refused(shop: Workshop) -> None:
    spec = shop.spec("packs_bloom", "sft", CONFIG | {"packing": True}, **INPUTS | {"base": "bloom"})
    with pytest.raises(RecipeError, match=r"^packing: .*'bloom'") as raised:
        shop.run_here(spec)
    assert raised.value.kind == "bad_config"


@pytest.mark.parametrize("other", [{"attention": "flash_attention_2"}, {"liger": True}], ids=str)
def test_kernels_that_were_not_run_with_it_are_refused_at_launch(other: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="packing"):
        settings_for("sft", {"packing": True} | other)


LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=30)


@given(lengths=LENGTHS, row_length=st.integers(60, 200), one=st.booleans())
def test_shared_rows_hold_every_text_once_and_never_take_more_tokens_than_rows_alone(
    lengths: list[int], row_length: int, one: bool
) -> None:
    rows = shared_rows(lengths, row_length)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    filled = [sum(lengths[i] for i in row) for row in rows]
    assert max(filled) <= row_length
    assert all(filled)
    apart = padded_tokens(lengths, one_rectangle=one)
    together = padded_tokens(lengths, one_rectangle=one, row_length=row_length)
    assert sum(lengths) <= together <= apart
    assert together <= len(rows) * max(filled)


@given(lengths=LENGTHS, budget=st.integers(60, 300))
def test_parts_of_shared_rows_keep_under_the_budget(lengths: list[int], budget: int) -> None:
    parts = parts_under([(length,) for length in lengths], budget=budget, row_length=60)
    assert sorted(i for part in parts for i in part) == list(range(len(lengths)))
    for part in parts:
        assert padded_tokens([lengths[i] for i in part], row_length=60) <= budget


def test_a_budget_takes_more_texts_at_once_where_they_share_rows() -> None:
    texts = [(100,)] * 2 + [(50,)] * 6
    assert len(parts_under(texts, budget=500, row_length=None)) == 2
    assert parts_under(texts, budget=500, row_length=100) == [list(range(8))]


@given(lengths=LENGTHS, batch=st.integers(1, 8), budget=st.sampled_from([None, 60, 150]))
def test_the_memory_ledger_counts_no_less_than_shared_rows_take(
    lengths: list[int], batch: int, budget: int | None
) -> None:
    config = {"packing": True, "max_length": 96, "batch_size": batch}
    settings = settings_for("sft", config | {"max_tokens_per_batch": budget, "base_model": "x"})
    plan = plan_of("sft", settings, policy=tiny_llama().config, longest_row=max(lengths))
    step = [(length,) for length in lengths[:batch]]
    for part in parts_under(step, budget=budget, row_length=96):
        of_part = [lengths[i] for i in part]
        rows = shared_rows(of_part, 96)
        if row_tokens(rows, of_part) < padded_tokens(of_part):
            longest = max(sum(of_part[i] for i in row) for row in rows)
            assert longest <= plan.update_length
            assert row_tokens(rows, of_part) <= plan.update_rows * plan.update_length
