"""Losses: hand-computed values, gradients by finite differences or by torch's own functions."""

import math
import statistics
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Categorical

from workers.rl.losses import (
    ESTIMATORS,
    bradley_terry_loss,
    clip_fraction,
    explained_variance,
    kl_estimate,
    kl_exact,
    kl_k2,
    kl_k3,
    logprobs_and_entropy,
    masked_mean,
    masked_sum,
    masked_var,
    masked_whiten,
    mean_ratio,
    policy_loss,
    selective_logprobs,
    value_loss,
)

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


# KL estimators against the exact value, which is computed by summing over the vocabulary.


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


# The Bradley–Terry loss against TRL's, and each of its terms by hand.


SCORES = torch.tensor([1.5, -0.3, 0.2, 0.0, 2.0])
OTHERS = torch.tensor([0.5, 0.4, 0.2, -1.0, -2.0])


def trl_loss(chosen: torch.Tensor, rejected: torch.Tensor, center: float | None, margin=None):
    """What TRL's RewardTrainer computes from these scores, by its own code."""
    from trl import RewardTrainer

    def model(**inputs: object) -> SimpleNamespace:
        return SimpleNamespace(logits=torch.cat([chosen, rejected]).unsqueeze(-1))

    accelerator = SimpleNamespace(gather=lambda x: x, gather_for_metrics=lambda x: x)
    trainer = SimpleNamespace(
        model=SimpleNamespace(training=False),
        args=SimpleNamespace(center_rewards_coefficient=center),
        accelerator=accelerator,
        _metrics={"eval": defaultdict(list)},
        _total_train_tokens=0,
    )
    inputs = {} if margin is None else {"margin": margin}
    return RewardTrainer.compute_loss(trainer, model, inputs)


@pytest.mark.parametrize("center", [None, 0.01])
@pytest.mark.parametrize("margin", [None, torch.tensor([0.0, 1.0, 2.0, 0.5, 1.5])])
def test_hard_labels_of_equal_weight_give_the_loss_of_trls_reward_trainer(center, margin) -> None:
    ours = bradley_terry_loss(SCORES, OTHERS, margin=margin, center_coef=center or 0.0)
    torch.testing.assert_close(ours, trl_loss(SCORES, OTHERS, center, margin))


def test_parts_of_a_step_add_up_to_the_step_and_so_do_their_gradients() -> None:
    weight = torch.tensor([1.0, 0.2, 3.0, 0.5, 0.0])
    whole = SCORES.clone().requires_grad_()
    bradley_terry_loss(whole, OTHERS, weight=weight, center_coef=0.1).backward()
    split = SCORES.clone().requires_grad_()
    for part in ([0, 3], [1], [2, 4]):
        bradley_terry_loss(
            split[part],
            OTHERS[part],
            weight=weight[part],
            center_coef=0.1,
            total_weight=weight.sum(),
        ).backward()
    torch.testing.assert_close(split.grad, whole.grad)


def test_smoothed_labels_are_fitted_by_the_odds_of_the_flips() -> None:
    # the minimum of −0.9 log σ(Δ) − 0.1 log σ(−Δ) is where σ(Δ) = 0.9
    best = torch.tensor([math.log(9.0)], requires_grad=True)
    bradley_terry_loss(best, torch.zeros(1), label_smoothing=0.1).backward()
    assert best.grad.item() == pytest.approx(0.0, abs=1e-6)


def test_a_tie_is_pushed_to_neither_side_by_a_margin() -> None:
    delta = torch.zeros(1, requires_grad=True)
    tie = torch.tensor([0.5])
    bradley_terry_loss(delta, torch.zeros(1), target=tie, margin=torch.tensor([2.0])).backward()
    assert delta.grad.item() == 0.0


def test_a_margin_asks_for_so_much_more_distance() -> None:
    # σ(Δ − m) is what is fitted: a share of 0.8 needs log 4, and the margin scaled by 2·0.8 − 1
    delta = torch.tensor([math.log(4.0) + 0.6 * 2.0], requires_grad=True)
    share, margin = torch.tensor([0.8]), torch.tensor([2.0])
    bradley_terry_loss(delta, torch.zeros(1), target=share, margin=margin).backward()
    assert delta.grad.item() == pytest.approx(0.0, abs=1e-6)


def test_centring_moves_scores_to_zero_and_leaves_their_distance() -> None:
    chosen = torch.tensor([5.0], requires_grad=True)
    rejected = torch.tensor([4.0], requires_grad=True)
    optimizer = torch.optim.LBFGS([chosen, rejected], max_iter=200, lr=0.5)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = bradley_terry_loss(chosen, rejected, target=torch.tensor([0.7]), center_coef=0.1)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert (chosen + rejected).item() == pytest.approx(0.0, abs=1e-3)
    assert (chosen - rejected).item() == pytest.approx(math.log(7 / 3), abs=1e-3)


