"""Advice from what a project measured: each branch with a planted fault."""

import dataclasses
import datetime as dt
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from apps.common.registry import PeopleRate, RunResult
from apps.snapshots.advice import Advice, Facts, Kind, Method, Rules, Task, advise
from measures.estimate import Interval
from workers.contract.protocol import StatedProtocol, content_sha256

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
BASE = "Base"


def protocol(**lines: Any) -> StatedProtocol:
    content = {"judge": "J", "sampling": {"temperature": 0.7}} | lines
    return StatedProtocol(content_sha256(content), content)


ONE = protocol()
WARMER = protocol(sampling={"temperature": 0.8})


def won(value: float, half: float = 0.05) -> dict[str, Any]:
    return {"value": value, "low": value - half, "high": value + half, "n": 512}


def people(
    value: float,
    half: float = 0.05,
    *,
    against: str = BASE,
    run: str = "",
    by: StatedProtocol = ONE,
    n_people: int = 12,
    hour: int = 0,
    **more: Any,
) -> PeopleRate:
    verdict = "better" if value - half > 0.5 else "worse" if value + half < 0.5 else "undecided"
    given = {
        "opponent": against,
        "opponent_run": run,
        "protocol": by,
        "value": value,
        "low": value - half,
        "high": value + half,
        "n": 240,
        "people": n_people,
        "verdict": verdict,
        "ended_at": NOON + dt.timedelta(hours=hour),
        "url": f"/head-to-heads/{against}-{value}/",
    }
    return PeopleRate(**given | more)


def few(value: float = 1.0, **more: Any) -> PeopleRate:
    """Three people, where eight are needed."""
    return people(value, 0.0, n_people=3, verdict="too_few_people", least=8, **more)


def trained(
    method: str, *rates: PeopleRate, run: str = "", hour: int = 0, **more: Any
) -> RunResult:
    given: dict[str, Any] = {
        "run": run or method,
        "method": method,
        "method_words": method.upper(),
        "name": f"my {run or method}",
        "url": f"/runs/{run or method}/",
        "ended_at": NOON + dt.timedelta(hours=hour),
        "seconds": 600.0,
        "splits": {},
        "win_rate": None,
        "people": rates,
        "judged_url": f"/runs/judged-{run or method}/",
        "checks_url": f"/runs/suite-{run or method}/",
    }
    return RunResult(**given | more)


def checks(standing: str, **worse: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "lost": 14,
        "won": 2,
        "checks": 140,
        "standing": standing,
        "difference": {"value": -0.086, "low": -0.14, "high": -0.03, "n": 140},
        "worse": worse,
    }


def advised(*methods: RunResult, **more: Any) -> Advice:
    known = {
        "agreement": Interval(value=0.72, low=0.7, high=0.74, n=500),
        "pairs": 12_000,
        "task": Task.OPEN,
        "rules": Rules.NONE,
        "latency_ms": 2_000.0,
        "baseline": 0.6,
        "exploration": False,
    }
    return advise(Facts(**known | {"methods": methods, "project": "arguments"} | more))


def piece(found: Advice, key: str) -> Any:
    (item,) = [item for item in found.items if item.key == key]
    return item


def keys(found: Advice, kind: Kind = Kind.MEASURED) -> list[str]:
    return [item.key for item in found.items if item.kind is kind]


def both(*rates: PeopleRate, **more: Any) -> list[RunResult]:
    """PPO with these rates by people, and DPO, which the judge prefers."""
    return [
        trained("ppo", *rates, win_rate=won(0.55), protocol=ONE, **more),
        trained("dpo", win_rate=won(0.75), protocol=ONE),
    ]


# Which method is ahead.


