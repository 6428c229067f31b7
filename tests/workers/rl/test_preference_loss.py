"""The Bradley–Terry loss against TRL's, and each of its terms by hand."""

import math
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch

from workers.rl.losses import bradley_terry_loss

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
