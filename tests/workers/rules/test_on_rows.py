"""Rules of runs that learn from fixed rows, each on figures that were made up for it: it fires on
its fault and on nothing healthy. Faults in real runs: `python -m benchmarks.diagnosis`."""

from collections.abc import Mapping

import pytest

from workers.diagnosis.replay import Diagnosis, diagnose
from workers.rules.choices import diagnosing_rules
from workers.rules.diagnosis import Baseline
from workers.rules.on_rows import ROWS_DATA, ROWS_POLICY, ROWS_REWARD

STEPS, EVERY = 60, 3
Series = dict[str, list[tuple[int, float]]]
BEFORE = {
    "data/truncated_share": 0.02,
    "data/leaked_share": 0.0,
    "data/unended_share": 0.0,
    "data/template_mismatch_share": 0.0,
    "data/longer_chosen_share": 0.6,
    "data/passes": 3.0,
    "learning_rate/to_weights": 0.1,
}
OF_ANSWERS = {
    "response/length_to_rows": (1.1, 1.0),
    "response/length": (60.0, 66.0),
    "response/repetition": (0.05, 0.08),
    "behaviour/refusal_share": (0.05, 0.06),
    "behaviour/refusal_share/reference": (0.04, 0.04),
    "behaviour/copied_share": (0.0, 0.02),
    "behaviour/copied_share/reference": (0.01, 0.01),
    "eval/general_loss": (2.0, 2.05),
}
PAIRS = {
    "eval/trained_accuracy": (0.5, 0.8),
    "eval/canary_accuracy": (0.5, 0.8),
    "eval/canary_pairs": (64.0, 64.0),
}
# What a figure is before the first step and at the end of a healthy run.
HEALTHY: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "sft": OF_ANSWERS | {"eval/loss": (3.0, 2.0), "eval/trained_loss": (3.0, 1.9)},
    "dpo": OF_ANSWERS
    | PAIRS
    | {
        "eval/loss": (0.69, 0.55),
        "eval/rewards/accuracies": (0.55, 0.72),
        "eval/rewards/margins": (0.0, 1.2),
        "eval/logps/chosen": (-80.0, -84.0),
        "eval/log_ratio_size": (0.0, 0.4),
        "objective/kl_per_token": (0.0, 0.3),
        "eval/longer_excess": (0.0, 0.05),
    },
    "reward": PAIRS
    | {
        "eval/loss": (0.70, 0.52),
        "eval/accuracy": (0.5, 0.76),
        "eval/margin": (0.0, 1.5),
        "eval/margin_size": (0.1, 1.8),
        "eval/temperature": (0.9, 1.2),
        "eval/longer_excess": (-0.2, 0.08),
        "ensemble/correlation": (0.3, 0.9),
    },
}
TRAINING = {"sft": {"loss": (3.0, 2.0)}, "reward": {"loss": (0.69, 0.5)}}
TRAINING["dpo"] = {"loss": (0.69, 0.5), "rewards/margins": (0.0, 1.3)}


def course(first: float, last: float, step: int) -> float:
    return first + (last - first) * (1 - 2.0 ** (-step / 6))


def run(kind: str, planted: Mapping[str, tuple[float, float]] | None = None) -> Series:
    """Curves of a run; `planted` figures go another way."""
    planted = planted or {}
    series: Series = {}
    for name, level in BEFORE.items():
        series[name] = [(0, planted.get(name, (level, level))[0])]
    for name, (first, last) in {**HEALTHY[kind], **_of(planted, HEALTHY[kind])}.items():
        series[name] = [(s, course(first, last, s)) for s in range(0, STEPS + 1, EVERY)]
    for name, (first, last) in {**TRAINING[kind], **_of(planted, TRAINING[kind])}.items():
        series[name] = [(s, course(first, last, s)) for s in range(1, STEPS + 1)]
    if kind in ("sft", "dpo"):
        level = planted.get("masks/answer_share", (1.0, 1.0))[0]
        series["masks/answer_share"] = [(s, level) for s in range(1, STEPS + 1)]
    if kind == "dpo":
        series["eval/rewards/accuracies"] = series["eval/rewards/accuracies"][1:]
    return series


