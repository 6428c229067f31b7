"""The reward check fires on rewards that teach nothing or the opposite, and on no good one."""

import itertools
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from measures.trust.significance import Pairs
from tests.workers.recipes.language import tiny_llama
from workers.data.snapshot import Demonstration, Preference
from workers.models.loading import disable_dropout, weights_sha256
from workers.models.lora import attach_policy_lora
from workers.ppo.diagnostics import bottleneck
from workers.ppo.model import ActorCritic, critic_of
from workers.preflight.critic import FixedRollout, critic_finding, fit_critic
from workers.preflight.data import (
    demonstration_overlap,
    demonstration_rows,
    evaluation_overlap,
    preference_rows,
    prompt_rows,
    too_long,
)
from workers.preflight.findings import CriticParts, critic_parts
from workers.preflight.reward import (
    kl_price,
    reward_against_chance,
    reward_and_people,
    reward_shape,
)
from workers.rollouts.drawing import measure_latency

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def _same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test draws the same numbers, whatever ran before it."""
    monkeypatch.setattr(sys.modules[__name__], "RNG", np.random.default_rng(7))


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


# Rows, lengths and overlaps: each planted fault is found, clean rows are not.


QUESTIONS = [f"How many legs have {n} spiders in a garden of size {n * n}?" for n in range(40)]
PAIRS = [
    Preference([{"role": "user", "content": text}], f"{8 * n} legs", f"about {n} or so")
    for n, text in enumerate(QUESTIONS)
]


def test_clean_rows_pass() -> None:
    assert prompt_rows(QUESTIONS).level == "ok"
    assert preference_rows(PAIRS).level == "ok"
    shown = [Demonstration(row.prompt, row.chosen) for row in PAIRS]
    assert demonstration_rows(shown).level == "ok"


def test_repeated_prompts_are_counted_in_their_normal_form() -> None:
    found = prompt_rows([*QUESTIONS, QUESTIONS[0].upper() + " ", QUESTIONS[1]])
    assert (found.level, found.figures["repeated"]) == ("warn", 2)


def test_empty_answers_are_told_and_too_many_block() -> None:
    some = [replace(row, chosen=" ") if n == 3 else row for n, row in enumerate(PAIRS)]
    assert (preference_rows(some).level, preference_rows(some).figures["empty"]) == ("warn", 1)
    most = [replace(row, chosen="") if n > 9 else row for n, row in enumerate(PAIRS)]
    assert preference_rows(most).level == "block"
    assert demonstration_rows([]).level == "block"


def test_the_same_answer_twice_is_no_comparison() -> None:
    found = preference_rows([*PAIRS, replace(PAIRS[0], chosen="Yes", rejected="yes ")])
    assert (found.level, found.figures["alike"]) == ("warn", 1)


def test_a_pair_and_its_mirror_are_the_same_pair() -> None:
    mirrored = replace(PAIRS[0], chosen=PAIRS[0].rejected, rejected=PAIRS[0].chosen)
    assert preference_rows([*PAIRS, mirrored]).figures["repeated"] == 1


def test_what_is_left_out_and_what_is_cut_are_told_apart() -> None:
    fine = too_long("prompt", 100, 0, limit="max_prompt_length", tokens=512)
    assert fine.level == "ok"
    assert "All 100" in fine.message
    short = too_long("prompt", 60, 40, limit="max_prompt_length", tokens=16)
    assert short.level == "warn"
    assert "40 of 100 prompts (40.0 %)" in short.message
    assert "left out whole" in short.message
    cut = too_long("demonstration", 100, 0, limit="max_length", tokens=64, cut=5)
    assert cut.level == "warn"
    assert "5 are cut" in cut.message


def test_answers_that_run_into_their_limit_are_told() -> None:
    limits = {"limit": "max_prompt_length", "tokens": 16, "answer_limit": ("max_new_tokens", 8)}
    assert too_long("prompt", 10, 0, unfinished=0.9, **limits).level == "warn"
    assert too_long("prompt", 10, 0, unfinished=0.1, **limits).level == "ok"


def test_an_evaluation_prompt_that_is_trained_on_is_found() -> None:
    held_out = [text.replace("spiders", "herons") for text in QUESTIONS[:10]]
    assert evaluation_overlap(QUESTIONS, held_out).level == "ok"
    found = evaluation_overlap(QUESTIONS, [*held_out, QUESTIONS[7] + " "])
    assert (found.level, found.figures["equal"], found.figures["n"]) == ("warn", 1, 11)


def test_a_nearly_equal_prompt_is_found_too() -> None:
    long = " ".join(f"word{n}" for n in range(60))
    found = evaluation_overlap([*QUESTIONS, long], [long.replace("word30", "another")])
    assert (found.figures["equal"], found.figures["near"]) == (0, 1)


def test_a_snapshot_that_holds_nothing_out_is_told() -> None:
    found = evaluation_overlap(QUESTIONS, QUESTIONS[:5], same_file=True)
    assert found.level == "warn"
    assert "no evaluation file" in found.message


@pytest.mark.parametrize(("shared", "level"), [(5, "ok"), (20, "warn")])
def test_prompts_the_policy_was_shown_answers_to_are_counted(shared: int, level: str) -> None:
    found = demonstration_overlap(
        QUESTIONS, [*QUESTIONS[:shared], "Who painted this picture here?"]
    )
    assert (found.level, found.figures["equal"]) == (level, shared)
    assert demonstration_overlap(QUESTIONS, []).level == "unknown"


# A critic that can learn is seen to learn, a dead one is named, and neither is changed by it.


def rollout(seed: int = 0) -> FixedRollout:
    """Sixteen answers; the return of each is how often the token 4 is in it."""
    generator = torch.Generator().manual_seed(seed)
    prompt = torch.randint(4, 18, (16, 5), generator=generator)
    answer = torch.randint(4, 8, (16, 6), generator=generator)
    mask = torch.ones_like(answer)
    mask[3, 4:] = 0
    counts = ((answer == 4) * mask).sum(1).float()
    returns = ((counts - counts.mean()) / counts.std())[:, None] * mask
    return FixedRollout(prompt, torch.ones_like(prompt), answer, mask, returns)


def actor_critic(kind: str) -> ActorCritic:
    policy = tiny_llama()
    disable_dropout(policy)
    adapted = attach_policy_lora(policy, rank=8, alpha=16.0) if kind == "lora" else None
    critic = critic_of(policy) if kind == "separate" else None
    return ActorCritic(policy, adapted=adapted, critic=critic).eval()


@pytest.mark.parametrize("kind", ["shared", "lora", "separate"])
def test_a_live_critic_passes_and_is_put_back_to_the_last_bit(kind: str) -> None:
    model = actor_critic(kind)
    before = weights_sha256(model)
    first = model.value_head.weight
    first.grad = torch.full_like(first, 3.0)
    fit = fit_critic(critic_parts(model), rollout(), max_seconds=60)
    finding = critic_finding(fit, answers=16)
    assert fit.before == pytest.approx(0.0, abs=1e-6)  # its head begins at zero
    assert (finding.level, fit.after >= 0.5) == ("ok", True)
    assert weights_sha256(model) == before
    assert torch.equal(first.grad, torch.full_like(first, 3.0))
    assert all(p.grad is None for p in model.parameters() if p is not first)


def test_it_draws_no_random_numbers() -> None:
    parts, rolled = critic_parts(actor_critic("shared")), rollout()
    state = torch.random.get_rng_state()
    fit_critic(parts, rolled, steps=2)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_frozen_head_is_a_dead_critic() -> None:
    model = actor_critic("shared")
    model.value_head.requires_grad_(False)
    finding = critic_finding(fit_critic(critic_parts(model), rollout()), answers=16)
    assert finding.level == "warn"
    assert "no gradient" in finding.message


def test_detached_states_are_a_dead_critic() -> None:
    model = actor_critic("shared")
    parts = CriticParts(lambda *rows: model.values(*rows).detach(), list(model.critic_parameters()))
    finding = critic_finding(fit_critic(parts, rollout()), answers=16, level="block")
    assert finding.level == "block"


def test_states_that_say_nothing_are_a_dead_critic() -> None:
    """Gradient there is; the same value for every token is all it can learn."""
    model = actor_critic("shared")

    def blind(*rows: torch.Tensor) -> torch.Tensor:
        return model.value_head.bias.expand_as(rows[2])

    fit = fit_critic(CriticParts(blind, [model.value_head.bias]), rollout())
    assert fit.gradient
    finding = critic_finding(fit, answers=16)
    assert finding.level == "warn"
    assert finding.figures["explained_variance"] < 0.3


def test_running_out_of_time_is_no_verdict() -> None:
    clock = itertools.count(step=5)
    model = actor_critic("shared")
    fit = fit_critic(
        critic_parts(model), rollout(), max_seconds=4, clock=lambda: float(next(clock))
    )
    assert fit.out_of_time
    assert critic_finding(fit, answers=16).level == "unknown"


def test_returns_that_are_all_alike_are_no_verdict() -> None:
    given = rollout()
    same = FixedRollout(*given.sequences, returns=given.response_mask * 0.0)
    finding = critic_finding(fit_critic(critic_parts(actor_critic("shared")), same), answers=16)
    assert finding.level == "unknown"
    assert "all alike" in finding.message


# Who waits for whom, from the times of steps; and how long an answer takes.


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
    assert "20.0 ms (10 %)" in found.message


def test_a_slow_hundredth_shows_in_the_p99_alone() -> None:
    clock = Clock()

    def answer(number: int) -> int:
        clock.now += 1.0 if number in (7, 8, 9) else 0.1
        return 4

    found = measure_latency(answer, answer, requests=100, clock=clock)
    assert found.without.p50_ms == pytest.approx(100)
    assert found.without.p99_ms == pytest.approx(1000)
    assert found.added_p99_ms == pytest.approx(0)