# Statistics over real tokens: compared with plain Python on the kept numbers.


NUMBERS = st.lists(st.floats(-100, 100), min_size=3, max_size=12)


def _ragged(numbers: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers as the real tokens of two rows, NaN under the padding."""
    cut = len(numbers) // 3
    width = max(cut, len(numbers) - cut)
    values = torch.full((2, width), float("nan"), dtype=torch.float64)
    mask = torch.zeros(2, width, dtype=torch.long)
    for row, part in enumerate((numbers[:cut], numbers[cut:])):
        values[row, : len(part)] = torch.tensor(part, dtype=torch.float64)
        mask[row, : len(part)] = 1
    return values, mask


@given(NUMBERS)
def test_mean_and_variance_are_those_of_the_real_tokens_alone(numbers: list[float]) -> None:
    values, mask = _ragged(numbers)
    assert masked_mean(values, mask).item() == pytest.approx(statistics.fmean(numbers), abs=1e-9)
    assert masked_var(values, mask).item() == pytest.approx(statistics.variance(numbers), abs=1e-7)


@given(NUMBERS)
def test_whitened_values_have_mean_0_and_variance_1(numbers: list[float]) -> None:
    if statistics.stdev(numbers) < 1e-2:
        return  # nearly constant values are kept small on purpose, see below
    values, mask = _ragged(numbers)
    whitened = masked_whiten(values, mask)
    kept = whitened[mask.bool()].tolist()
    assert statistics.fmean(kept) == pytest.approx(0.0, abs=1e-6)
    assert statistics.variance(kept) == pytest.approx(1.0, abs=1e-3)
    assert whitened[~mask.bool()].eq(0).all()


def test_whitening_without_shift_keeps_the_mean_and_scales_around_it() -> None:
    values = torch.tensor([[1.0, 3.0, 5.0]])
    whitened = masked_whiten(values, torch.ones_like(values), shift_mean=False)
    torch.testing.assert_close(whitened, torch.tensor([[2.0, 3.0, 4.0]]))


def test_whitening_does_not_blow_rounding_noise_up_to_unit_size() -> None:
    values = torch.tensor([[0.5, 0.5 + 1e-6, 0.5 - 1e-6]])
    assert masked_whiten(values, torch.ones_like(values)).abs().max() < 0.05


def test_sums_ignore_what_lies_under_the_padding_even_when_it_is_not_a_number() -> None:
    values = torch.tensor([[1.0, float("nan")], [2.0, float("inf")]])
    mask = torch.tensor([[1, 0], [1, 0]])
    assert masked_sum(values, mask).item() == 3.0
    assert masked_sum(values, mask, dim=1).tolist() == [1.0, 2.0]


def test_the_mean_of_nothing_is_undefined_rather_than_zero() -> None:
    assert masked_mean(torch.ones(1, 2), torch.zeros(1, 2)).isnan()


# Log-probabilities and entropy: compared with torch.distributions.


LOGITS = torch.randn(2, 5, 11, generator=torch.Generator().manual_seed(0)) * 3
TOKENS = torch.randint(11, (2, 5), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_logprobs_are_those_of_the_tempered_distribution(temperature: float) -> None:
    expected = Categorical(logits=LOGITS / temperature).log_prob(TOKENS)
    actual = selective_logprobs(LOGITS, TOKENS, temperature=temperature)
    torch.testing.assert_close(actual, expected)
    together, _ = logprobs_and_entropy(LOGITS, TOKENS, temperature=temperature)
    torch.testing.assert_close(together, expected)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_entropy_is_that_of_the_tempered_distribution(temperature: float) -> None:
    expected = Categorical(logits=LOGITS / temperature).entropy()
    _, actual = logprobs_and_entropy(LOGITS, TOKENS, temperature=temperature)
    torch.testing.assert_close(actual, expected)


def test_a_forbidden_token_adds_nothing_to_the_entropy() -> None:
    logits = torch.tensor([[[0.0, 0.0, -torch.inf]]])
    _, entropy = logprobs_and_entropy(logits, torch.zeros(1, 1, dtype=torch.long))
    assert entropy.item() == pytest.approx(0.6931472)


def test_the_entropy_has_a_gradient_when_asked_for_and_it_points_to_the_uniform() -> None:
    logits = torch.tensor([[[2.0, 0.0, 0.0]]], requires_grad=True)
    token = torch.zeros(1, 1, dtype=torch.long)
    _, entropy = logprobs_and_entropy(logits, token, entropy_gradient=True)
    entropy.sum().backward()
    assert logits.grad[0, 0, 0] < 0 < logits.grad[0, 0, 1]
    _, plain = logprobs_and_entropy(logits, token)
    assert not plain.requires_grad