def test_people_decide_directly_though_the_judge_says_otherwise() -> None:
    found = advised(*both(people(0.6, against="my dpo", run="dpo")))
    assert (found.method, found.provisional) == (Method.PPO, False)
    assert found.headline == "Use PPO: people prefer it to DPO."
    item = found.items[0]
    assert (item.key, item.kind) == ("measured", Kind.METHOD)
    assert item.evidence == "my ppo 60.0 % (55.0–65.0 %, n = 240) by 12 people against my dpo"
    assert "judge says otherwise (my dpo 75.0 %" in item.reason
    assert [link.url for link in item.links] == ["/head-to-heads/my dpo-0.6/"]
    assert keys(found, Kind.OVERRULED) == []
    assert keys(found) == []


def test_a_head_to_head_counts_from_either_side() -> None:
    """PPO was the first system; it lost, so DPO is ahead."""
    found = advised(*both(people(0.4, against="my dpo", run="dpo")))
    assert found.method is Method.DPO
    assert found.items[0].evidence.startswith("my dpo 60.0 % (55.0–65.0 %, n = 240)")
    assert "otherwise" not in found.items[0].reason


def test_of_two_head_to_heads_of_the_same_policies_the_newest_counts() -> None:
    old = people(0.6, against="my dpo", run="dpo")
    newer = people(0.7, against="my ppo", run="ppo", hour=1)
    found = advised(trained("ppo", old), trained("dpo", newer))
    assert found.method is Method.DPO


def test_an_interval_that_holds_a_half_decides_nothing_and_the_judge_is_not_asked_instead() -> None:
    found = advised(*both(people(0.53, against="my dpo", run="dpo")), exploration=None)
    assert found.items[0].key == "default"
    assert "12 people" in piece(found, "not_told_apart_dpo_ppo").evidence
    assert "measured" not in keys(found, Kind.METHOD)


def test_rates_against_one_opponent_by_one_protocol_decide_where_they_do_not_overlap() -> None:
    ppo, dpo = trained("ppo", people(0.7)), trained("dpo", people(0.55))
    found = advised(ppo, dpo)
    assert found.headline == "Use PPO: people prefer it to Base more often than DPO."
    assert "my ppo 70.0 %" in found.items[0].evidence
    assert "my dpo 55.0 %" in found.items[0].evidence
    assert len(found.items[0].links) == 2
    found = advised(ppo, trained("dpo", people(0.61)))
    assert (found.items[0].key, keys(found)) == ("default", ["overlap_people_dpo_ppo"])


def test_rates_of_people_by_two_protocols_are_not_compared() -> None:
    found = advised(trained("ppo", people(0.9)), trained("dpo", people(0.55, by=WARMER)))
    assert found.items[0].key == "default"
    item = piece(found, "protocols_people_dpo_ppo")
    assert item.evidence == "my dpo and my ppo: sampling.temperature is 0.8 and 0.7"
    assert len(item.links) == 2


def test_rates_against_two_opponents_are_not_compared() -> None:
    found = advised(trained("ppo", people(0.9)), trained("dpo", people(0.55, against="Other")))
    assert found.items[0].key == "default"
    assert keys(found) == ["not_compared"]


def test_without_people_the_judge_is_named_as_who_says_it() -> None:
    found = advised(*both())
    assert found.method is Method.DPO
    assert found.headline == "Use DPO: the held-out judge prefers it to PPO."
    assert found.items[0].evidence.startswith("by the judge, not by people: my dpo 75.0 %")
    assert "People have not decided" in found.items[0].reason
    assert all(link.is_run for link in found.items[0].links)


def test_the_judges_rates_by_two_protocols_are_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "apps.snapshots.advice.measured.protocol_url", lambda *given: "/" + "/".join(given)
    )
    rows = [
        trained("ppo", win_rate=won(0.9), protocol=ONE),
        trained("dpo", win_rate=won(0.55), protocol=WARMER),
    ]
    found = advised(*rows)
    assert found.items[0].key == "default"
    item = piece(found, "protocols_judge_dpo_ppo")
    assert "sampling.temperature is 0.8 and 0.7" in item.evidence
    assert item.links[-1].url == f"/arguments/{WARMER.sha256}/{ONE.sha256}"
    unknown = advised(rows[0], trained("dpo", win_rate=won(0.55)))
    assert keys(unknown) == ["not_compared"]


