"""Losses: hand-computed values, gradients by finite differences or by torch's own functions."""

import math

import pytest
import torch
import torch.nn.functional as F

from workers.rl.losses import (
    bradley_terry_loss,
    clip_fraction,
    explained_variance,
    mean_ratio,
    policy_loss,
    value_loss,
)
from workers.rl.masked import masked_sum

MASK = torch.tensor([[1, 1, 1, 0]])


def _with_ratios(*ratios: float) -> torch.Tensor:
    return torch.log(torch.tensor([ratios]))


def test_the_policy_loss_takes_the_more_pessimistic_of_the_ratio_and_its_clip() -> None:
    advantages = torch.tensor([[1.0, -1.0, 1.0, 50.0]])
    loss = policy_loss(
        _with_ratios(1.5, 1.5, 0.5, 9.0), torch.zeros(1, 4), advantages, MASK, clip=0.2
    )
    # up with a good token: clipped at 1.2; up with a bad one: not clipped; down with a good one:
    # not clipped; padding: nothing
    torch.testing.assert_close(loss, torch.tensor([[-1.2, 1.5, -0.5, 0.0]]))


def test_a_token_clipped_in_its_favour_gives_no_gradient_and_padding_never_does() -> None:
    logprobs = _with_ratios(1.5, 1.1, 1.0, 1.0).requires_grad_()
    loss = policy_loss(logprobs, torch.zeros(1, 4), torch.ones(1, 4), MASK, clip=0.2)
    loss.sum().backward()
    assert logprobs.grad[0, 0] == 0.0
    assert logprobs.grad[0, 3] == 0.0
    assert logprobs.grad[0, 1].item() == pytest.approx(-1.1)


def test_at_ratio_1_the_gradient_is_the_plain_policy_gradient() -> None:
    logprobs = torch.tensor([[-1.0, -2.0, -0.5, -3.0]]).requires_grad_()
    advantages = torch.tensor([[0.3, -0.7, 1.1, 5.0]])
    policy_loss(logprobs, logprobs.detach(), advantages, MASK, clip=0.2).sum().backward()
    torch.testing.assert_close(logprobs.grad, torch.tensor([[-0.3, 0.7, -1.1, 0.0]]))


def test_the_value_loss_is_half_the_larger_squared_error_of_value_and_clipped_value() -> None:
    values = torch.tensor([[1.0, 0.1, 0.0, 9.0]])
    old = torch.tensor([[0.0, 0.0, 0.5, 0.0]])
    returns = torch.tensor([[2.0, 0.2, 0.0, 0.0]])
    loss = value_loss(values, old, returns, MASK, clip=0.2)
    # clipped values: 0.2, 0.1, 0.3
    torch.testing.assert_close(loss, torch.tensor([[0.5 * 1.8**2, 0.005, 0.045, 0.0]]))


def test_hard_labels_are_the_binary_cross_entropy_of_the_margin() -> None:
    chosen, rejected = torch.tensor([1.0, 0.2]), torch.tensor([0.5, 0.9])
    expected = F.binary_cross_entropy_with_logits(chosen - rejected, torch.ones(2))
    torch.testing.assert_close(bradley_terry_loss(chosen, rejected), expected)


def test_soft_targets_are_fitted_by_the_margin_whose_sigmoid_they_are() -> None:
    margin = torch.tensor([0.0], requires_grad=True)
    optimizer = torch.optim.LBFGS([margin], max_iter=50)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = bradley_terry_loss(margin, torch.zeros(1), target=torch.tensor([0.8]))
        loss.backward()
        return loss

    optimizer.step(closure)
    assert margin.item() == pytest.approx(math.log(4), abs=1e-3)


def test_known_scores_are_recovered_from_the_wins_they_cause() -> None:
    true = torch.tensor([-1.0, 0.0, 1.5])
    pairs = torch.combinations(torch.arange(3))
    target = torch.sigmoid(true[pairs[:, 0]] - true[pairs[:, 1]])
    scores = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([scores], max_iter=100)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = bradley_terry_loss(scores[pairs[:, 0]], scores[pairs[:, 1]], target=target)
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(
        scores.detach() - scores.detach().mean(), true - true.mean(), atol=1e-2, rtol=0.0
    )


def test_a_row_of_weight_zero_counts_for_nothing_and_weights_have_no_scale() -> None:
    chosen, rejected = torch.tensor([1.0, -5.0]), torch.tensor([0.0, 5.0])
    alone = bradley_terry_loss(chosen[:1], rejected[:1])
    weighted = bradley_terry_loss(chosen, rejected, weight=torch.tensor([3.0, 0.0]))
    torch.testing.assert_close(weighted, alone)


def test_the_clip_fraction_counts_real_tokens_outside_the_band() -> None:
    new = _with_ratios(1.5, 1.1, 0.7, 9.0)
    assert clip_fraction(new, torch.zeros(1, 4), MASK, clip=0.2).item() == pytest.approx(2 / 3)
    assert mean_ratio(new, torch.zeros(1, 4), MASK).item() == pytest.approx(1.1)


def test_explained_variance_is_1_for_a_perfect_critic_0_for_a_constant_and_negative_beyond() -> (
    None
):
    returns = torch.tensor([[1.0, 2.0, 3.0, 99.0]])
    assert explained_variance(returns, returns, MASK).item() == pytest.approx(1.0)
    assert explained_variance(torch.full((1, 4), 7.0), returns, MASK).item() == pytest.approx(0.0)
    assert explained_variance(-returns, returns, MASK).item() == pytest.approx(-3.0)


def test_explained_variance_is_undefined_when_all_returns_are_equal() -> None:
    assert explained_variance(torch.zeros(1, 4), torch.ones(1, 4), MASK).isnan()


def test_nothing_under_the_padding_changes_any_loss_or_statistic() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b, c = (torch.randn(1, 4, generator=generator) for _ in range(3))
    results = []
    for junk in (0.0, 1e3):
        x, y, z = (torch.where(MASK.bool(), t, torch.full_like(t, junk)) for t in (a, b, c))
        results.append(
            [
                masked_sum(policy_loss(x, y, z, MASK, clip=0.2), MASK),
                masked_sum(value_loss(x, y, z, MASK, clip=0.2), MASK),
                clip_fraction(x, y, MASK, clip=0.2),
                explained_variance(x, y, MASK),
                mean_ratio(x, y, MASK),
            ]
        )
    assert torch.equal(torch.stack(results[0]), torch.stack(results[1]))
