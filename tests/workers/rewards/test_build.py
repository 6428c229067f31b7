"""What a configuration builds, and sums of sources."""

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from tests.workers.recipes.language import Workshop, tiny_llama, user, word_tokenizer
from tests.workers.rewards.sources import Lengths
from workers.artifacts import Store
from workers.config.parsing import setting_fields
from workers.config.rewards import (
    SOURCES,
    Bounds,
    HttpSettings,
    ModelSettings,
    PartSettings,
    RuleSettings,
    VerifierSettings,
    needs_model,
    read_reward,
    reward_errors,
)
from workers.context import RunContext
from workers.contract.events import RecipeError
from workers.models.loading import load_scorer, save_model
from workers.rewards.build import build_reward
from workers.rewards.cache import CachedReward
from workers.rewards.ensemble import EnsembleLayout
from workers.rewards.external import read_answer
from workers.rewards.model import threshold_of
from workers.rewards.source import Part, Scores, WeightedSum, calibrate

RULES = {
    "type": "rules",
    "rules": [
        {"name": "polite", "contains": ["good"], "score": 1.0, "penalty": 0.0},
        {"name": "no_rain", "lacks": ["rain"], "on_violation": "block"},
    ],
}
PROMPTS = [user("the cat"), user("sun"), user("rain")]
TEXTS = ["good", "rain", "a dog runs"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """A model, an ensemble of it and another, and prompts of which all know their answer."""
    shop = Workshop(tmp_path_factory.mktemp("shop"))
    folders = {"one": shop.root / "one", "many": shop.root / "many"}
    for seed, folder in enumerate((folders["one"], *(folders["many"] / f"m{i}" for i in (0, 1)))):
        base = shop.root / f"base{seed}"
        save_model(tiny_llama(seed), word_tokenizer(), base)
        torch.manual_seed(seed)
        save_model(load_scorer(base, word_tokenizer()), word_tokenizer(), folder)
    EnsembleLayout.fitted(("m0", "m1"), [[0.0, 1.0], [0.0, 3.0]]).write(folders["many"])
    for name, folder in folders.items():
        shop._put(name, folder, "checkpoint")
    rows = [
        {"prompt": p, "answer": a} for p, a in zip(PROMPTS, ("good", "sun", "dog"), strict=True)
    ]
    shop.put_snapshot("prompts", train=rows[:2], dev=rows[2:])
    return shop


def context(shop: Workshop, model: str = "one") -> RunContext:
    spec = shop.spec("built", "ppo", {}, reward=model, prompts="prompts")
    folder: Path = shop.root / "work"
    folder.mkdir(exist_ok=True)
    return RunContext(spec, Store(str(shop.root / "store")), folder)


def test_a_sum_of_a_model_rules_and_a_verifier_is_the_sum_of_its_parts(shop: Workshop) -> None:
    verifier = {"type": "verifier", "check": "exact"}
    parts = [
        {"name": "helpful", "weight": 0.5, "source": {"type": "model"}},
        {"name": "style", "source": RULES},
        {"name": "right", "weight": 2.0, "source": verifier},
    ]
    ctx = context(shop)
    found = build_reward(ctx, {"type": "sum", "parts": parts}, batch_size=8).score(PROMPTS, TEXTS)
    model = build_reward(ctx, {"type": "model", "cache": False}, batch_size=8)
    helpful = model.score(PROMPTS, TEXTS).values
    assert found.parts["helpful"] == helpful
    assert found.parts["style"] == [1.0, 0.0, 0.0]
    assert found.parts["style/polite"] == [1.0, 0.0, 0.0]
    assert found.parts["right/correct"] == [1.0, 0.0, 0.0]
    expected = [0.5 * h + s + 2 * r for h, s, r in zip(helpful, (1, 0, 0), (1, 0, 0), strict=True)]
    assert found.values == pytest.approx(expected)
    assert (found.blocked, found.withheld) == ([False, True, False], [False, True, False])
    assert [review and "no_rain" in review for review in found.reviews] == [None, True, None]
    assert found.known == [False] * 3


def test_a_model_is_cached_by_its_content_unless_told_otherwise(shop: Workshop) -> None:
    source = build_reward(context(shop), {"type": "model"}, batch_size=8)
    plain = build_reward(context(shop), {"type": "model", "cache": False}, batch_size=8)
    assert isinstance(source, CachedReward)
    first, again = (source.score(PROMPTS, TEXTS) for _ in range(2))
    assert first.values == again.values == plain.score(PROMPTS, TEXTS).values
    assert (first.cache_hits, again.cache_hits, source.hit_rate) == (0, 3, 0.5)
    other = build_reward(context(shop, "many"), {"type": "model"}, batch_size=8)
    assert other._version != source._version


def test_the_configuration_stands_over_the_ensembles_own_aggregate(shop: Workshop) -> None:
    """Of two members: mean − λ·std with λ 1 is their lowest, once they are on one scale."""
    ctx = context(shop, "many")

    def built(**fields: object):
        return build_reward(ctx, {"type": "model", **fields}, batch_size=8)

    own, lowest = built(), built(aggregate="min")
    priced = built(**{"aggregate": "mean_minus_lambda_std", "lambda": 1.0})
    scores = [source.score(PROMPTS, TEXTS).values for source in (own, lowest, priced)]
    assert scores[1] == pytest.approx(scores[2])
    assert all(low <= mean for low, mean in zip(scores[1], scores[0], strict=True))
    assert scores[0] != scores[1]
    assert len({source._version for source in (own, lowest, priced)}) == 3
    inside = {"type": "model", "disagreement_threshold": 0.25}
    total = {"type": "sum", "parts": [{"name": "a", "source": inside}]}
    assert threshold_of(build_reward(ctx, total, batch_size=8)) == 0.25
    assert threshold_of(own) is None  # two validation answers tell no quantile
    with pytest.raises(RecipeError, match=r"reward\.aggregate:"):
        build_reward(context(shop), {"type": "model", "aggregate": "min"}, batch_size=8)


def test_a_verifier_finds_the_answers_of_every_split(shop: Workshop) -> None:
    source = build_reward(context(shop), {"type": "verifier"}, batch_size=8)
    assert source.score(PROMPTS, ["good", "moon", "DOG"]).values == [1.0, 0.0, 1.0]


def test_flags_and_components_of_a_sum_are_united() -> None:
    class Judge(Lengths):
        threshold = 0.7

        def score(self, prompts, responses) -> Scores:
            n = len(responses)
            return Scores(
                [1.0] * n,
                {"a": [1.0] * n, "b": [2.0] * n},
                disagreement=[0.1] * n,
                reviews=["odd", None][:n],
                blocked=[False] * n,
                known=[True, False][:n],
            )

    def rules() -> Judge:
        judge = Judge()
        judge.threshold = None
        return judge

    total = WeightedSum(
        [Part("x", 2.0, Lengths()), Part("y", -1.0, Judge()), Part("z", 0.0, rules())]
    )
    found = total.score([user("why?")] * 2, ["abc", "a long answer"])
    assert found.values == [2 * 3 - 1.0, 2 * 13 - 1.0]
    assert list(found.parts) == ["x", "y", "y/a", "y/b", "z", "z/a", "z/b"]
    assert (found.cut, found.truncated) == ([False, True], 1)
    assert found.reviews == ["odd. odd", None]
    assert (found.disagreement, total.threshold) == ([0.1, 0.1], 0.7)
    assert found.known == [True, False]
    assert total.score([], []).values == []


def test_calibrated_scores_do_not_see_where_a_reward_model_has_its_origin() -> None:
    scores, baseline = [1.0, 2.0, 4.0], [2.0, 2.0, 2.0]
    plain = calibrate(scores, baseline, 1.5)
    assert plain[1] == 0.5
    # the odds that 4 is preferred to 2 at T = 1.5 are e^(2/1.5)
    assert plain[2] / (1 - plain[2]) == pytest.approx(2.718281828459045 ** (2 / 1.5))
    moved = calibrate([s + 10 for s in scores], [b + 10 for b in baseline], 1.5)
    assert moved == pytest.approx(plain)
    assert calibrate([1e6, -1e6], 0.0).tolist() == [1.0, 0.0]
    with pytest.raises(ValueError, match="temperature"):
        calibrate(scores, baseline, 0.0)


# The `reward` of a configuration: all its errors at once, each with its path.


def test_every_error_is_told_at_once_with_the_path_of_its_field() -> None:
    config = {
        "type": "sum",
        "parts": [
            {"name": "a b", "source": {"type": "model", "agregate": "mean", "lambda": -1}},
            {
                "name": "x",
                "weight": "heavy",
                "source": {"type": "http", "url": "ftp://x", "retries": 99, "token_env": "PATH"},
            },
            {"name": "x", "source": {"type": "rules", "rules": [{"name": "r"}, {"name": "r"}]}},
            {"name": "y", "source": {"type": "verifier", "check": "numbre"}},
            {"name": "z", "source": {"type": "poetry"}},
        ],
        "wieght": 1,
    }
    fields = [error.split(": ")[0] for error in reward_errors(config)]
    assert sorted(fields) == sorted(
        [
            "reward.wieght",
            "reward.parts[0].name",
            "reward.parts[0].source.agregate",
            "reward.parts[0].source.lambda",
            "reward.parts[1].weight",
            "reward.parts[1].source.url",
            "reward.parts[1].source.retries",
            "reward.parts[1].source.token_env",
            "reward.parts[2].name",
            "reward.parts[2].source.rules[0].contains",
            "reward.parts[2].source.rules[1].contains",
            "reward.parts[2].source.rules[1].name",
            "reward.parts[3].source.check",
            "reward.parts[4].source.type",
        ]
    )


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "reward.type: None is none of"),
        ({"type": ["model"]}, "reward.type: ['model'] is none of"),
        ({"type": "rules"}, "reward.rules: must hold at least one rule"),
        ({"type": "rules", "rules": [3]}, "reward.rules: expected an object, got 3"),
        ({"type": "sum", "parts": {}}, "reward.parts: expected a list, got {}"),
        ({"type": "sum", "parts": [{"name": "a"}]}, "reward.parts[0].source.type: None is none"),
        ({"type": "token_count", "token": ""}, "reward.token: must be the word to count"),
        ({"type": "token_count", "token": "a", "cap": 0}, "reward.cap: 0 is under the least"),
        ({"type": "verifier", "take": "match"}, "reward.pattern: is needed to take a match"),
        ({"type": "verifier", "check": "shape"}, "reward.shape: is needed to check a shape"),
        (
            {"type": "verifier", "check": "shape", "shape": {"properties": {"a": {"tipe": "x"}}}},
            "reward.shape.properties.a.tipe: is not understood",
        ),
        (
            {"type": "verifier", "check": "shape", "shape": {"items": {"type": "text"}}},
            "reward.shape.items.type: 'text' is none of object",
        ),
        ({"type": "http"}, "reward.url: must begin with https://"),
        ({"type": "http", "url": "https://a:b@c/"}, "reward.url: must hold no password"),
        (
            {"type": "http", "url": "http://c/", "token_env": "REWARD_TOKEN"},
            "reward.url: a token goes over https only",
        ),
        (
            {"type": "http", "url": "https://c/", "token_env": "AWS_SECRET_ACCESS_KEY"},
            "reward.token_env: must be REWARD_TOKEN",
        ),
    ],
)
def test_what_cannot_be_built_is_refused(config: dict, told: str) -> None:
    errors = reward_errors(config)
    assert [error for error in errors if error.startswith(told)], errors
    with pytest.raises(RecipeError) as raised:
        read_reward(config)
    assert raised.value.kind == "bad_config"


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"lacks": ["a"], "words": {"most": 1}}, "contains: give exactly one test"),
        ({"lacks": ["a", " "]}, "lacks[1]: must not be empty"),
        ({"lacks": "a"}, "lacks: expected a list, got 'a'"),
        ({"matches": "(a"}, "matches: is no regular expression"),
        ({"words": {}}, "words.least or most must be given"),
        ({"words": {"least": 3, "most": 2}}, "words.least: 3 is over most, 2"),
        ({"characters": {"mots": 3}}, "characters.mots: is no field of a length"),
        ({"format": "sections"}, "sections: belongs to the format sections"),
        ({"format": "json", "sections": ["A"]}, "sections: belongs to the format sections"),
        ({"format": "xml"}, "format: 'xml' is none of json, boxed, sections"),
        ({"lacks": ["a"], "on_violation": "shout"}, "on_violation: 'shout' is none of"),
        ({"lacks": ["a"], "penalty": -1}, "penalty: -1.0 is under the least value 0.0"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule: dict, told: str) -> None:
    errors = reward_errors({"type": "rules", "rules": [{"name": "r"} | rule]})
    assert [error for error in errors if error.startswith(f"reward.rules[0].{told}")], errors


