"""Every rule fires on the fault planted for it, and healthy runs are left in peace.

The runs are streams of figures (streams.py); faults in real trainings are planted where the recipe
is tested.
"""

from collections.abc import Mapping

import numpy as np
import pytest

from tests.workers.rules.streams import (
    EVAL_EVERY,
    MetricValues,
    healthy_ppo,
    healthy_trainer,
    planted,
    series_of,
    watch,
)
from workers.diagnosis.replay import diagnose
from workers.rules.choices import guardrails_of
from workers.rules.diagnosis import Baseline
from workers.rules.engine import Engine
from workers.rules.on_rows import ROWS_DATA, ROWS_POLICY, ROWS_REWARD
from workers.rules.on_steps import STEPS_DATA, STEPS_REWARD
from workers.rules.on_tools import TOOLS_DATA, TOOLS_REWARD, VERIFIER_REWARD
from workers.rules.people import PEOPLE
from workers.rules.table import RULES

SEEDS = range(40)
ON = {"reward_above_baseline": "warn"}  # off unless chosen
WITHIN = 8  # checks from the fault to the alert, for rules that do not pool or wait


def level(**figures: float):
    return lambda step, before: {name.replace("__", "/"): v for name, v in figures.items()}


def scaled(name: str, factor: float):
    return lambda step, before: {name: (before[name] or 0.0) * factor}


def spike(step: int, before: MetricValues) -> Mapping[str, float]:
    """Mean 0.5 → 0.9 and deviation 0.2 → 0.05, on raw scores alike."""
    return {
        "reward/calibrated_mean": 0.9,
        "reward/calibrated_std": 0.05,
        "objective/scores_std": 0.2,
    }


def shift(step: int, before: MetricValues) -> Mapping[str, float]:
    return {"reward/calibrated_mean": before["reward/calibrated_mean"] - 0.25}


def overoptimised(step: int, before: MetricValues) -> Mapping[str, float | None]:
    """The reward keeps rising, the held-out score goes down (Gao et al. 2022)."""
    if step % EVAL_EVERY:
        return {}
    rng = np.random.default_rng(step)
    return {
        "eval/score": 1.0 + 0.01 * step + rng.normal(0, 0.05),
        "eval/held_out_score": 0.6 - 0.012 * (step - 60) + rng.normal(0, 0.05),
    }


def stuck(step: int, before: MetricValues) -> Mapping[str, float]:
    rng = np.random.default_rng(step)
    return {
        "reward/calibrated_mean": 0.5 + rng.normal(0, 0.02),
        "objective/entropy_per_token": 2.0 + rng.normal(0, 0.02),
    }


def above_baseline(step: int, before: MetricValues) -> Mapping[str, float]:
    return {"reward/above_baseline_share": 0.6}


def steady(step: int, before: MetricValues) -> Mapping[str, float]:
    """A run that learns passes the share by itself; this one is not meant to."""
    return {"reward/above_baseline_share": 0.1}


# rule: (what is planted, from which step)
PPO_FAULTS = {
    "held_out_down": (overoptimised, 60),
    "constant_reward": (level(objective__scores_running_std=0.0), 1),
    "all_flagged": (level(reward__flagged_share=1.0), 60),
    "reward_saturated": (level(reward__calibrated_mean=0.9), 60),
    "reward_above_baseline": (above_baseline, 60),
    "reward_spread": (spike, 60),
    "reward_drift": (shift, 60),
    "outliers": (level(reward__outlier_share=0.02), 60),
    "disagreement": (level(reward__flagged_share=0.5), 60),
    "blocked": (level(reward__blocked_share=0.4), 60),
    "cut_answers": (level(eval__ended_share=0.5), 60),
    "length": (scaled("response/length_ratio", 2.5), 60),
    "repetition": (level(response__repetition=0.5), 60),
    "update_kl": (level(update__stopped_by_kl=1.0), 60),
    "reference_kl": (scaled("objective/kl", 12.0), 60),
    "clip_fraction": (level(policy__clipfrac_avg=0.55), 60),
    "ratio": (level(update__skipped_minibatches=1.0), 60),
    "explained_variance": (level(val__explained_variance=-0.4), 60),
    "value_blow_up": (level(val__value_scale=20.0), 60),
    "entropy_floor": (scaled("objective/entropy_per_token", 0.2), 60),
    "entropy_rise": (scaled("objective/entropy_per_token", 3.0), 60),
    "diverse_without_progress": (stuck, 1),
    "uniform_high_reward": (level(response__distinct=0.1, reward__calibrated_mean=0.75), 60),
    "stale": (level(rollout__lag=8.0), 60),
    "gradient": (level(grad_norm_max=400.0), 60),
    "extreme_logprob": (level(policy__logprob_min=-80.0), 60),
}
SLOW = {
    "held_out_down": 70,
    "explained_variance": 12,
    "diverse_without_progress": 80,
    "outliers": 16,
    "blocked": 16,
    "reward_saturated": 16,
    "reward_above_baseline": 16,
    "reward_spread": 16,
}