def test_three_people_claim_nothing_and_are_counted() -> None:
    found = advised(trained("ppo", few(against="my dpo", run="dpo")), trained("dpo"))
    assert found.items[0].key == "default"
    item = piece(found, "too_few_dpo_ppo")
    assert item.title == "Too few people compared DPO with PPO"
    assert "3 people, 240 votes; 8 people are needed" in item.evidence
    assert "at least 8 people" in item.next_step
    assert item.links


def test_three_people_against_a_baseline_claim_nothing_either() -> None:
    found = advised(trained("ppo", few()), trained("dpo", people(0.55)))
    assert found.items[0].key == "default"
    assert "3 people" in piece(found, "too_few_ppo").evidence


def test_after_too_few_people_the_judge_is_asked_and_both_are_said() -> None:
    found = advised(*both(few(against="my dpo", run="dpo")))
    assert found.headline == "Use DPO: the held-out judge prefers it to PPO."
    assert "3 people" in piece(found, "too_few_dpo_ppo").evidence


def test_of_several_policies_the_one_that_the_judge_rates_highest_is_compared() -> None:
    """People compared the worse of two DPO policies too, and more recently."""
    rows = [
        trained("dpo", run="good", win_rate=won(0.7), protocol=ONE),
        trained("dpo", run="poor", win_rate=won(0.5), protocol=ONE, hour=5),
        trained(
            "ppo",
            people(0.9, against="my poor", run="poor", hour=2),
            people(0.3, against="my good", run="good", hour=1),
        ),
    ]
    found = advised(*rows)
    assert found.method is Method.DPO
    assert found.items[0].evidence.startswith("my good 70.0 %")


def test_time_and_latency_are_named_and_decide_nothing() -> None:
    slow = {"seconds": 7_200.0, "latency_ms": 410.0}
    ppo = trained("ppo", people(0.6, against="my dpo", run="dpo"), **slow)
    dpo = trained("dpo", latency_ms=205.0)
    found = advised(ppo, dpo)
    assert found.method is Method.PPO
    reason = found.items[0].reason
    assert "Training took 2 h with PPO and 10 min with DPO" in reason
    assert "410 ms and 205 ms (not measured by one protocol); neither decides" in reason
    assert advised(trained("ppo", **slow), dpo).items[0].key == "default"
    assert keys(advised(trained("ppo", **slow), dpo)) == ["not_compared"]


@pytest.mark.parametrize("method", ["kto", "grpo"])
def test_every_method_that_can_be_trained_can_be_advised(method: str) -> None:
    ahead = trained(method, people(0.6, against="my dpo", run="dpo"))
    found = advised(ahead, trained("dpo"), latency_ms=None)
    assert (found.method, found.provisional) == (Method(method), True)  # a latency could change it
    assert advised(ahead, trained("dpo"), exploration=None).provisional is False


def test_results_in_a_circle_advise_none() -> None:
    order = ["dpo", "ppo", "kto", "dpo"]
    rows = [
        trained(one, people(0.6, against=f"my {other}", run=other))
        for one, other in pairwise(order)
    ]
    found = advised(*rows)
    assert found.items[0].key == "default"
    assert keys(found) == ["no_first"]


def test_of_two_that_are_ahead_of_a_third_the_simpler_is_advised() -> None:
    beaten = {"against": "my kto", "run": "kto"}
    rows = [trained("ppo", people(0.62, **beaten)), trained("grpo", people(0.6, **beaten))]
    found = advised(*rows, trained("kto"))
    assert found.method is Method.GRPO
    assert "Nothing measured puts PPO behind it" in found.items[0].reason


# Its place among the rules.


