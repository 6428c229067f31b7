"""Reward shaping and advantages: three steps by hand, ragged batches by brute force."""

import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workers.rl.losses import (
    AdaptiveKL,
    FixedKL,
    RunningMoments,
    gae,
    last_token_index,
    shaped_rewards,
)


def test_three_steps_by_hand() -> None:
    # γ = 0.9, λ = 0.8:  δ2 = 3 − 0.6 = 2.4
    #                    δ1 = 0 + 0.9·0.6 − 0.4 = 0.14
    #                    δ0 = 1 + 0.9·0.4 − 0.2 = 1.16
    # A2 = 2.4;  A1 = 0.14 + 0.72·2.4 = 1.868;  A0 = 1.16 + 0.72·1.868 = 2.50496
    rewards = torch.tensor([[1.0, 0.0, 3.0]])
    values = torch.tensor([[0.2, 0.4, 0.6]])
    advantages, returns = gae(rewards, values, torch.ones(1, 3), gamma=0.9, lam=0.8)
    torch.testing.assert_close(advantages, torch.tensor([[2.50496, 1.868, 2.4]]))
    torch.testing.assert_close(returns, torch.tensor([[2.70496, 2.268, 3.0]]))


def test_with_lambda_1_the_return_is_the_discounted_sum_of_rewards_whatever_the_values() -> None:
    rewards = torch.tensor([[1.0, 2.0, 4.0]])
    for values in (torch.zeros(1, 3), torch.tensor([[5.0, -3.0, 9.0]])):
        _, returns = gae(rewards, values, torch.ones(1, 3), gamma=0.5, lam=1.0)
        torch.testing.assert_close(returns, torch.tensor([[3.0, 4.0, 4.0]]))


def _brute_force(
    rewards: list[float], values: list[float], gamma: float, lam: float
) -> list[float]:
    """A_t = Σ_l (γλ)^l δ_{t+l}, as the definition has it."""
    ahead = [*values[1:], 0.0]
    deltas = [r + gamma * n - v for r, n, v in zip(rewards, ahead, values, strict=True)]
    return [
        sum((gamma * lam) ** k * delta for k, delta in enumerate(deltas[t:]))
        for t in range(len(deltas))
    ]


ROWS = st.lists(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=6),
    min_size=1,
    max_size=4,
)


@given(ROWS, st.floats(0.1, 1.0), st.floats(0.0, 1.0))
def test_ragged_responses_get_the_advantages_of_each_alone(rows, gamma: float, lam: float) -> None:
    width = max(map(len, rows)) + 1  # one column that is padding in every row
    junk = 1e6  # what lies under the padding must not matter
    rewards = torch.full((len(rows), width), junk, dtype=torch.float64)
    values, mask = rewards.clone(), torch.zeros(len(rows), width)
    for i, row in enumerate(rows):
        rewards[i, : len(row)] = torch.tensor([r for r, _ in row], dtype=torch.float64)
        values[i, : len(row)] = torch.tensor([v for _, v in row], dtype=torch.float64)
        mask[i, : len(row)] = 1
    advantages, returns = gae(rewards, values, mask, gamma=gamma, lam=lam)
    for i, row in enumerate(rows):
        expected = torch.tensor(
            _brute_force([r for r, _ in row], [v for _, v in row], gamma, lam)
        ).double()
        torch.testing.assert_close(advantages[i, : len(row)], expected, atol=1e-5, rtol=1e-5)
        assert advantages[i, len(row) :].eq(0).all()
        assert returns[i, len(row) :].eq(0).all()


def test_the_score_lies_on_the_last_real_token_and_every_token_pays_for_its_divergence() -> None:
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    kl = torch.tensor([[0.1, 0.2, 0.3], [0.4, 9.0, 9.0]])
    rewards = shaped_rewards(torch.tensor([1.0, -2.0]), kl, mask, kl_coef=0.5)
    expected = torch.tensor([[-0.05, -0.1, 0.85], [-2.2, 0.0, 0.0]])
    torch.testing.assert_close(rewards, expected)


