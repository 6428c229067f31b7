"""A probe says the same of the same model, and something else of another one."""

import json
import shutil
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

from tests.workers.checks.conftest import ASKED, Case
from tests.workers.recipes.language import WORDS
from workers.contract.events import RecipeError
from workers.models.loading import load_causal, weights_sha256

Report = dict[str, Any]
_count = iter(range(1000))


def probed(case: Case, config: Mapping[str, Any] | None = None, **inputs: str) -> Report:
    spec = case.spec(f"probe-{next(_count)}", "probe", ASKED | dict(config or {}), **inputs)
    outcome = case.run_here(spec)
    written = json.loads(
        (case.root / "store" / outcome.all("ArtifactSaved")[-1]["uri"]).read_text()
    )
    assert written["version"] == 1
    return outcome.summary | {"prompts": written["prompts"]}


def scorer(seed: int) -> LlamaForSequenceClassification:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(WORDS) + 4,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        pad_token_id=1,
        num_labels=1,
        initializer_range=0.3,
    )
    return LlamaForSequenceClassification(config).eval()


@pytest.fixture(scope="module")
def watched(case: Case) -> Case:
    for seed in (0, 1):
        case.put_speaker(f"scorer-{seed}", scorer(seed))
    return case


POLICY = {"policy": "base", "prompts": "prompts"}


def test_the_same_model_answers_the_same_to_the_last_digit(watched: Case) -> None:
    first, again = probed(watched, **POLICY), probed(watched, **POLICY)
    assert first == again
    model = load_causal(watched.root / "models" / "base")
    assert first["weights_sha256"] == {"policy": weights_sha256(model)}
    assert set(first["figures"]) == {
        *("score", "response_length", "ended", "repetition", "distinct"),
        *("refusals", "politeness", "compression"),
    }
    scores = [row["score"] for row in first["prompts"]]
    assert first["figures"]["score"]["n"] == len(scores) == 8 * 2
    assert first["figures"]["score"]["mean"] == pytest.approx(sum(scores) / len(scores))


def test_another_model_in_its_place_shows_in_hash_answers_and_figures(watched: Case) -> None:
    mine, other = probed(watched, **POLICY), probed(watched, **POLICY | {"policy": "stranger"})
    assert mine["weights_sha256"] != other["weights_sha256"]
    assert [row["id"] for row in mine["prompts"]] == [row["id"] for row in other["prompts"]]
    assert mine["figures"]["response_length"] != other["figures"]["response_length"]


def test_several_draws_are_one_row_a_prompt(watched: Case) -> None:
    found = probed(watched, {"draws": 3}, **POLICY)
    assert found["figures"]["score"]["n"] == 16
    thirds = [3 * row["refusals"] % 1 for row in found["prompts"]]
    assert thirds == [0.0] * 16


def test_a_score_with_an_origin_is_calibrated(watched: Case) -> None:
    found = probed(watched, {"baseline_mean": 0.0, "score_temperature": 2.0}, **POLICY)
    for row in found["prompts"]:
        assert row["calibrated"] == pytest.approx(1 / (1 + 2.718281828 ** (-row["score"] / 2)))


def test_a_reward_model_alone_is_probed_on_answers_that_stay_the_same(watched: Case) -> None:
    model = {"reward": {"type": "model"}}
    mine = probed(watched, model, reward="scorer-0", prompts="gold")
    assert mine == probed(watched, model, reward="scorer-0", prompts="gold")
    other = probed(watched, model, reward="scorer-1", prompts="gold")
    assert mine["weights_sha256"] != other["weights_sha256"]
    assert mine["figures"]["score"]["n"] == 32
    right = [row["accuracy"] for row in mine["prompts"] if "accuracy" in row]
    assert mine["figures"]["accuracy"]["mean"] == sum(right) / 16
    with pytest.raises(RecipeError, match="holds no answers to score"):
        probed(watched, model, reward="scorer-0", prompts="prompts")


def test_a_damaged_model_is_named(watched: Case) -> None:
    copied = watched.root / "store" / "inputs" / "damaged"
    shutil.copytree(watched.root / "store" / watched.refs["base"].uri, copied)
    weights = copied / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8] + b"12345678")
    ref = watched.refs["base"]
    watched.refs["damaged"] = type(ref)("damaged", ref.kind, "d", "inputs/damaged", ref.sha256)
    with pytest.raises(RecipeError) as raised:
        probed(watched, policy="damaged", prompts="prompts")
    assert raised.value.kind == "damaged_input"
    assert "model.safetensors" in raised.value.message


def test_a_probe_that_had_no_time_for_all_prompts_is_no_probe(watched: Case) -> None:
    slow = {"draws": 4, "max_seconds": 1e-9}
    with pytest.raises(RecipeError, match="raise max_seconds"):
        probed(watched, slow, **POLICY)
