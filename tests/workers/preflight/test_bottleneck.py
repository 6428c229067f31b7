"""Who waits for whom, from the times of steps; and how long an answer takes."""

import pytest

from workers.ppo.diagnostics import bottleneck, measure_latency


def step(rollout: float, wait: float, update: float, **more: float) -> dict[str, float]:
    return {"time/rollout_s": rollout, "time/reward_wait_s": wait, "time/update_s": update} | more


def test_a_slow_reward_model_is_named() -> None:
    found = bottleneck([step(2, 12, 1)] * 10)
    assert found.part == "reward"
    assert found.share == pytest.approx(12 / 15)
    assert "reward_batch_size" in found.message


def test_scoring_that_nobody_waited_for_is_no_bottleneck() -> None:
    found = bottleneck([step(8, 0.1, 3, **{"time/reward_s": 7.5})] * 10)
    assert found.part == "rollout"
    assert found.shares["reward"] == pytest.approx(0.1 / 11.1)


def test_without_an_overlap_the_scoring_itself_counts() -> None:
    alone = {"time/rollout_s": 1.0, "time/reward_s": 9.0, "time/update_s": 1.0}
    assert bottleneck([alone] * 5).part == "reward"


def test_steps_in_balance_name_nobody() -> None:
    found = bottleneck([step(4, 3, 4)] * 6)
    assert found.part is None
    assert found.message.startswith("No part holds the others up")


def test_the_first_step_warms_up_and_does_not_count() -> None:
    found = bottleneck([step(60, 1, 1), *[step(1, 1, 8)] * 4], tokens=[1000] * 5)
    assert (found.part, found.steps) == ("update", 4)
    assert found.tokens_per_second == pytest.approx(1000 / 10)


def test_time_that_is_in_no_part_is_named_as_such() -> None:
    found = bottleneck([step(1, 1, 1, **{"time/step_s": 12.0})] * 5)
    assert found.part == "other"
    assert "eval_every" in found.message


def test_no_steps_are_no_verdict() -> None:
    assert bottleneck([]).part is None
    assert bottleneck([step(0, 0, 0)]).part is None


class Clock:
    """Seconds that pass only when something is done."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_twenty_planted_milliseconds_are_reported() -> None:
    clock = Clock()
    asked: list[tuple[str, int]] = []

    def path(name: str, seconds: float):
        def answer(number: int) -> int:
            first = not any(which == name for which, _ in asked)
            asked.append((name, number))
            clock.now += seconds + (5.0 if first else 0.0)  # the first one loads and compiles
            return 10

        return answer

    found = measure_latency(path("without", 0.200), path("with", 0.220), requests=30, clock=clock)
    assert found.added_p50_ms == pytest.approx(20)
    assert found.added_p99_ms == pytest.approx(20)
    assert found.without.p50_ms_per_token == pytest.approx(20)  # 200 ms for 10 tokens
    assert found.without.requests == 30
    assert "the head adds 20.0 ms (10 %)" in found.message


def test_a_slow_hundredth_shows_in_the_p99_alone() -> None:
    clock = Clock()

    def answer(number: int) -> int:
        clock.now += 1.0 if number in (7, 8, 9) else 0.1
        return 4

    found = measure_latency(answer, answer, requests=100, clock=clock)
    assert found.without.p50_ms == pytest.approx(100)
    assert found.without.p99_ms == pytest.approx(1000)
    assert found.added_p99_ms == pytest.approx(0)