def test_an_empty_response_gets_no_score_rather_than_the_score_of_another_position() -> None:
    mask = torch.tensor([[0, 0], [1, 1]])
    assert last_token_index(mask).tolist() == [-1, 1]
    rewards = shaped_rewards(torch.tensor([7.0, 1.0]), torch.zeros(2, 2), mask, kl_coef=1.0)
    assert rewards.tolist() == [[0.0, 0.0], [0.0, 1.0]]


# The KL controllers and the running scale of the reward.


def test_the_adaptive_coefficient_follows_the_divergence_in_both_directions() -> None:
    far, near, on_target = (AdaptiveKL(0.1, target=6.0, horizon=100.0) for _ in range(3))
    far.update(kl=12.0, samples=50)
    near.update(kl=1.0, samples=50)
    on_target.update(kl=6.0, samples=50)
    assert far.coef == pytest.approx(0.1 * 1.1)  # clipped at +0.2, half a horizon
    assert near.coef == pytest.approx(0.1 * 0.9)
    assert on_target.coef == pytest.approx(0.1)


def test_a_small_error_moves_the_coefficient_in_proportion() -> None:
    controller = AdaptiveKL(1.0, target=10.0, horizon=100.0)
    controller.update(kl=11.0, samples=100)
    assert controller.coef == pytest.approx(1.1)


def test_the_coefficient_climbs_for_as_long_as_the_divergence_stays_high() -> None:
    controller = AdaptiveKL(0.05, target=6.0, horizon=64.0)
    path = []
    for _ in range(5):
        controller.update(kl=60.0, samples=64)
        path.append(controller.coef)
    assert path == sorted(path)
    assert path[-1] == pytest.approx(0.05 * 1.2**5)


def test_the_fixed_coefficient_stays() -> None:
    controller = FixedKL(0.05)
    controller.update(kl=1e9, samples=64)
    assert controller.coef == 0.05


@given(
    st.lists(st.lists(st.floats(-50, 50), min_size=1, max_size=5), min_size=2, max_size=5).filter(
        lambda batches: statistics.stdev([x for b in batches for x in b]) > 1e-2
    )
)
def test_moments_over_batches_are_those_of_all_scores_together(batches: list[list[float]]) -> None:
    moments = RunningMoments()
    for batch in batches:
        moments.update(torch.tensor(batch, dtype=torch.float64))
    everything = [x for batch in batches for x in batch]
    assert moments.count == len(everything)
    assert moments.mean == pytest.approx(statistics.fmean(everything), abs=1e-9)
    assert moments.std == pytest.approx(statistics.stdev(everything), rel=1e-6)


def test_a_reward_ten_times_as_large_is_normalised_to_the_same_scores() -> None:
    scores = torch.tensor([0.3, -1.2, 2.0, 0.7])
    small, large = RunningMoments(), RunningMoments()
    small.update(scores)
    large.update(10 * scores)
    torch.testing.assert_close(
        small.normalise(scores, clip=5.0), large.normalise(10 * scores, clip=5.0)
    )


@pytest.mark.parametrize("scores", [[2.0, 2.0, 2.0], [0.1, 0.1 + 1e-7, 0.1], [0.0, 0.0, 0.0]])
def test_scores_that_differ_by_rounding_only_are_constant_and_normalise_to_zero(
    scores: list[float],
) -> None:
    moments = RunningMoments()
    moments.update(torch.tensor(scores))
    assert moments.constant
    assert moments.normalise(torch.tensor(scores), clip=5.0).eq(0).all()


def test_outliers_are_cut_at_the_clip() -> None:
    moments = RunningMoments()
    moments.update(torch.randn(1000, generator=torch.Generator().manual_seed(0)))
    assert moments.normalise(torch.tensor([60.0, -60.0]), clip=5.0).tolist() == [5.0, -5.0]