@pytest.mark.parametrize("name", sorted(PPO_FAULTS))
def test_a_planted_fault_of_ppo_raises_its_own_guardrail_soon(name: str) -> None:
    fault, since = PPO_FAULTS[name]
    stream = planted(healthy_ppo(1), steady, since=1)
    found = watch(Engine("ppo", {"guards": ON}), planted(stream, fault, since=since))
    own = [violation for violation in found if violation.rule.name == name]
    assert own, [violation.rule.name for violation in found]
    assert since <= own[0].step <= since + SLOW.get(name, WITHIN)


# What only explains a run: {rule: what is planted}, from step 60.
EXPLAINED = {
    "labels_swapped": level(eval__canary_accuracy=0.2),
    "reward_inverted": level(eval__canary_accuracy=0.2, eval__reward_data_accuracy=0.2),
    "reward_blind": level(eval__canary_accuracy=0.52),
    "protocol_changed": level(eval__protocol=18.0),
    "evaluation_apart": level(eval__score=9.0),
    "reward_not_reproducible": level(eval__reproducibility=0.1),
    "reward_follows_length": level(reward__length_correlation=0.9),
    "reward_one_value": level(reward__mode_share=0.9),
    "reward_tail": lambda step, before: {"objective/scores_std": 9.0} if step % 4 == 0 else {},
    "refusals_liked": level(reward__refusal_lift=0.8),
    "refusals_rewarded": level(reward__refusal_lift=0.4, behaviour__refusal_share=0.5),
    "divergence_unpriced": level(kl_coef=0.0),
    "update_too_large": level(policy__approxkl_avg=0.5),
    "critic_flat": level(val__value_scale=0.0),
    "sampler_apart": level(rollout__sampler_z=8.0),
    "reward_slow": level(time__reward_wait_s=0.9),
}
UNUSUAL = {
    "clipping_unusual": level(policy__clipfrac_avg=0.35),
    "update_unusual": level(policy__approxkl_avg=0.08),
    "divergence_unusual": level(objective__kl=60.0),
    "critic_unusual": level(val__explained_variance=0.05),
    "entropy_unusual": level(objective__entropy_per_token=6.0),
}
AT_START = {
    "reference_off_at_start": level(objective__kl_per_token=0.5),
    "reference_moves_along": level(objective__kl_per_token=0.0),
}


@pytest.mark.parametrize("name", sorted(EXPLAINED | UNUSUAL | AT_START))
def test_a_planted_fault_is_explained_by_its_own_rule_once_and_as_a_record(name: str) -> None:
    fault, since = (EXPLAINED | UNUSUAL | AT_START)[name], 1 if name in AT_START else 60
    healthy = [series_of(healthy_ppo(seed, 100)) for seed in range(10, 16)]
    baseline = Baseline.of(healthy) if name in UNUSUAL else None

    def stream():
        return planted(healthy_ppo(1, 100), fault, since=since)

    live = watch(Engine("ppo", baseline=baseline), stream())
    own = [one for one in live if one.rule.name == name]
    assert len(own) == 1, [(one.rule.name, one.step) for one in live]
    assert since <= own[0].step <= since + 20
    record = diagnose(series_of(stream()), kind="ppo", baseline=baseline)
    assert own[0].finding in record.findings


def test_every_rule_has_a_planted_fault() -> None:
    trainers = {"held_out_loss", "loss_jump", "zero_variance", "non_finite"}
    trainers |= {"cause_found"}  # the diagnosis': tests/workers/recipes/test_ppo_diagnosis.py
    explained = set(EXPLAINED) | set(UNUSUAL) | set(AT_START)
    on_rows = {rule.name for rule in (*ROWS_DATA, *ROWS_REWARD, *ROWS_POLICY)}  # test_on_rows.py
    on_rows |= {"reward_unusual"}
    on_tools = {
        rule.name for rule in (*TOOLS_DATA, *TOOLS_REWARD, *VERIFIER_REWARD)
    }  # test_on_tools.py
    on_tools |= {rule.name for rule in (*STEPS_DATA, *STEPS_REWARD)}  # test_process_reward.py
    of_projects = {rule.name for rule in PEOPLE}  # tests/monitoring/test_people.py
    planted_here = set(PPO_FAULTS) | trainers | explained
    assert {rule.name for rule in RULES} == planted_here | on_rows | on_tools | of_projects


