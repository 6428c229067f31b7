"""A preference is planted, and the shipped recipes must find it through `workers.train`."""

import pytest

from tests.workers.recipes.language import Outcome

pytestmark = pytest.mark.recipe


def test_ppo_says_the_rewarded_word_far_more_often_while_the_divergence_stays_bounded(
    planted: dict[str, Outcome],
) -> None:
    run = planted["ppo"]
    assert run.ending == "Finished", (run.envelopes[-1], run.log[-3000:])
    scores = run.curve("objective/scores")
    first, last = (sum(scores[s] for s in steps) / 3 for steps in ((1, 2, 3), (28, 29, 30)))
    assert last > first + 1.0
    assert max(run.curve("objective/kl").values()) < 10.0


def test_a_high_price_on_divergence_holds_the_policy_where_it_was(
    planted: dict[str, Outcome],
) -> None:
    scores = planted["ppo_held"].curve("objective/scores")
    first, last = (sum(scores[s] for s in steps) / 3 for steps in ((1, 2, 3), (28, 29, 30)))
    assert last < first + 0.3
    assert max(planted["ppo_held"].curve("objective/kl").values()) < 1.0


def test_policy_and_reference_are_one_at_the_first_step_and_part_once_weights_move(
    planted: dict[str, Outcome],
) -> None:
    kl = planted["ppo"].curve("objective/kl")
    assert abs(kl[1]) < 1e-4
    assert kl[30] > 0.1


def test_ppo_reports_rollout_update_and_reward_at_every_step(planted: dict[str, Outcome]) -> None:
    run = planted["ppo"]
    for name in ("objective/scores", "policy/clipfrac_avg", "val/explained_variance", "kl_coef"):
        assert sorted(run.curve(name)) == list(range(1, 31))
    assert sorted(run.curve("eval/score")) == [0, 15, 30]


def test_ppo_ends_with_an_audit_of_high_low_and_random_answers_beside_the_reference(
    planted: dict[str, Outcome],
) -> None:
    audited = [s for s in planted["ppo"].all("Sample") if s["baseline"] is not None]
    buckets = {
        bucket: [s for s in audited if s["bucket"] == bucket]
        for bucket in ("high", "low", "random")
    }
    assert {bucket: len(samples) for bucket, samples in buckets.items()} == {
        "high": 2,
        "low": 2,
        "random": 2,
    }
    assert min(s["reward"] for s in buckets["high"]) >= max(s["reward"] for s in buckets["low"])
    generated = planted["ppo"].all("Generated")
    assert [(g["purpose"], g["count"]) for g in generated] == [("audit", 6)]


def test_ppo_keeps_best_last_and_final_checkpoints(planted: dict[str, Outcome]) -> None:
    saved = planted["ppo"].all("CheckpointSaved")
    assert saved[-1]["step"] == 30
    assert {"last", "final"} <= set(saved[-1]["tags"])
    assert any("best" in checkpoint["tags"] for checkpoint in saved)


def test_the_reward_model_learns_the_planted_preference_on_unseen_prompts(
    planted: dict[str, Outcome],
) -> None:
    dev = planted["reward"].summary["splits"]["dev"]
    assert dev["accuracy"]["value"] > 0.95
    assert dev["length_only"]["value"] < 0.8
    assert "too few clusters: 4" in dev["accuracy"]["no_interval"]


def test_dpo_widens_the_margin_and_leaves_the_reference_behind(
    planted: dict[str, Outcome],
) -> None:
    run = planted["dpo"]
    margins = run.curve("eval/rewards/margins")
    steps = sorted(margins)
    assert margins[steps[0]] == pytest.approx(0.0, abs=1e-5)
    assert margins[steps[-1]] > margins[steps[0]] + 0.5
    assert run.summary["held_out_accuracy"] > 0.9
    assert abs(run.curve("objective/kl")[0]) < 1e-4
    assert run.curve("objective/kl")[steps[-1]] > 0.1


def test_kto_tells_desirable_answers_from_others_that_it_has_not_seen(
    planted: dict[str, Outcome],
) -> None:
    run = planted["kto"]
    margins = run.curve("eval/rewards/margins")
    steps = sorted(margins)
    assert margins[steps[0]] == pytest.approx(0.0, abs=1e-5)
    assert margins[steps[-1]] > 0.3
    assert run.curve("eval/loss")[steps[-1]] < 0.95 * run.curve("eval/loss")[steps[0]]
    assert run.curve("objective/kl")[steps[-1]] > 0.1
    assert run.summary["held_out_margin"] == margins[steps[-1]]


def test_sft_builds_a_base_model_and_lowers_the_held_out_loss(
    planted: dict[str, Outcome],
) -> None:
    summary = planted["sft"].summary
    assert summary["held_out_loss"] < 0.6 * summary["held_out_loss_at_start"]
    assert planted["sft"].all("Sample")
