"""Cheaper number formats (SPEC D12): what they change, and that a coarse one is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from measures.trust.precision import rank_agreement
from tests.workers.recipes.language import WORDS, tiny_gpt2, tiny_llama, user, word_tokenizer
from workers.models.loading import freeze, load_scorer, save_model
from workers.rewards.build import load_reward
from workers.rewards.model import BFLOAT16, FLOAT16, INT8, IntegerLinear, lower, quantise
from workers.scoring import scorer
from workers.scoring.scorer import PrecisionGate

RNG = np.random.default_rng(0)
PROMPTS = [user(" ".join(RNG.choice(WORDS, 3))) for _ in range(120)]
RESPONSES = [" ".join(RNG.choice(WORDS, RNG.integers(1, 9))) for _ in range(120)]


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Linear layers, and the transposed ones of GPT-2."""
    root = tmp_path_factory.mktemp(request.param)
    build = {"llama": tiny_llama, "gpt2": tiny_gpt2}[request.param]
    save_model(build(), word_tokenizer(), root / "base")
    torch.manual_seed(0)
    save_model(load_scorer(root / "base", word_tokenizer()), word_tokenizer(), root / "scorer")
    return root / "scorer"


def scores(folder: Path, precision: str) -> list[float]:
    source = load_reward(folder, name="m", batch_size=64, precision=precision)
    return source.score(PROMPTS, RESPONSES).values


@pytest.mark.parametrize("precision", [BFLOAT16, FLOAT16, INT8])
def test_a_cheaper_format_gives_other_numbers_in_the_same_order(
    folder: Path, precision: str
) -> None:
    full, cheap = scores(folder, "float32"), scores(folder, precision)
    assert cheap != full
    assert rank_agreement(full, cheap).value >= 0.97  # of random heads: the gate decides on 0.99
    assert np.corrcoef(full, cheap)[0, 1] > 0.99


def test_scores_in_half_precision_are_not_rounded_to_half_precision(folder: Path) -> None:
    """The head works in float32: sixteen bits would tie answers that the model tells apart."""
    values = torch.tensor(scores(folder, BFLOAT16))
    assert len(set(values.tolist())) > len(set(values.bfloat16().float().tolist()))


def test_eight_bits_are_nearly_the_layer_and_two_bits_are_not() -> None:
    torch.manual_seed(1)
    layer = torch.nn.Linear(64, 32)
    x = torch.randn(5, 7, 64)
    exact = layer(x)
    error = {
        bits: float((IntegerLinear(layer, bits=bits)(x) - exact).detach().abs().mean())
        for bits in (8, 4, 2)
    }
    assert error[8] < 0.01 * float(exact.detach().abs().mean())
    assert error[8] < error[4] < error[2]


def test_rounding_is_what_it_says_on_a_layer_by_hand() -> None:
    layer = torch.nn.Linear(2, 1, bias=True)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[127.0, -64.0]]))
        layer.bias.fill_(0.5)
    # scale 1: the weights are integers already, and so is the input after its own scale of 2
    assert IntegerLinear(layer, bits=8)(torch.tensor([[254.0, 2.0]])).item() == pytest.approx(
        254.0 * 127 - 64 * 2 + 0.5
    )
    zeros = IntegerLinear(layer, bits=8)(torch.zeros(1, 2))
    assert zeros.item() == 0.5


def test_a_two_bit_model_is_refused_and_an_eight_bit_one_is_not_worse(folder: Path) -> None:
    full = scores(folder, "float32")
    agreement = {}
    for bits in (8, 2):
        source = load_reward(folder, name="m", batch_size=64)
        quantise(source.model, bits=bits)
        other = source.score(PROMPTS, RESPONSES).values
        keys = [str(i).encode() for i in range(len(full))]
        verdict = PrecisionGate(None).compare("s", f"int{bits}", keys, full, other)
        agreement[bits] = verdict
    assert not agreement[2].passed
    assert "Ask for float32" in agreement[2].says("int2")
    assert agreement[8].agreement > agreement[2].agreement


def test_the_gate_stays_open_until_enough_distinct_texts_were_seen() -> None:
    door = PrecisionGate(None)
    values = [float(i) for i in range(scorer.ROWS)]
    keys = [str(i).encode() for i in range(scorer.ROWS)]
    for _ in range(3):  # the same few again and again are no evidence
        assert door.compare("s", INT8, keys[:60], values[:60], values[:60]) is None
    assert door.verdict("s", INT8) is None
    verdict = door.compare("s", INT8, keys, values, values)
    assert (verdict.passed, verdict.agreement, verdict.rows) == (True, 1.0, scorer.ROWS)
    assert door.verdict("s", INT8) == verdict
    assert door.verdict("other", INT8) is None


def test_a_format_that_overflows_is_refused_and_a_constant_model_is_never_decided() -> None:
    keys = [str(i).encode() for i in range(scorer.ROWS)]
    values = [float(i) for i in range(scorer.ROWS)]
    broken = [*values[:-1], float("nan")]
    assert not PrecisionGate(None).compare("s", FLOAT16, keys, values, broken).passed
    constant = [1.0] * scorer.ROWS
    assert PrecisionGate(None).compare("s", FLOAT16, keys, constant, constant) is None


def test_no_other_precision_is_known() -> None:
    with pytest.raises(ValueError, match="none of float32"):
        lower(freeze(tiny_llama()), "int3")