def test_healthy_runs_are_explained_by_nothing() -> None:
    for seed in range(30):
        assert diagnose(series_of(healthy_ppo(seed)), kind="ppo").findings == ()


@pytest.mark.parametrize("kind", ["sft", "reward", "dpo"])
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("gradient", level(grad_norm=500.0)),
        ("loss_jump", level(loss=4.0)),
        ("held_out_loss", level(eval__loss=1.5)),
    ],
)
def test_a_planted_fault_of_a_trainer_raises_its_own_guardrail(kind: str, name: str, fault) -> None:
    found = watch(Engine(kind), planted(healthy_trainer(2), fault, since=100))
    assert name in [violation.rule.name for violation in found]
    assert min(violation.step for violation in found) >= 100


def test_dpo_is_watched_for_divergence_and_length_too() -> None:
    guards = Engine("dpo", {"guards": {"reference_kl": "stop"}})
    checks = [(s, {"objective/kl": float(s), "response/length": 6.0 + 4 * s}) for s in range(1, 21)]
    found = watch(guards, iter(checks))
    assert {(b.rule.name, b.action) for b in found} == {
        ("reference_kl", "stop"),
        ("length", "warn"),
    }
    # 11 and 12 are the second and third of three over 10; the length passes 2 × 10 at step 4
    assert {b.rule.name: b.step for b in found} == {"reference_kl": 12, "length": 6}


def test_groups_that_teach_nothing_are_told_in_grpo() -> None:
    checks = [(s, {"grpo/zero_variance_share": 0.3 if s < 10 else 0.95}) for s in range(20)]
    assert [(b.rule.name, b.step) for b in watch(Engine("grpo"), iter(checks))] == [
        ("zero_variance", 12)
    ]


def test_healthy_runs_raise_no_stop_and_hardly_a_warning() -> None:
    """docs/guardrails.md prints what a larger count of such runs gave."""
    found = [watch(Engine("ppo"), healthy_ppo(seed)) for seed in SEEDS]
    stops = [b for run in found for b in run if b.action == "stop"]
    warned = [run for run in found if any(b.severity != "info" for b in run)]
    assert stops == []
    assert len(warned) <= 0.05 * len(SEEDS), [b.rule.name for run in warned for b in run]


@pytest.mark.parametrize("kind", ["sft", "reward", "dpo"])
def test_healthy_trainings_raise_nothing(kind: str) -> None:
    for seed in SEEDS:
        assert watch(Engine(kind), healthy_trainer(seed, 120)) == []


def healthy_levels(mean: float, std: float) -> Baseline:
    """Six runs of one recipe whose calibrated scores lay so at every step."""
    steps = range(1, 151)
    return Baseline.of(
        {
            "reward/calibrated_mean": [(step, mean + 0.01 * run) for step in steps],
            "reward/calibrated_std": [(step, std + 0.004 * run) for step in steps],
        }
        for run in range(6)
    )


LEVELS = ("reward_saturated", "reward_spread")


@pytest.mark.parametrize(
    ("baseline", "severity", "words"),
    [
        (healthy_levels(0.5, 0.2), "warning", "6 healthy runs were at"),
        (healthy_levels(0.87, 0.04), "info", "this is no different, so it is a note"),
        (None, "info", "There is no baseline of healthy runs of this recipe at this step"),
    ],
)
def test_a_level_warns_where_healthy_runs_were_elsewhere_and_else_says_that_it_does_not(
    baseline: Baseline | None, severity: str, words: str
) -> None:
    """SPEC F2's spike: 0.5 → 0.9 and 0.2 → 0.05."""
    found = watch(Engine("ppo", baseline=baseline), planted(healthy_ppo(1), spike, since=60))
    levels = {one.rule.name: one for one in found if one.rule.name in LEVELS}
    assert set(levels) == set(LEVELS)
    assert {one.severity for one in levels.values()} == {severity}
    assert all(words in one.message for one in levels.values())


def test_a_level_that_an_engineer_told_to_stop_stops_with_or_without_a_baseline() -> None:
    guards = {"guards": {"reward_saturated": "stop"}}
    for baseline in (None, healthy_levels(0.87, 0.04)):
        engine = Engine("ppo", guards, baseline=baseline)
        found = watch(engine, planted(healthy_ppo(1), spike, since=60))
        (stop,) = [one for one in found if one.rule.name == "reward_saturated"]
        assert (stop.action, stop.severity) == ("stop", "critical")
        assert "baseline" not in stop.message


def test_healthy_runs_hardly_warn_of_levels_beside_other_healthy_runs() -> None:
    baseline = Baseline.of([series_of(healthy_ppo(seed)) for seed in range(100, 108)])
    found = [watch(Engine("ppo", baseline=baseline), healthy_ppo(seed)) for seed in SEEDS]
    warned = [
        one.rule.name
        for run in found
        for one in run
        if one.rule.name in LEVELS and one.severity == "warning"
    ]
    assert len(warned) <= 0.05 * len(SEEDS)


