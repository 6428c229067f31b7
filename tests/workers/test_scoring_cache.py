"""The cache of scores (SPEC D13): what it must never confuse, and what it must find again."""

import struct
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.workers.recipes.language import WORDS, tiny_gpt2, tiny_llama, user, word_tokenizer
from tests.workers.scored import emptied
from workers.contract.jobs import BFLOAT16, FLOAT16, INT8
from workers.data.batches import Encoded, encode_pair
from workers.models.loading import freeze, load_scorer, save_model
from workers.rewards.build import load_reward
from workers.rewards.cache import Hits, Remembered, ScoreCache, cache_of, score_key
from workers.rewards.model import IntegerLinear, lower, quantise
from workers.scoring import scorer
from workers.scoring.scorer import PrecisionGate
from workers.trainers.sft import train_tokenizer
from workers.trust.precision import rank_agreement

client = pytest.fixture(emptied)
TEXT = "the cat  runs\tgood\n and the dog sleeps "
TOKENIZER = train_tokenizer([TEXT] * 3, vocabulary=300, context=128)
VERSION = "sha256:float32"


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def key(
    response: str, *, prompt: str = "Why?", version: str = VERSION, template: str = "t"
) -> bytes:
    row = encode_pair(TOKENIZER, user(prompt), response, max_length=128)
    return score_key(version, template, [row])


def test_the_same_text_for_the_same_model_has_the_same_key() -> None:
    assert key("the cat") == key("the cat")


@pytest.mark.parametrize(
    "other",
    [
        key("the cat", prompt="Why not?"),  # the same response to another prompt
        key("the cat", version="other-sha256:float32"),  # another model
        key("the cat", version="sha256:int8"),  # the same model in another precision
        key("the cat", template="u"),  # another chat template
        key("the  cat"),  # white space is text
        key("the cat "),
        key("the cat\n"),
        key(" the cat"),
        key("The cat"),
    ],
)
def test_whatever_a_score_depends_on_makes_another_key(other: bytes) -> None:
    assert other != key("the cat")


def test_moving_the_border_between_prompt_and_response_makes_another_key() -> None:
    """The same ids in a row, as a score by position might read them differently."""
    row = Encoded([1, 2, 3, 4], prompt_length=2)
    assert score_key("v", "t", [row]) != score_key("v", "t", [replace(row, prompt_length=3)])
    # nor do two readings of one text run into each other
    one, two = Encoded([1, 2], 1), Encoded([1, 2, 1, 2], 1)
    assert score_key("v", "t", [one, one]) != score_key("v", "t", [two])


def test_a_hit_is_the_score_bit_by_bit_from_memory_and_from_redis(client) -> None:
    values = [0.1 + 0.2, -1e-17, 3.4028234663852886e38, 1 / 3]
    keys = [key(str(i)) for i in range(4)]
    first = ScoreCache(client)
    first.put(keys, [Remembered(v, {"model/member-0": v / 7}, v / 3) for v in values])
    for cache in (first, ScoreCache(client)):  # this process, and one that knows nothing yet
        for value, found in zip(values, cache.get(keys), strict=True):
            assert struct.pack("<d", found.score) == struct.pack("<d", value)
            assert found.parts == {"model/member-0": value / 7}
            assert found.disagreement == value / 3
    assert first.hits == Hits(memory=4)


def test_hits_and_misses_are_counted_where_they_happened(client) -> None:
    ScoreCache(client).put([key("a")], [Remembered(1.0)])
    cache = ScoreCache(client)
    assert cache.hits.rate is None
    cache.get([key("a"), key("b")])
    cache.get([key("a")])
    assert cache.hits == Hits(memory=1, shared=1, misses=1)
    assert cache.hits.rate == pytest.approx(2 / 3)


def test_the_entry_used_longest_ago_is_the_one_that_goes() -> None:
    cache = ScoreCache(None, entries=2)
    a, b, c = key("a"), key("b"), key("c")
    cache.put([a, b], [Remembered(1.0), Remembered(2.0)])
    cache.get([a])
    cache.put([c], [Remembered(3.0)])
    assert len(cache) == 2
    assert cache.get([a, b, c]) == [Remembered(1.0), None, Remembered(3.0)]


def test_an_entry_is_forgotten_after_an_hour_in_both_places(client) -> None:
    clock = Clock()
    cache = ScoreCache(client, clock=clock)
    cache.put([key("a")], [Remembered(1.0)])
    names = list(client.scan_iter("concord:score:cache:*"))
    assert len(names) == 1
    assert 3590 < client.ttl(names[0]) <= 3600
    client.delete(*names)
    clock.now = 3599
    assert cache.get([key("a")]) == [Remembered(1.0)]
    clock.now = 3601
    assert cache.get([key("a")]) == [None]


def test_a_redis_that_is_away_is_a_cache_that_knows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SCORE_CACHE_URL", "unix:///nonexistent/redis.sock")
    cache = cache_of(entries=10, seconds=60.0)
    assert cache.get([key("a")]) == [None]
    cache.put([key("a")], [Remembered(1.0)])
    assert cache.get([key("a")]) == [Remembered(1.0)]


# Cheaper number formats (SPEC D12): what they change, and that a coarse one is refused.


RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test draws the same numbers, whatever ran before it."""
    monkeypatch.setattr(sys.modules[__name__], "RNG", np.random.default_rng(0))


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
