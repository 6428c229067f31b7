"""Which finding is the cause: the earliest, and of several at once the outermost."""

from tests.workers.rules.streams import Stream, healthy_ppo, planted, series_of, watch
from workers.contract.events import Evidence
from workers.diagnosis.replay import diagnose
from workers.rules.diagnosis import Finding, verdict
from workers.rules.engine import Engine
from workers.rules.experiments import EXPERIMENTS, NEXT, next_experiments
from workers.rules.rule import STAGES
from workers.rules.table import RULES


def found(stage: str, start: int, *, slack: int = 0, kind: str = "trend") -> Finding:
    return Finding(
        stage=stage,
        rule=f"{stage}_off",
        evidence_class=kind,
        step=start + 3,
        start_step=start,
        slack=slack,
        title=f"The {stage} is off",
    )


def test_the_earliest_onset_is_named_and_the_rest_follow() -> None:
    said = verdict([found("exploration", 60), found("critic", 40), found("data", 80)])
    assert said is not None
    assert said.first.stage == "critic"
    assert [one.stage for one in said.consequences] == ["exploration", "data"]
    assert said.alternatives == ()


def test_of_two_at_once_the_outer_link_is_named() -> None:
    said = verdict([found("policy", 10), found("reward", 10)])
    assert said is not None
    assert said.stages == ["reward", "policy"]


def test_an_onset_that_may_be_later_is_no_earlier_than_the_others() -> None:
    said = verdict([found("policy", 10, slack=5), found("reward", 14)])
    assert said is not None
    assert said.stages == ["reward", "policy"]


def test_of_those_at_once_a_contract_is_believed_first() -> None:
    said = verdict([found("reward", 10), found("freshness", 10, kind="contract")])
    assert said is not None
    assert said.stages == ["freshness", "reward"]


def test_the_chain_tells_broken_links_from_those_nobody_looked_at() -> None:
    said = verdict([found("reward", 10), found("policy", 30)], judged=("reward", "policy", "data"))
    assert said is not None
    states = {one.stage: one.state for one in said.chain}
    assert states["reward"] == "first"
    assert states["policy"] == "consequence"
    assert states["data"] == "ok"
    assert states["numerics"] == "unknown"


def test_nothing_found_is_no_verdict() -> None:
    assert verdict([]) is None
    assert diagnose({"objective/kl": [(1, 0.0)]}, kind="ppo").verdict is None


def test_the_experiments_of_rules_and_stages_are_there() -> None:
    assert {rule.experiment for rule in RULES if rule.diagnoses} <= set(EXPERIMENTS)
    assert set(NEXT) == set(STAGES)
    assert {name for ids in NEXT.values() for name in ids} <= set(EXPERIMENTS)


def clipped(seed: int, since: int = 31, steps: int = 60) -> Stream:
    fault = {"policy/clipfrac_avg": 0.6}
    return planted(healthy_ppo(seed, steps), lambda step, before: fault, since=since)


def test_the_record_says_what_the_live_run_said() -> None:
    def stream() -> Stream:
        apart = {"eval/score": 9.0}
        return planted(clipped(1, steps=80), lambda s, b: {} if s % 10 else apart, since=40)

    live = Engine("ppo")
    watch(live, stream())
    record = diagnose(series_of(stream()), kind="ppo").findings
    assert sorted(live.findings, key=record.index) == list(record)
    assert {one.rule for one in live.findings} == {"clip_fraction", "evaluation_apart"}


def test_what_the_run_said_itself_counts_and_a_broken_contract_names_its_link() -> None:
    said = diagnose(
        series_of(healthy_ppo(3, 12)),
        kind="ppo",
        evidence=[Evidence("exploration", "entropy_rise", "trend", 9, 0.05, onset=7)],
        failure=(12, "contract_stale_rollout", "a rollout of version 3 meets version 11"),
    )
    assert said.verdict is not None
    assert [one.rule for one in said.findings] == ["entropy_rise", "contract_stale_rollout"]
    assert said.verdict.first.stage == "freshness", "a guardrail's threshold is a symptom"
    assert [one.stage for one in said.verdict.alternatives] == ["exploration"], (
        "it was there before"
    )


def test_a_symptom_is_the_cause_where_nothing_else_is_known() -> None:
    said = diagnose(
        series_of(healthy_ppo(3, 12)),
        kind="ppo",
        evidence=[
            Evidence("exploration", "entropy_rise", "trend", 9, 0.05),
            Evidence("reward", "reward_saturated", "trend", 4, 0.85),
        ],
    )
    assert said.verdict is not None
    assert said.verdict.stages == ["exploration"], "what only informs names no cause"


def test_a_long_run_is_looked_at_every_so_often_and_at_its_evaluations() -> None:
    changed = planted(
        clipped(4, 301, 600), lambda s, b: {} if s % 10 else {"eval/protocol": 18.0}, since=410
    )
    said = diagnose(series_of(changed), kind="ppo", most_checks=100)
    starts = {one.rule: one.start_step for one in said.findings}
    assert set(starts) == {"clip_fraction", "protocol_changed"}
    assert starts["clip_fraction"] - 300 < 40
    assert starts["protocol_changed"] == 410


def test_a_critic_that_is_on_its_way_is_no_problem_and_a_dead_one_is() -> None:
    def learned(values: list[float]) -> list[str]:
        points = list(enumerate(values, start=1))
        found = diagnose({"val/explained_variance": points}, kind="ppo").findings
        return [one.rule for one in found]

    late = [-0.5 + 0.02 * step for step in range(60)]
    assert learned(late) == []
    assert learned([-0.01] * 60) == ["explained_variance"]
    assert learned([-0.3] * 60) == ["explained_variance"]
    still = {"val/value_scale": [(step, 0.0) for step in range(1, 12)]}
    assert [one.rule for one in diagnose(still, kind="ppo").findings] == ["critic_flat"]
    woken = {"val/value_scale": [(step, 0.08 * (step - 1)) for step in range(1, 12)]}
    assert diagnose(woken, kind="ppo").findings == ()


def test_a_rule_may_give_most_answers_one_score_and_a_model_may_not() -> None:
    series = {"reward/mode_share": [(step, 0.9) for step in range(1, 12)]}
    rule = {"reward": {"type": "verifier"}}
    assert diagnose(series, kind="ppo", config=rule).findings == ()
    assert [one.rule for one in diagnose(series, kind="ppo").findings] == ["reward_one_value"]


def test_an_experiment_is_found_by_its_former_name() -> None:
    assert next_experiments("policy", first="dearer_kl")[0].id == "higher_kl"
