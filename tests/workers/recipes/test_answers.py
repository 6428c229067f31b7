"""`generate` and `evaluate`: what a policy says, beside what its SFT model says."""

import json

import pytest

from tests.workers.recipes.conftest import SUBJECTS
from tests.workers.recipes.language import Outcome, Workshop, user

ANSWERING = {"max_new_tokens": 6, "max_prompt_length": 16, "max_prompts": 12}


def candidates(shop: Workshop, outcome: Outcome) -> list[dict]:
    (generated,) = outcome.all("Generated")
    assert generated["purpose"] == "candidates"
    rows = list(shop.store.lines(generated["uri"]))
    shop.store.read_bytes(generated["uri"], sha256=generated["sha256"])
    assert len(rows) == generated["count"] == outcome.summary["pairs"]
    return rows


def test_two_draws_of_the_policy_make_a_pair_that_can_be_traced_to_its_checkpoint(
    models: Workshop,
) -> None:
    spec = models.spec("pairs", "generate", ANSWERING, policy="policy", prompts="prompts")
    rows = candidates(models, models.run_here(spec))
    assert 6 <= len(rows) <= 12
    for row in rows:
        assert row["prompt"] in [user(subject) for subject in SUBJECTS]
        assert row["response_a"]["text"] != row["response_b"]["text"]
        for side in ("response_a", "response_b"):
            assert row[side]["origin"]["sha256"] == models.refs["policy"].sha256
    assert rows[0]["sampling"]["max_new_tokens"] == 6


def test_the_opponent_can_be_the_sft_model(models: Workshop) -> None:
    spec = models.spec(
        "against",
        "generate",
        ANSWERING | {"opponent": "baseline"},
        policy="policy",
        sft="base",
        prompts="prompts",
    )
    for row in candidates(models, models.run_here(spec)):
        assert row["response_a"]["origin"]["role"] == "policy"
        assert row["response_b"]["origin"]["sha256"] == models.refs["base"].sha256


def test_identical_answers_are_no_pair_and_are_counted(models: Workshop) -> None:
    spec = models.spec(
        "greedy",
        "generate",
        ANSWERING | {"temperature": 0.0},
        policy="policy",
        prompts="prompts",
    )
    outcome = models.run_here(spec)
    assert candidates(models, outcome) == []
    assert outcome.summary["identical"] == 12


def evaluate(models: Workshop, name: str, policy: str, **config) -> Outcome:
    settings = ANSWERING | {"draws": 2} | config
    roles = {"sft": "base", "prompts": "prompts", "reward": "scorer", "judge": "judge"}
    return models.run_here(models.spec(name, "evaluate", settings, policy=policy, **roles))


def test_a_policy_is_compared_with_its_sft_model_by_reward_and_by_judge(models: Workshop) -> None:
    outcome = evaluate(models, "evaluated", "policy")
    report = outcome.summary
    assert report["prompts"] == 24
    assert report["policy"]["kl"] > 0.1
    for source in ("reward", "judge"):
        means = {name: report[source][name]["value"] for name in ("policy", "sft", "difference")}
        assert means["difference"] == pytest.approx(means["policy"] - means["sft"])
        assert report[source]["win_rate"]["n_clusters"] == 12
        assert 0.0 <= report[source]["win_rate"]["value"] <= 1.0
    (saved,) = outcome.all("ArtifactSaved")
    stored = json.loads(models.store.read_bytes(saved["uri"], sha256=saved["sha256"]))
    assert stored == {k: v for k, v in report.items() if k != "step"}
    shown = outcome.all("Sample")
    assert shown
    assert all(sample["baseline"] is not None for sample in shown)


def test_a_policy_that_is_its_sft_model_wins_half_and_lies_at_distance_zero(
    models: Workshop,
) -> None:
    report = evaluate(models, "itself", "base").summary
    assert report["judge"]["win_rate"]["value"] == 0.5
    assert report["judge"]["difference"]["value"] == 0.0
    assert report["policy"]["kl"] == pytest.approx(0.0, abs=1e-5)


def test_the_divergence_is_left_out_where_only_part_of_the_distribution_is_sampled(
    models: Workshop,
) -> None:
    assert evaluate(models, "nucleus", "policy", top_p=0.9).summary["policy"]["kl"] is None


def test_a_policy_trained_on_a_rule_is_evaluated_by_that_rule(models: Workshop) -> None:
    settings = ANSWERING | {"reward": {"type": "token_count", "token": "a", "cap": 3}}
    roles = {"policy": "policy", "sft": "base", "prompts": "prompts"}
    report = models.run_here(models.spec("by-rule", "evaluate", settings, **roles)).summary
    assert 0.0 <= report["reward"]["policy"]["value"] <= 3.0
    assert "judge" not in report