@pytest.mark.parametrize("baseline", [None, healthy_levels(0.5, 0.2)])
def test_a_reward_with_another_origin_is_no_alarm(baseline: Baseline | None) -> None:
    """Raw scores + 10: calibrated ones do not change, and nothing looks at the raw mean."""
    lifted = planted(
        healthy_ppo(3),
        lambda step, f: {
            "objective/scores": f["objective/scores"] + 10,
            "eval/score": f["eval/score"] + 10 if "eval/score" in f else None,
        },
        since=1,
    )
    plain = watch(Engine("ppo", baseline=baseline), healthy_ppo(3))
    assert watch(Engine("ppo", baseline=baseline), lifted) == plain


def test_a_plateau_of_the_held_out_score_is_no_fall() -> None:
    rng = np.random.default_rng(5)
    stops = 0
    for _ in SEEDS:
        guards = Engine("ppo")
        checks = (
            (
                10 * i,
                {
                    "eval/score": min(i, 8) / 8 + rng.normal(0, 0.08),
                    "eval/held_out_score": min(i, 8) / 12 + rng.normal(0, 0.08),
                },
            )
            for i in range(25)
        )
        stops += any(b.action == "stop" for b in watch(guards, checks))
    assert stops <= 2


def test_rounding_noise_of_large_scores_is_a_constant_reward_and_a_small_spread_is_not() -> None:
    """As the moments see it: 1e-5 of the scores' own size."""
    for mean, std, constant in ((1000.0, 5e-3, True), (0.0, 5e-3, False), (0.1, 5e-6, True)):
        figures = {"objective/scores": mean, "objective/scores_running_std": std}
        assert bool(Engine("ppo").check(1, figures)) == constant


def test_a_rare_reward_that_is_soon_learned_is_no_outlier() -> None:
    checks = [(s, {"reward/outlier_share": 0.03 if s <= 9 else 0.0}) for s in range(1, 60)]
    assert watch(Engine("ppo"), iter(checks)) == []


def test_a_critic_that_has_not_learned_yet_is_no_alarm() -> None:
    checks = [(s, {"val/explained_variance": -2.0 if s <= 25 else 0.3}) for s in range(1, 60)]
    assert watch(Engine("ppo"), iter(checks)) == []


def test_the_spread_that_the_calibrated_scale_squeezes_is_no_alarm() -> None:
    """All answers good: calibrated scores crowd near 1 while raw ones differ as before."""
    squeezed = level(
        reward__calibrated_mean=0.93, reward__calibrated_std=0.06, objective__scores_std=1.0
    )
    found = watch(Engine("ppo"), planted(healthy_ppo(4), squeezed, since=60))
    assert "reward_spread" not in [violation.rule.name for violation in found]


def test_thresholds_are_those_the_specification_names() -> None:
    rules = {rule.name: rule for rule in guardrails_of("ppo")}
    named = {
        "reference_kl": 10.0,
        "clip_fraction": 0.4,
        "entropy_floor": 0.1,
        "reward_saturated": 0.8,
        "reward_above_baseline": 0.2,
        "reward_spread": 0.1,
        "reward_drift": 3.0,
        "cut_answers": 0.3,
        "length": 2.0,
        "repetition": 0.2,
        "stale": 1.0,
        "explained_variance": 0.0,
    }
    assert {name: rules[name].limit for name in named} == named
    assert rules["entropy_floor"].given["share"] == 0.3


@pytest.mark.parametrize("kind", ["ppo", "grpo"])
def test_answers_that_run_into_the_limit_for_a_higher_reward_are_found_in_three_steps(
    kind: str,
) -> None:
    """The demo as it once shipped: three steps of PPO, reward and judge up, answers longer, and
    "take this one" on the last checkpoint."""
    at_start = {"ended_share": 0.84, "score": -1.35, "held_out_score": -0.64, "response_length": 27}
    at_end = {"ended_share": 0.28, "score": -0.79, "held_out_score": -0.59, "response_length": 40}
    looks = [(0, at_start), (3, at_end)]
    stream = [(step, {f"eval/{name}": float(v) for name, v in of.items()}) for step, of in looks]
    engine = Engine(kind)
    fired = watch(engine, stream)
    assert [(one.rule.name, one.step) for one in fired] == [("cut_answers", 3)]
    assert engine.is_crossed("cut_answers")  # so the checkpoint of step 3 is not the best
    verdict = diagnose(series_of(stream), kind=kind).verdict
    assert verdict is not None
    assert verdict.first is not None
    assert verdict.first.rule == "cut_answers"
