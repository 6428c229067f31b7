"""How the gradient of a minibatch comes together over the ranks of a job, and becomes a step.

A minibatch comes in parts, as many on every rank. The gradient is the sum over parts and ranks,
and is then either dropped or, clipped, steps.
"""

from typing import Any, Protocol

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from workers.layouts.whole import is_split
from workers.models.loading import whole
from workers.ppo.actor_critic import ActorCritic, ActorCriticOutputs
from workers.ppo.finite import NonFinite
from workers.ppo.sums import add_up_gradients


class Stepper(Protocol):
    """What an update does with a model."""

    def look(self, *sequences: Tensor, **options: Any) -> ActorCriticOutputs:
        """`ActorCritic.forward`, with gradients."""

    def backward(self, share: Tensor, *, last: bool) -> None:
        """Add the gradient of one part's share of the minibatch's loss, a scalar; `last`: of the
        minibatch. Every rank must call, equally often."""

    def drop(self) -> None:
        """Forget the gradient."""

    def step(self, *, policy_rests: bool) -> float:
        """Clip the gradient and take a step; returns the norm before clipping. With `policy_rests`
        only the critic got a gradient. Raises `NonFinite` where the norm is no number, before any
        weight has moved."""


def stepper_of(
    actor_critic: ActorCritic,
    optimizer: torch.optim.Optimizer | Stepper,
    accelerator: Accelerator | None,
    *,
    max_norm: float,
) -> Stepper:
    """What steps with torch's optimizer, or what already is one (`workers.ppo.zero`)."""
    if isinstance(optimizer, torch.optim.Optimizer):
        return WholeSteps(actor_critic, optimizer, accelerator, max_norm=max_norm)
    return optimizer


class WholeSteps:
    """Weights that each rank has whole, or that `fully_shard` has split."""

    def __init__(
        self,
        actor_critic: ActorCritic,
        optimizer: torch.optim.Optimizer,
        accelerator: Accelerator | None,
        *,
        max_norm: float,
    ) -> None:
        self._actor_critic = actor_critic
        self._optimizer = optimizer
        self._accelerator = accelerator
        self._max_norm = max_norm
        self._split = is_split(actor_critic)  # then gradients add up as they go
        # Those of the optimizer: of weights split over ranks, the parts that this one holds.
        self._trained = [p for group in optimizer.param_groups for p in group["params"]]

    def look(self, *sequences: Tensor, **options: Any) -> ActorCriticOutputs:
        return self._actor_critic(*sequences, **options)

    def backward(self, share: Tensor, *, last: bool) -> None:
        if self._accelerator is None:
            share.backward()
        else:
            self._accelerator.backward(share)
        if last and not self._split:
            add_up_gradients(self._trained)

    def drop(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)

    def step(self, *, policy_rests: bool) -> float:
        norm = whole(clip_grad_norm_(self._trained, self._max_norm))
        if not torch.isfinite(norm):
            raise NonFinite("the gradient of the update")
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        forget_rounded()
        return float(norm)


def forget_rounded() -> None:
    """Let the next pass round the weights anew. Autocast keeps its bfloat16 copies until it is
    left, and an update is one autocast: its later minibatches would see the weights before it."""
    torch.clear_autocast_cache()
