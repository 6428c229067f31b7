"""Which finding is the cause: the earliest, and of several at once the outermost."""

import random
from typing import Any

from workers.contract.events import Evidence
from workers.diagnosis.detectors import DETECTORS
from workers.diagnosis.diagnoser import TESTS, Diagnoser
from workers.diagnosis.experiments import EXPERIMENTS, NEXT
from workers.diagnosis.replay import diagnose
from workers.diagnosis.verdict import Finding, verdict


def found(link: str, onset: int, *, slack: int = 0, kind: str = "trend") -> Finding:
    return Finding(
        link=link,
        rule=f"{link}_off",
        evidence_class=kind,
        step=onset + 3,
        onset=onset,
        slack=slack,
        title=f"The {link} is off",
    )


def test_the_earliest_onset_is_named_and_the_rest_follow() -> None:
    said = verdict([found("exploration", 60), found("critic", 40), found("data", 80)])
    assert said is not None
    assert said.first.link == "critic"
    assert [one.link for one in said.consequences] == ["exploration", "data"]
    assert said.alternatives == ()


def test_of_two_at_once_the_outer_link_is_named() -> None:
    said = verdict([found("policy", 10), found("reward", 10)])
    assert said is not None
    assert said.links == ["reward", "policy"]


def test_an_onset_that_may_be_later_is_no_earlier_than_the_others() -> None:
    said = verdict([found("policy", 10, slack=5), found("reward", 14)])
    assert said is not None
    assert said.links == ["reward", "policy"]


def test_of_those_at_once_a_contract_is_believed_first() -> None:
    said = verdict([found("reward", 10), found("freshness", 10, kind="contract")])
    assert said is not None
    assert said.links == ["freshness", "reward"]


def test_the_chain_tells_broken_links_from_those_nobody_looked_at() -> None:
    said = verdict([found("reward", 10), found("policy", 30)], judged=("reward", "policy", "data"))
    assert said is not None
    states = {one.link: one.state for one in said.chain}
    assert states["reward"] == "first"
    assert states["policy"] == "consequence"
    assert states["data"] == "ok"
    assert states["numerics"] == "unknown"


def test_nothing_found_is_no_verdict() -> None:
    assert verdict([]) is None
    assert diagnose({"objective/kl": [(1, 0.0)]}, kind="ppo").verdict is None


def test_every_detector_can_be_asked() -> None:
    assert len({one.rule for one in DETECTORS}) == len(DETECTORS)
    for one in DETECTORS:
        assert one.test in TESTS, one.rule
        assert one.experiment in EXPERIMENTS, one.rule
        assert one.patience[0] <= one.patience[1]
    for ids in NEXT.values():
        assert set(ids) <= set(EXPERIMENTS)


def course(seed: int, steps: int = 60) -> list[tuple[int, dict[str, float | None]]]:
    """A healthy run's figures, with an evaluation every ten steps."""
    draw = random.Random(seed)
    checks: list[tuple[int, dict[str, float | None]]] = []
    for step in range(1, steps + 1):
        figures: dict[str, float | None] = {
            "objective/kl_per_token": 0.0 if step == 1 else 0.001 * step,
            "objective/kl": 0.01 * step,
            "objective/scores": 0.02 * step + draw.gauss(0, 0.1),
            "objective/scores_running_std": 1.0,
            "policy/clipfrac_avg": abs(draw.gauss(0.1, 0.03)),
            "policy/approxkl_avg": abs(draw.gauss(0.01, 0.003)),
            "update/steps": 4.0,
            "kl_coef": 0.05,
            "val/explained_variance": min(0.6, 0.03 * step) + draw.gauss(0, 0.1),
            "objective/entropy_per_token": max(1.5, 2.0 - 0.005 * step),
            "rollout/lag": 0.0,
            "rollout/sampler_z": draw.gauss(0, 1),
            "time/reward_wait_s": abs(draw.gauss(0.1, 0.05)),
            "time/step_s": 1.0,
            "reward/length_correlation": draw.gauss(0.2, 0.2),
            "reward/kurtosis": draw.gauss(0, 1),
        }
        checks.append((step, figures))
        if step % 10 == 0:
            checks.append(
                (
                    step,
                    {
                        "eval/score": 0.02 * step + draw.gauss(0, 0.05),
                        "eval/canary_accuracy": 0.8,
                        "eval/protocol": 17.0,
                        "eval/reproducibility": 0.0,
                    },
                )
            )
    return checks


def series_of(
    checks: list[tuple[int, dict[str, float | None]]],
) -> dict[str, list[tuple[int, Any]]]:
    series: dict[str, list[tuple[int, Any]]] = {}
    for step, figures in checks:
        for name, value in figures.items():
            series.setdefault(name, []).append((step, value))
    return series