def test_it_is_asked_after_latency_and_before_the_reward_model() -> None:
    rows = both(people(0.6, against="my dpo", run="dpo"))
    late = advised(*rows, latency_ms=50.0)
    assert (late.method, keys(late, Kind.OVERRULED)) == (Method.DPO, ["measured"])
    assert piece(late, "measured").links
    bad = Interval(value=0.51, low=0.48, high=0.54, n=500)
    failing = advised(*rows, reward_accuracy=bad)
    assert (failing.method, keys(failing, Kind.OVERRULED)) == (Method.PPO, ["reward_fails"])
    assert "people prefer it to DPO" in piece(failing, "reward_fails").reason


# What speaks against a method.

ARITHMETIC = {"value": -0.2, "low": -0.3, "high": -0.1, "n": 40}


def test_a_regressed_suite_speaks_against_the_method_by_name_whatever_people_prefer() -> None:
    worse = checks("worse", arithmetic=ARITHMETIC)
    found = advised(*both(people(0.9, against="my dpo", run="dpo"), checks=worse))
    assert found.method is Method.DPO
    item = piece(found, "against_ppo")
    assert item.title == "PPO is not advised: it became worse at arithmetic"
    assert "arithmetic: −20.0 points (−30.0 to −10.0, n = 40)" in item.evidence
    assert "14 of 140 checks lost" in item.evidence
    assert item.links[0].url == "/runs/suite-ppo/"
    assert item.links[0].is_run


@pytest.mark.parametrize("latency_ms", [50.0, 2_000.0])
def test_no_rule_advises_what_was_measured_to_be_worse(latency_ms: float) -> None:
    found = advised(trained("dpo", checks=checks("worse")), latency_ms=latency_ms)
    assert found.method is Method.UNDECIDED
    assert "speaks against DPO" in found.headline
    assert "worse at its regression suite" in piece(found, "against_dpo").title


def test_another_policy_that_passes_the_suite_lifts_it() -> None:
    bad = trained("dpo", run="first", checks=checks("worse"))
    assert advised(bad, trained("dpo", hour=1)).method is Method.UNDECIDED  # nobody has tested it
    unsure = trained("dpo", checks=checks("undecided"))
    assert advised(bad, unsure).method is Method.UNDECIDED
    found = advised(bad, trained("dpo", checks=checks("not_worse")))
    assert (found.method, keys(found)) == (Method.DPO, [])


def test_a_baseline_that_people_prefer_speaks_against_the_method() -> None:
    found = advised(*both(people(0.4)), exploration=True)
    assert found.method is Method.DPO
    item = piece(found, "against_ppo")
    assert item.title == "PPO is not advised: people prefer Base"
    assert "40.0 % (35.0–45.0 %, n = 240) by 12 people against Base" in item.evidence
    assert "against_ppo" not in keys(advised(*both(people(0.46))))  # its interval holds a half
    assert "against_ppo" not in keys(advised(*both(few(0.2))))


def test_sft_that_people_prefer_speaks_against_a_method_from_either_side() -> None:
    sft = trained("sft", people(0.6, against="my dpo", run="dpo"))
    assert "people prefer my sft" in piece(advised(sft, trained("dpo")), "against_dpo").title
    mine = trained("dpo", people(0.4, against="my sft", run="sft"))
    assert "people prefer my sft" in piece(advised(trained("sft"), mine), "against_dpo").title


def test_to_win_over_sft_is_no_claim_over_other_methods() -> None:
    ppo = trained("ppo", people(0.9, against="my sft", run="sft"))
    found = advised(ppo, trained("sft"))
    assert (found.items[0].key, keys(found)) == ("default", [])


def test_to_lose_to_another_method_is_no_lost_baseline() -> None:
    found = advised(*both(people(0.4, against="my dpo", run="dpo")))
    assert keys(found) == []


def test_reward_models_are_no_method() -> None:
    reward = trained("reward", people(0.9, against="my dpo", run="dpo"))
    assert advised(reward, trained("dpo")).items[0].key == "default"


def test_nothing_measured_changes_nothing() -> None:
    assert advised() == dataclasses.replace(advised(trained("dpo")))