def test_sums_are_not_nested_for_ever() -> None:
    config: dict = {"type": "token_count", "token": "good"}
    for _ in range(5):
        config = {"type": "sum", "parts": [{"name": "a", "source": config}]}
    assert "nested" in "".join(reward_errors(config))
    assert reward_errors(config["parts"][0]["source"]["parts"][0]["source"]) == []


def test_whether_a_model_is_needed_is_seen_through_sums() -> None:
    rules = {"type": "rules", "rules": [{"name": "r", "lacks": ["a"]}]}
    both = {"type": "sum", "parts": [{"name": "a", "source": {"type": "model"}}]}
    assert needs_model({"type": "model"})
    assert needs_model({"type": "sum", "parts": [{"name": "b", "source": both}]})
    assert not needs_model({"type": "sum", "parts": [{"name": "b", "source": rules}]})


@pytest.mark.parametrize(
    "cls", [*SOURCES.values(), PartSettings, RuleSettings, Bounds, VerifierSettings]
)
def test_every_field_says_what_it_is_for(cls: type) -> None:
    for one in setting_fields(cls):
        assert one.option.doc.endswith("."), one.name


def test_checking_a_reward_loads_no_torch() -> None:
    code = (
        "import sys; from workers.config.rewards import reward_errors; "
        "reward_errors({'type': 'model'}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# docs/rewards.md against the code: every example is understood, every field is named.


PAGE = (Path(__file__).parents[3] / "docs" / "rewards.md").read_text()
EXAMPLES = [json.loads(text) for text in re.findall(r"^```json\n(.*?)^```", PAGE, re.M | re.S)]


@pytest.mark.parametrize("example", [e for e in EXAMPLES if "type" in e], ids=lambda e: e["type"])
def test_every_reward_on_the_page_can_be_built(example: dict) -> None:
    assert reward_errors(example) == []


def test_there_is_an_example_of_every_source() -> None:
    assert {example["type"] for example in EXAMPLES if "type" in example} == set(SOURCES)


def test_the_answer_of_a_service_on_the_page_is_understood() -> None:
    (answer,) = [example for example in EXAMPLES if "scores" in example]
    scores, version = read_answer(json.dumps(answer).encode(), 1)
    assert (scores.values, version) == ([1.7], "2026-11")


@pytest.mark.parametrize(
    "cls", [ModelSettings, HttpSettings, VerifierSettings, RuleSettings, PartSettings]
)
def test_every_field_is_named_on_the_page_and_its_default_is_the_codes(cls: type) -> None:
    named = {
        name: default
        for cell, default in re.findall(r"^\| (`[^|]+`) \| ([^|]*) \|", PAGE, re.M)
        for name in re.findall(r"`(\w+)`", cell)
    }
    for field in fields(cls):
        name = field.name.rstrip("_")
        assert f"`{name}`" in PAGE or f'"{name}"' in PAGE, name
        told = named.get(name, "")
        if re.fullmatch(r"`[\d.e-]+`", told) and cls is not RuleSettings and name != "score":
            assert float(told.strip("`")) == field.default, name
