"""KL estimators against the exact value, which is computed by summing over the vocabulary."""

import math

import pytest
import torch

from workers.rl.losses import ESTIMATORS, kl_estimate, kl_exact, kl_k2, kl_k3

P = torch.tensor([0.5, 0.3, 0.15, 0.05])
Q = torch.tensor([0.4, 0.3, 0.2, 0.1])
EXACT = sum(p * math.log(p / q) for p, q in zip(P.tolist(), Q.tolist(), strict=True))


def _samples(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.multinomial(P, n, replacement=True, generator=torch.Generator().manual_seed(3))
    return P.log()[tokens], Q.log()[tokens]


def test_the_exact_value_is_the_sum_over_the_vocabulary_and_ignores_shifts_of_the_logits() -> None:
    shifted = kl_exact(P.log() + 7.0, Q.log() - 3.0)
    assert shifted.item() == pytest.approx(EXACT, abs=1e-6)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_unbiased_estimators_have_the_exact_value_as_their_expectation(estimator: str) -> None:
    expectation = (P * kl_estimate(P.log(), Q.log(), estimator)).sum()
    assert expectation.item() == pytest.approx(EXACT, abs=1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimates_from_many_samples_are_positive_and_near_the_exact_value(estimator: str) -> None:
    logprobs, ref_logprobs = _samples(200_000)
    estimate = kl_estimate(logprobs, ref_logprobs, estimator).mean().item()
    assert estimate > 0
    assert estimate == pytest.approx(EXACT, rel=0.1)


def test_the_sign_says_which_way_the_policy_moved() -> None:
    likelier_than_reference = kl_estimate(torch.tensor(-1.0), torch.tensor(-2.0), "k1")
    assert likelier_than_reference.item() == 1.0


def test_k2_and_k3_are_never_negative_on_a_single_sample() -> None:
    logprobs = torch.linspace(-8, 0, 50)
    ref_logprobs = torch.linspace(0, -8, 50)
    assert (kl_k2(logprobs, ref_logprobs) >= 0).all()
    assert (kl_k3(logprobs, ref_logprobs) >= 0).all()


def test_k3_stays_exact_for_differences_that_rounding_would_swallow() -> None:
    tiny = kl_k3(torch.tensor(-1.0, dtype=torch.float64), torch.tensor(-1.0 + 1e-7).double())
    difference = float(torch.tensor(-1.0 + 1e-7).double() + 1.0)
    assert tiny.item() == pytest.approx(difference**2 / 2, rel=1e-4)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_equal_policies_are_at_distance_zero(estimator: str) -> None:
    logprobs, _ = _samples(10)
    assert kl_estimate(logprobs, logprobs.clone(), estimator).abs().max() == 0.0
