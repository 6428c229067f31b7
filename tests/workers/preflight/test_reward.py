"""The reward check fires on rewards that teach nothing or the opposite, and on no good one."""

import numpy as np
import pytest

from measures.trust.significance import Pairs
from workers.preflight.reward import (
    kl_price,
    reward_against_chance,
    reward_and_people,
    reward_shape,
)

RNG = np.random.default_rng(7)
PROMPTS = [f"prompt {i % 25}" for i in range(100)]
SKILL = RNG.normal(size=100)  # of the weak expert's answers
NOISE = RNG.normal(-1.0, 1.0, size=100)  # of random tokens: a deviation worse


def test_a_good_reward_passes_with_its_interval() -> None:
    found = reward_against_chance(SKILL, NOISE, PROMPTS)
    assert found.level == "ok"
    assert found.figures["low"] > 0
    assert found.figures["n"] == 100
    assert found.figures["prompts"] == 25
    # By hand: the difference of the two means is the mean of the differences.
    assert found.figures["difference"] == pytest.approx(SKILL.mean() - NOISE.mean())


def test_a_reward_with_its_sign_turned_is_blocked_and_told_so() -> None:
    found = reward_against_chance(-SKILL, -NOISE, PROMPTS)
    assert found.level == "block"
    assert "sign" in found.message


def test_a_constant_reward_is_blocked_and_told_so() -> None:
    found = reward_against_chance(np.full(100, 0.3), np.full(100, 0.3), PROMPTS)
    assert found.level == "block"
    assert "constant" in found.message


def test_a_reward_that_knows_nothing_is_blocked() -> None:
    found = reward_against_chance(RNG.normal(size=100), RNG.normal(size=100), PROMPTS)
    assert found.level == "block"
    assert found.figures["low"] <= 0 <= found.figures["high"]


def test_answers_to_one_prompt_count_as_one() -> None:
    """Ten prompts of ten answers each, four liked and six not: a hundred independent rows would
    look certain, ten prompts do not."""
    prompts = [f"prompt {i // 10}" for i in range(100)]
    liked = np.repeat([3.0, 3, 3, 3, -1.5, -1.5, -1.5, -1.5, -1.5, -1.5], 10)
    rows = liked + RNG.normal(0, 0.1, size=100)
    assert reward_against_chance(rows, np.zeros(100), prompts).level == "block"
    apart = [f"prompt {i}" for i in range(100)]
    assert reward_against_chance(rows + 0.4, np.zeros(100), apart).level == "ok"


def test_a_reward_that_is_not_a_number_is_blocked() -> None:
    broken = SKILL.copy()
    broken[3] = np.nan
    assert reward_against_chance(broken, NOISE, PROMPTS).level == "block"


def test_a_rule_that_is_always_right_needs_no_interval() -> None:
    found = reward_against_chance(np.ones(100), np.zeros(100), PROMPTS)
    assert (found.level, found.figures["low"]) == ("ok", None)


def test_too_few_prompts_are_no_verdict() -> None:
    found = reward_against_chance(SKILL[:20], NOISE[:20], ["a", "b"] * 10)
    assert found.level == "unknown"
    assert "2 prompts" in found.message


def test_a_person_may_ask_for_a_warning_only() -> None:
    assert reward_against_chance(-SKILL, -NOISE, PROMPTS, level="warn").level == "warn"


@pytest.mark.parametrize(
    ("scores", "level", "shape"),
    [
        (RNG.normal(size=100), "ok", "healthy"),
        (np.zeros(100), "block", "constant"),
        (np.r_[np.zeros(80), RNG.uniform(0.2, 1, 20)], "warn", "low"),
        (np.r_[np.ones(80), RNG.uniform(0, 0.8, 20)], "warn", "high"),
        (np.r_[np.zeros(50), np.ones(50)], "warn", "ends"),
        (np.r_[RNG.normal(size=98), 60.0, 80.0], "warn", "sparse"),
    ],
)
def test_the_histogram_is_named(scores: np.ndarray, level: str, shape: str) -> None:
    found = reward_shape(scores, RNG.normal(size=100))
    assert (found.level, found.figures["shape"]) == (level, shape)
    assert [block["kind"] for block in found.evidence] == ["histogram"]


def _pairs(chosen: np.ndarray, rejected: np.ndarray) -> Pairs:
    n = len(chosen)
    return Pairs(
        split="dev",
        chosen_scores=chosen,
        rejected_scores=rejected,
        chosen_texts=["yes"] * n,
        rejected_texts=["no"] * n,
        prompts=[f"prompt {i}" for i in range(n)],
        confidence=np.ones(n),
        clusters=[f"prompt {i}" for i in range(n)],
    )


def test_scores_are_held_against_people() -> None:
    better, worse = RNG.normal(1, 1, size=150), RNG.normal(0, 1, size=150)
    assert reward_and_people(_pairs(better, worse)).level == "ok"
    flipped = reward_and_people(_pairs(worse, better))
    assert (flipped.level, flipped.figures["shape"]) == ("block", "flipped")
    blind = reward_and_people(_pairs(RNG.normal(size=150), RNG.normal(size=150)))
    assert (blind.level, blind.figures["shape"]) == ("warn", "unrelated")
    assert reward_and_people(_pairs(better[:20], worse[:20])).level == "unknown"
    broken = np.where(np.arange(150) == 4, np.inf, better)
    assert reward_and_people(_pairs(broken, worse)).level == "block"
    # A rule has few values, and may be right all the same: its shape is another check's.
    right = reward_and_people(_pairs(np.ones(150), (np.arange(150) % 5 == 0).astype(float)))
    assert (right.level, right.figures["accuracy"]) == ("ok", pytest.approx(0.9))  # ties count ½


def test_the_price_of_divergence_is_put_beside_the_reward() -> None:
    found = kl_price(0.05, 2.0)
    assert found.level == "ok"
    assert found.figures["at_target"] == pytest.approx(0.3)  # 6 nats × 0.05 deviations
    assert "0.1 of raw reward" in found.message  # 0.05 of a deviation of 2
    assert kl_price(0.001, 2.0).level == "warn"
    assert kl_price(1.0, 2.0).level == "warn"
    assert kl_price(0.0, 2.0).level == "warn"
    # In raw reward the same number is another price: 0.05 of a spread of 0.1 is half of it.
    assert kl_price(0.05, 0.1, normalised=False).figures["ratio"] == pytest.approx(0.5)
    assert kl_price(0.05, None, normalised=False).level == "unknown"
