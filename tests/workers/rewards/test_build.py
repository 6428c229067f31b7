"""What a configuration builds, and sums of sources."""

from pathlib import Path

import pytest
import torch

from tests.workers.recipes.language import Workshop, tiny_llama, user, word_tokenizer
from tests.workers.rewards.sources import Lengths
from workers.artifacts import Store
from workers.context import RunContext
from workers.contract.events import RecipeError
from workers.models.loading import load_scorer, save_model
from workers.rewards.build import build_reward
from workers.rewards.cache import CachedReward
from workers.rewards.layout import EnsembleLayout
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
    assert found.reviews == [None, "rule no_rain: the answer says “rain”", None]
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
    with pytest.raises(RecipeError, match=r"reward\.aggregate: the input 'reward' is one"):
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