def test_healthy_courses_raise_nothing() -> None:
    for seed in range(30):
        assert diagnose(series_of(course(seed)), kind="ppo").findings == ()


def test_the_record_says_what_the_live_run_said() -> None:
    checks = course(1)
    for step, figures in checks:
        if step > 30 and "policy/clipfrac_avg" in figures:
            figures["policy/clipfrac_avg"] = 0.6
        if step > 30 and "eval/score" in figures:
            figures["eval/score"] = 9.0
    live = Diagnoser("ppo")
    for step, figures in checks:
        live.see(step, figures)
    assert live.findings == sorted(
        diagnose(series_of(checks), kind="ppo").findings, key=live.findings.index
    )
    assert {one.rule for one in live.findings} == {"clipped_often", "evaluation_apart"}


def test_a_resumed_diagnoser_continues_as_if_nothing_had_happened() -> None:
    checks = course(2)
    for step, figures in checks:
        if step > 28 and "policy/clipfrac_avg" in figures:
            figures["policy/clipfrac_avg"] = 0.6
    whole, first = Diagnoser("ppo"), Diagnoser("ppo")
    for step, figures in checks:
        whole.see(step, figures)
    for step, figures in checks[:32]:
        first.see(step, figures)
    second = Diagnoser("ppo")
    second.restore(first.state())
    for step, figures in checks[32:]:
        second.see(step, figures)
    assert second.findings == whole.findings
    assert second.state() == whole.state()


def test_what_the_run_said_itself_counts_and_a_broken_contract_names_its_link() -> None:
    said = diagnose(
        series_of(course(3, steps=12)),
        kind="ppo",
        evidence=[Evidence("exploration", "entropy_floor", "trend", 9, 0.05, onset=7)],
        failure=(12, "contract_stale_rollout", "a rollout of version 3 meets version 11"),
    )
    assert said.verdict is not None
    assert [one.rule for one in said.findings] == ["entropy_floor", "contract_stale_rollout"]
    assert said.verdict.first.link == "freshness", "a guardrail's threshold is a symptom"
    assert [one.link for one in said.verdict.alternatives] == ["exploration"], "it was there before"


def test_a_symptom_is_the_cause_where_nothing_else_is_known() -> None:
    said = diagnose(
        series_of(course(3, steps=12)),
        kind="ppo",
        evidence=[
            Evidence("exploration", "entropy_floor", "trend", 9, 0.05),
            Evidence("reward", "reward_saturated", "trend", 4, 0.85),
        ],
    )
    assert said.verdict is not None
    assert said.verdict.links == ["exploration"], "what only informs names no cause"


def test_a_long_run_is_looked_at_every_so_often_and_at_its_evaluations() -> None:
    checks = course(4, steps=600)
    for step, figures in checks:
        if step > 300 and "policy/clipfrac_avg" in figures:
            figures["policy/clipfrac_avg"] = 0.6
        if "eval/protocol" in figures and step >= 410:
            figures["eval/protocol"] = 18.0
    said = diagnose(series_of(checks), kind="ppo", most_checks=100)
    assert [one.rule for one in said.findings] == ["clipped_often", "protocol_changed"]
    assert said.findings[0].onset - 300 < 40
    assert said.findings[1].onset == 410


def test_a_critic_that_is_on_its_way_is_no_trouble_and_a_dead_one_is() -> None:
    def learned(values: list[float]) -> list[str]:
        points = list(enumerate(values, start=1))
        found = diagnose({"val/explained_variance": points}, kind="ppo").findings
        return [one.rule for one in found]

    late = [-0.5 + 0.02 * step for step in range(60)]
    assert learned(late) == []
    assert learned([-0.01] * 60) == ["critic_dead"]
    assert learned([-0.3] * 60) == ["critic_dead"]
    still = {"val/value_scale": [(step, 0.0) for step in range(1, 12)]}
    assert [one.rule for one in diagnose(still, kind="ppo").findings] == ["critic_flat"]
    woken = {"val/value_scale": [(step, 0.08 * (step - 1)) for step in range(1, 12)]}
    assert diagnose(woken, kind="ppo").findings == ()


def test_a_rule_may_give_most_answers_one_score_and_a_model_may_not() -> None:
    series = {"reward/mode_share": [(step, 0.9) for step in range(1, 12)]}
    rule = {"reward": {"type": "verifier"}}
    assert diagnose(series, kind="ppo", config=rule).findings == ()
    assert [one.rule for one in diagnose(series, kind="ppo").findings] == ["reward_one_value"]
