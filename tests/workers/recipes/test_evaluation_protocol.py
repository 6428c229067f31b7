"""An evaluation states what it was measured by: planted changes show as the line they are."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transformers

from measures.repeats import pass_at_k
from tests.workers.recipes.conftest import SUBJECTS
from tests.workers.recipes.language import Outcome, Workshop, tiny_llama, user
from workers.config import settings_for
from workers.contract.protocol import Difference, differences, stated
from workers.data.snapshot import Prompt
from workers.evaluation import answering
from workers.evaluation.figures import pass_at, repeat_report
from workers.models.loading import load_tokenizer
from workers.rollouts.drawing import Answer

SETTINGS = {
    "reward": {"type": "token_count", "token": "a"},
    "max_new_tokens": 6,
    "max_prompt_length": 16,
    "max_prompts": 8,
    "temperature": 0.7,
    "latency_requests": 0,
    "bootstrap_replicates": 100,
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    shop = Workshop(tmp_path_factory.mktemp("evaluations"))
    shop.put_model("base", tiny_llama())
    shop.put_model("other", tiny_llama(seed=1))
    asked = [{"prompt": user(subject), "answer": "a"} for subject in SUBJECTS]
    shop.put_snapshot("prompts", train=asked[:2], dev=asked[2:], public_test=asked[4:])
    shop.put_snapshot("fewer", train=asked[:2], dev=asked[2:6])
    return shop


def evaluate(
    shop: Workshop, name: str, *, policy: str = "other", prompts: str = "prompts", **config: Any
) -> Outcome:
    roles = {"policy": policy, "sft": "base", "prompts": prompts}
    return shop.run_here(shop.spec(name, "evaluate", SETTINGS | config, **roles))


@pytest.fixture(scope="module")
def first(shop: Workshop) -> Outcome:
    return evaluate(shop, "first")


def lines(one: Outcome, other: Outcome) -> list[Difference]:
    return differences(_stated(one).content, _stated(other).content)


def _stated(outcome: Outcome):
    found = stated(outcome.summary)
    assert found is not None
    return found


def test_another_policy_is_measured_by_the_same_protocol(shop: Workshop, first: Outcome) -> None:
    again = evaluate(shop, "another-policy", policy="base", repeats=2)
    assert _stated(again).sha256 == _stated(first).sha256
    content = _stated(first).content
    assert content["prompts"]["count"] == content["rendered"]["policy"]["count"] == 8
    assert content["engine"]["policy"]["version"] == transformers.__version__
    assert content["engine"]["policy"]["dtype"] == "float32"
    assert content["baseline"] == {"sha256": shop.refs["base"].sha256}
    assert content["judge"] == {}
    assert content["sampling"]["answers_per_prompt"] == 1


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({"temperature": 0.8}, Difference("sampling.temperature", 0.7, 0.8)),
        ({"batch_size": 4}, Difference("engine.policy.batch_size", 32, 4)),
        ({"factuality": "exact"}, Difference("statistics.right_answers", "normalised", "exact")),
        ({"bootstrap_replicates": 200}, Difference("statistics.resamples", 100, 200)),
    ],
)
def test_a_changed_setting_is_the_line_that_differs(
    shop: Workshop, first: Outcome, config: dict[str, Any], line: Difference
) -> None:
    found = lines(first, evaluate(shop, f"changed-{line.path}", **config))
    assert line in found
    assert {one.path.replace("sft", "policy") for one in found} == {line.path}


def test_one_byte_of_the_template_is_shown_as_its_line(
    shop: Workshop, first: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_a_space(source: Path) -> Any:
        tokenizer = load_tokenizer(source)
        tokenizer.chat_template += " "
        return tokenizer

    monkeypatch.setattr(answering, "load_tokenizer", with_a_space)
    found = {one.path: one for one in lines(first, evaluate(shop, "template"))}
    (path,) = (path for path in found if path.startswith("chat_template.policy"))
    assert str(found[path].other) == f"{found[path].one} "
    assert "rendered.policy.sha256" in found, "what the model read is another text too"


def test_another_version_of_the_engine_is_another_protocol(
    shop: Workshop, first: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Newer:
        __version__ = "99.0.0"

    monkeypatch.setattr(answering, "transformers", Newer)
    found = lines(first, evaluate(shop, "engine"))
    assert Difference("engine.policy.version", transformers.__version__, "99.0.0") in found


def test_other_prompts_are_another_protocol(shop: Workshop, first: Outcome) -> None:
    paths = {one.path for one in lines(first, evaluate(shop, "prompts", prompts="fewer"))}
    assert {"prompts.count", "prompts.sha256", "rendered.policy.sha256"} <= paths


def test_the_same_system_three_times_claims_nothing(shop: Workshop, first: Outcome) -> None:
    report = evaluate(shop, "itself", policy="base", repeats=3).summary
    repeats = report["repeats"]
    assert repeats["count"] == 3
    for name in ("reward.difference", "reward.win_rate"):
        assert repeats["figures"][name]["inside"] is True
    spread = repeats["figures"]["reward.policy"]
    assert spread["values"][0] == report["reward"]["policy"]["value"], "the first one is reported"
    assert len(set(spread["values"])) > 1, "each repeat has seeds of its own"
    assert spread["sigma"] > 0
    assert spread["least_difference"] == pytest.approx(2 * 2**0.5 * spread["sigma"])
    assert first.summary["repeats"] == {"count": 1, "figures": {}}


def test_at_temperature_0_nothing_moves_and_a_difference_is_claimed(shop: Workshop) -> None:
    told = evaluate(shop, "greedy", temperature=0.0, repeats=2).summary["repeats"]["figures"]
    assert told["reward.policy"]["sigma"] == 0.0


def test_a_difference_is_claimed_outside_the_spread_of_both_systems_only() -> None:
    def report(policy: float, sft: float) -> dict[str, Any]:
        values = {"policy": policy, "sft": sft, "difference": policy - sft, "win_rate": 0.9}
        return {"reward": {name: {"value": value} for name, value in values.items()}}

    moving = [report(1.0, 0.5), report(1.2, 0.3), report(0.8, 0.7)]  # σ 0.2 of both
    figures = repeat_report(moving)["figures"]
    assert figures["reward.difference"]["sigma"] == pytest.approx(0.2)
    assert figures["reward.difference"]["inside"] is True, "0.5 < 0.57"
    assert figures["reward.win_rate"]["inside"] is False, "0.9 each time"
    still = [report(1.0, 0.5), report(1.01, 0.5), report(0.99, 0.5)]
    assert repeat_report(still)["figures"]["reward.difference"]["inside"] is False


def test_pass_at_k_counts_right_answers_of_each_prompt() -> None:
    rows = [Prompt(user(q), answer=a) for q, a in (("one", "1"), ("two", "2"), ("three", ""))]
    rows = [row for row in rows for _ in range(4)]
    said = ["1", "0", "1", "0", "0", "0", "0", "2", "x", "x", "x", "x"]
    policy = [Answer(text, 1, True) for text in said]
    sft = [replace(one, text="0") for one in policy]
    settings = settings_for("evaluate", {"draws": 4})
    found = pass_at(rows, policy, sft, settings, 0)
    assert set(found) == {
        f"{name}_at_{k}" for name in ("policy", "sft", "difference") for k in (1, 2, 4)
    }
    assert found["policy_at_1"]["value"] == pytest.approx((2 / 4 + 1 / 4) / 2)
    expected = (pass_at_k(4, 2, 2) + pass_at_k(4, 1, 2)) / 2
    assert found["policy_at_2"]["value"] == pytest.approx(expected)
    assert found["policy_at_4"]["value"] == 1.0
    assert found["sft_at_4"]["value"] == 0.0
    assert found["policy_at_1"]["n"] == 2, "one prompt has no known answer"
    assert pass_at(rows, policy, sft, settings_for("evaluate", {}), 0) == {}


def test_each_file_that_is_read_is_reported_once(first: Outcome) -> None:
    read = {(one["role"], one["split"]): one["items"] for one in first.all("SplitRead")}
    known = {("prompts", "train"): 2, ("prompts", "dev"): 14, ("prompts", "public_test"): 12}
    assert read == known
    assert len(first.all("SplitRead")) == 3
