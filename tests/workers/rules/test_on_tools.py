"""The pitfalls of agents, planted in streams of figures: each is named by its own rule, and runs
that learn are left in peace. Faults in real environments: tests/workers/environments."""

import pytest

from tests.workers.rules.streams import (
    MetricValues,
    Stream,
    healthy_tools,
    planted,
    series_of,
    watch,
)
from workers.diagnosis.replay import diagnose
from workers.rules.engine import Engine
from workers.rules.on_tools import TOOLS_DATA, TOOLS_REWARD, VERIFIER_REWARD

SINCE = 30
FLAT = {"tools/success_share": 0.12, "objective/scores": 0.12}


def rising(name: str, start: float, end: float, **beside: float):
    """The figure goes from start to end over ten steps, and final states stay as they were."""

    def fault(step: int, before: MetricValues) -> MetricValues:
        share = min(1.0, max(0, step - SINCE) / 10)
        still = FLAT | {"tools/form_share": 0.6, "tools/named_only_share": 0.1}
        still |= {"tools/call_frequency": 1.0, "tools/turns": 2.0, "tools/tokens": 90.0}
        return still | beside | {name: start + share * (end - start)}

    return fault


def always(**figures: float):
    return lambda step, before: {name.replace("__", "/"): v for name, v in figures.items()}


FAULTS = {
    "tool_results_untrue": (always(tools__replay_apart_share=0.02), SINCE),
    "checker_read": (always(tools__check_read_share=0.02), SINCE),
    "tool_hacking": (rising("objective/scores", 0.12, 0.9), 1),
    "format_hacking": (rising("tools/form_share", 0.3, 0.98), 1),
    "files_only_named": (rising("tools/named_only_share", 0.05, 0.8), 1),
    "needless_calls": (rising("tools/call_frequency", 1.0, 4.0), 1),
    "needless_turns": (rising("tools/turns", 2.0, 5.0), 1),
    "cost_without_success": (rising("tools/tokens", 90.0, 300.0), 1),
}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_planted_pitfall_is_named_by_its_own_rule_and_by_no_other(name: str) -> None:
    fault, since = FAULTS[name]
    found = watch(Engine("grpo"), planted(healthy_tools(1), fault, since=since))
    assert {one.rule.name for one in found} == {name}
    assert SINCE <= found[0].step <= SINCE + 20


@pytest.mark.parametrize(
    "name", ["tool_results_untrue", "checker_read", "tool_hacking", "format_hacking"]
)
def test_the_diagnosis_of_the_record_says_it_too(name: str) -> None:
    fault, since = FAULTS[name]
    record = diagnose(series_of(planted(healthy_tools(1), fault, since=since)), kind="grpo")
    assert name in {finding.rule for finding in record.findings}


def test_every_rule_of_tools_has_a_planted_fault() -> None:
    assert {rule.name for rule in (*TOOLS_DATA, *TOOLS_REWARD)} == set(FAULTS)


def verified(seed: int) -> Stream:
    """The same course without tools, in which a verifier says what is right."""
    names = {
        "tools/success_share": "verifier/correct_share",
        "tools/form_share": "verifier/form_share",
        "objective/scores": "objective/scores",
        "objective/scores_std": "objective/scores_std",
    }
    for step, figures in healthy_tools(seed):
        yield step, {names[name]: value for name, value in figures.items() if name in names}


def test_form_without_right_answers_is_named_where_a_verifier_says_what_is_right() -> None:
    def fault(step: int, before: MetricValues) -> MetricValues:
        share = min(1.0, max(0, step - SINCE) / 10)
        return {"verifier/correct_share": 0.12, "verifier/form_share": 0.3 + 0.68 * share}

    for kind in ("ppo", "grpo"):
        found = watch(Engine(kind), planted(verified(1), fault, since=1))
        assert {one.rule.name for one in found} == {"form_without_answer"}
        assert SINCE <= found[0].step <= SINCE + 20
    record = diagnose(series_of(planted(verified(1), fault, since=1)), kind="grpo")
    assert "form_without_answer" in {finding.rule for finding in record.findings}
    assert [rule.name for rule in VERIFIER_REWARD] == ["form_without_answer"]


@pytest.mark.parametrize("seed", range(40))
def test_form_that_is_learned_before_the_task_is_left_in_peace(seed: int) -> None:
    assert watch(Engine("grpo"), verified(seed)) == []


@pytest.mark.parametrize("seed", range(40))
def test_a_run_that_learns_is_left_in_peace(seed: int) -> None:
    assert watch(Engine("grpo"), healthy_tools(seed)) == []


def test_a_policy_that_solves_everything_may_spend_what_it_likes() -> None:
    fault = rising("tools/call_frequency", 1.0, 4.0)
    solved = planted(
        planted(healthy_tools(1), fault, since=1),
        always(tools__success_share=0.95),
        since=1,
    )
    assert watch(Engine("grpo"), solved) == []
