"""The KL controllers and the running scale of the reward."""

import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workers.rl.losses import AdaptiveKL, FixedKL
from workers.rl.masked import RunningMoments


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