def _of(
    planted: Mapping[str, tuple[float, float]], known: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    return {name: pair for name, pair in planted.items() if name in known}


def said(kind: str, series: Series, baseline: Baseline | None = None) -> Diagnosis:
    return diagnose(series, kind=kind, baseline=baseline)


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_run_is_judged_by_many_figures_and_nothing_is_found(kind: str) -> None:
    found = said(kind, run(kind))
    assert found.findings == ()
    assert len(found.judged) > 10
    judged = {name for rule in diagnosing_rules(kind) for name in rule.metrics}
    assert set(found.judged) <= judged


FAULTS = [
    ("rows_leaked", "sft", {"data/leaked_share": (0.5, 0)}),
    ("rows_cut", "reward", {"data/truncated_share": (0.6, 0)}),
    ("rows_unended", "dpo", {"data/unended_share": (1.0, 0)}),
    ("template_mismatch", "sft", {"data/template_mismatch_share": (1.0, 0)}),
    ("rows_prefer_longer", "dpo", {"data/longer_chosen_share": (0.95, 0)}),
    ("labels_swapped", "reward", {"eval/canary_accuracy": (0.5, 0.2)}),
    (
        "memorised",
        "dpo",
        {"eval/trained_accuracy": (0.5, 1.0), "eval/rewards/accuracies": (0.5, 0.54)},
    ),
    ("memorised", "reward", {"eval/trained_accuracy": (0.5, 1.0), "eval/accuracy": (0.5, 0.6)}),
    ("memorised", "sft", {"eval/trained_loss": (3.0, 0.4), "eval/loss": (3.0, 2.8)}),
    (
        "nothing_true_learned",
        "dpo",
        {"eval/rewards/accuracies": (0.5, 0.48), "eval/trained_accuracy": (0.5, 0.65)},
    ),
    (
        "nothing_true_learned",
        "reward",
        {"eval/accuracy": (0.5, 0.51), "eval/trained_accuracy": (0.5, 0.6)},
    ),
    (
        "nothing_true_learned",
        "dpo",
        {"eval/rewards/accuracies": (0.5, 0.53), "eval/canary_accuracy": (0.5, 0.49)}
        | {"eval/canary_pairs": (256.0, 256.0), "eval/trained_accuracy": (0.5, 0.52)},
    ),
    (
        "nothing_true_learned",
        "reward",
        {"eval/accuracy": (0.5, 0.55), "eval/canary_accuracy": (0.5, 0.49)}
        | {"eval/canary_pairs": (256.0, 256.0)},
    ),
    ("rows_repeated", "dpo", {"data/passes": (30.0, 0)}),
    ("rate_over_weights", "sft", {"learning_rate/to_weights": (6.0, 0)}),
    ("scores_too_large", "reward", {"eval/loss": (5.0, 0.6)}),
    ("answers_far_from_reference", "dpo", {"objective/kl_per_token": (0.0, 1.2)}),
    ("length_exaggerated", "reward", {"eval/longer_excess": (0.0, 0.7)}),
    ("over_confident", "reward", {"eval/temperature": (1.0, 6.0)}),
    ("margins_saturated", "reward", {"eval/margin_size": (0.1, 30.0)}),
    ("scores_alike", "reward", {"eval/margin_size": (0.0, 0.0)}),
    ("ensemble_alike", "reward", {"ensemble/correlation": (1.0, 1.0)}),
    ("loss_mask", "sft", {"masks/answer_share": (1.7, 0)}),
    ("reference_off_at_start", "dpo", {"eval/log_ratio_size": (0.3, 0.5)}),
    ("reference_moves_along", "dpo", {"eval/rewards/margins": (0.0, 0.0)}),
    ("loss_over_start", "reward", {"loss": (0.69, 1.4)}),
    ("unlearns_its_rows", "sft", {"eval/trained_loss": (3.0, 4.0)}),
    ("likelihood_displaced", "dpo", {"eval/logps/chosen": (-80.0, -140.0)}),
    ("preference_saturated", "dpo", {"rewards/margins": (0.0, 20.0)}),
    ("pairs_far_from_reference", "dpo", {"eval/log_ratio_size": (0.0, 3.0)}),
    ("unlike_the_demonstrations", "sft", {"response/length_to_rows": (3.0, 3.0)}),
    ("longer_than_rows", "dpo", {"response/length_to_rows": (1.0, 3.0)}),
    ("repetition_grows", "dpo", {"response/repetition": (0.05, 0.6)}),
    ("refusals_learned", "dpo", {"behaviour/refusal_share": (0.05, 0.8)}),
    ("rows_recited", "sft", {"behaviour/copied_share": (0.0, 0.9)}),
    ("forgetting", "dpo", {"eval/general_loss": (2.0, 4.0)}),
]


@pytest.mark.parametrize(("rule", "kind", "planted"), FAULTS)
def test_a_rule_fires_on_its_fault(
    rule: str, kind: str, planted: dict[str, tuple[float, float]]
) -> None:
    found = said(kind, run(kind, planted))
    assert rule in {one.rule for one in found.findings}


def test_over_optimisation_is_a_fall_of_held_out_accuracy_under_a_growing_margin() -> None:
    series = run("dpo")
    steps = [step for step, _ in series["eval/rewards/accuracies"]]
    series["eval/rewards/accuracies"] = [
        (s, 0.55 + 0.006 * s if s <= 30 else 0.73 - 0.006 * (s - 30)) for s in steps
    ]
    series["rewards/margins"] = [(s, 0.05 * s) for s in range(1, STEPS + 1)]
    found = said("dpo", series)
    assert "preference_overoptimised" in {one.rule for one in found.findings}


UNUSUAL = [
    ("loss_unusual", "sft", "eval/loss", 1.5),
    ("loss_unusual", "sft", "eval/loss", 0.4),
    ("margin_unusual", "dpo", "eval/rewards/margins", 3.0),
    ("margin_unusual", "reward", "eval/margin", 0.2),
    ("length_unusual", "sft", "response/length", 2.0),
    ("length_unusual", "dpo", "response/length", 0.4),
]


@pytest.mark.parametrize(("rule", "kind", "metric", "times"), UNUSUAL)
def test_a_run_unlike_healthy_ones_is_named_on_either_side(
    rule: str, kind: str, metric: str, times: float
) -> None:
    def like(factor: float) -> Series:
        return {metric: [(s, v * factor) for s, v in _dense(run(kind)[metric])]}

    healthy = Baseline.of([like(1 + 0.03 * i) for i in range(-2, 4)])
    assert said(kind, like(1.0), healthy).findings == ()
    found = said(kind, like(times), healthy)
    assert {one.rule for one in found.findings} >= {rule}


@pytest.mark.parametrize("value", [0.1, 0.9])
@pytest.mark.parametrize(
    ("rule", "metric", "size"),
    [
        ("reward_unusual", "reward/calibrated_mean", 1.0),
        ("entropy_unusual", "objective/entropy_per_token", 1.0),
        ("length_unusual", "response/length", 100.0),
    ],
)
def test_so_is_a_run_of_ppo(rule: str, metric: str, size: float, value: float) -> None:
    def flat(level: float) -> Series:
        return {metric: [(step, level * size) for step in range(1, 51)]}

    healthy = Baseline.of([flat(0.5 + 0.01 * i) for i in range(-2, 4)])
    assert said("ppo", flat(0.5), healthy).findings == ()
    assert {one.rule for one in said("ppo", flat(value), healthy).findings} >= {rule}


def test_against_runs_with_other_inputs_limits_are_wider_and_say_so() -> None:
    def flat(level: float) -> Series:
        return {"response/length": [(step, level) for step in range(1, 51)]}

    def compared(wider: float) -> Diagnosis:
        healthy = Baseline.of([flat(50.0 + i) for i in range(-2, 4)], wider=wider)
        return said("ppo", flat(70.0), healthy)

    assert [one.rule for one in compared(1.0).findings] == ["length_unusual"]
    assert compared(1.5).findings == ()
    healthy = Baseline.of([flat(50.0 + i) for i in range(-2, 4)], wider=1.5)
    (found,) = said("ppo", flat(200.0), healthy).findings
    assert "1.5 times as wide" in found.detail


def _dense(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Enough of them for a baseline."""
    return [(step + i, value) for step, value in points for i in range(EVERY)]


def test_the_next_member_of_an_ensemble_is_not_held_to_the_one_before() -> None:
    """Its accuracy begins at a coin's again; the passes tell where."""
    series = run("reward")
    member = {
        name: [(s, v) for s, v in points if s <= 30]
        for name, points in series.items()
        if not name.startswith(("data/", "ensemble/"))
    }
    twice = {name: [*p, *((s + 30, v) for s, v in p[1:])] for name, p in member.items()}
    steps = [step for step, _ in twice["loss"]]
    twice["epoch"] = [(s, (s - 30 if s > 30 else s) / 30) for s in steps]
    assert said("reward", twice).findings == ()


def test_every_rule_on_rows_has_its_fault() -> None:
    planted = {rule for rule, *_ in (*FAULTS, *UNUSUAL)} | {"preference_overoptimised"}
    assert {rule.name for rule in (*ROWS_DATA, *ROWS_REWARD, *ROWS_POLICY)} == planted


def test_a_finding_that_no_longer_holds_says_since_when() -> None:
    series = run("reward")
    series["eval/temperature"] = [
        (s, 5.0 if 9 <= s <= 24 else 1.0) for s in range(0, STEPS + 1, EVERY)
    ]
    (found,) = said("reward", series).findings
    assert (found.rule, found.cleared_step) == ("over_confident", 27)
    series["eval/temperature"] = [(s, 5.0 if s >= 9 else 1.0) for s, _ in series["eval/loss"]]
    (found,) = said("reward", series).findings
    assert found.cleared_step is None
