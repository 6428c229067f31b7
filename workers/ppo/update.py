"""One PPO update: several passes over a batch of rollouts, in clipped steps."""

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.contracts import check_first_ratio
from workers.ppo.actor_critic import ActorCritic
from workers.ppo.rollout import Rollout, sequences_of
from workers.recipes.settings.policy import PPOSettings
from workers.rl.kl import kl_k3
from workers.rl.losses import clip_fraction, mean_ratio, policy_loss, value_loss
from workers.rl.masked import masked_sum, masked_whiten
from workers.rollouts.sampling import derive_seed


class NonFinite(Exception):
    """A loss or gradient that is NaN or infinite; the weights are still those before it."""


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """Means over the minibatches of an update, by the names of docs/metrics.md."""

    metrics: dict[str, float]
    steps: int  # optimizer steps taken
    stopped_by_kl: bool


def update(
    actor_critic: ActorCritic,
    optimizer: torch.optim.Optimizer,
    rollout: Rollout,
    advantages: Tensor,
    returns: Tensor,
    settings: PPOSettings,
    *,
    seed: int,
    trusted: Tensor | None = None,
) -> UpdateStats:
    """`update_epochs` passes in minibatches. advantages, returns [B, R]; trusted [B], all if None.

    Advantages are whitened over the batch. Before each step the KL of the old policy to the new
    one is looked at; past twice `update_kl_target` the rest of the update is dropped. Answers that
    are not trusted take part in nothing: neither in the whitening nor in any minibatch.
    """
    if trusted is None:
        trusted = torch.ones(len(rollout.prompts), dtype=torch.bool)
    kept = torch.nonzero(trusted.cpu()).squeeze(-1)
    mask = rollout.mask * trusted.to(rollout.mask.device)[:, None]
    whitened = masked_whiten(advantages, mask)
    seen: dict[str, list[float]] = defaultdict(list)
    steps = 0
    for epoch in range(settings.update_epochs):
        generator = torch.Generator().manual_seed(derive_seed(seed, "minibatches", epoch))
        order = kept[torch.randperm(len(kept), generator=generator)]
        for rows in order.split(settings.minibatch_size):
            stats = _gradients(
                actor_critic, rollout, whitened, returns, rows, settings, first=steps == 0
            )
            if not all(map(torch.isfinite, stats.values())):
                raise NonFinite("the loss of the update is not finite")
            for name, value in stats.items():
                seen[name].append(float(value))
            if stats["policy/approxkl_avg"] > 2 * settings.update_kl_target:
                optimizer.zero_grad(set_to_none=True)
                return UpdateStats(_means(seen), steps, stopped_by_kl=True)
            norm = torch.nn.utils.clip_grad_norm_(actor_critic.parameters(), settings.max_grad_norm)
            if not torch.isfinite(norm):
                raise NonFinite("the gradient of the update is not finite")
            seen["grad_norm"].append(float(norm))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            steps += 1
    return UpdateStats(_means(seen), steps, stopped_by_kl=False)


def _means(seen: dict[str, list[float]]) -> dict[str, float]:
    return {name: sum(values) / len(values) for name, values in seen.items()}


def _gradients(
    actor_critic: ActorCritic,
    rollout: Rollout,
    advantages: Tensor,
    returns: Tensor,
    rows: Tensor,
    settings: PPOSettings,
    *,
    first: bool,
) -> dict[str, Tensor]:
    """Accumulate the gradient of one minibatch, in microbatches; returns its statistics.

    Every sum is divided by the minibatch's token count, so the split changes nothing. `first`
    says that no step of this update was taken yet: the ratio must be 1.
    """
    total = rollout.mask[rows].sum()
    sums: dict[str, Tensor] = defaultdict(lambda: torch.zeros(()))
    for part in rows.split(settings.microbatch_size or settings.minibatch_size):
        *sequences, width = sequences_of(rollout.responses, part)
        mask = sequences[-1]
        old = rollout.logprobs[part, :width]
        new = actor_critic(
            *sequences,
            temperature=settings.temperature,
            entropy_gradient=settings.entropy_coef > 0,
        )
        if first:
            check_first_ratio(new.logprobs.detach(), old, mask)
        policy = policy_loss(
            new.logprobs, old, advantages[part, :width], mask, clip=settings.clip
        ).sum()
        value = value_loss(
            new.values,
            rollout.values[part, :width],
            returns[part, :width],
            mask,
            clip=settings.value_clip,
        ).sum()
        entropy = masked_sum(new.entropy, mask)
        loss = policy + settings.value_coef * value - settings.entropy_coef * entropy
        (loss / total).backward()
        with torch.no_grad():
            share = mask.sum() / total
            for name, amount in {
                "loss/policy_avg": policy / total,
                "loss/value_avg": value / total,
                "policy/entropy_avg": entropy / total,
                "policy/approxkl_avg": masked_sum(kl_k3(old, new.logprobs), mask) / total,
                "policy/clipfrac_avg": clip_fraction(new.logprobs, old, mask, clip=settings.clip)
                * share,
                "val/ratio": mean_ratio(new.logprobs, old, mask) * share,
            }.items():
                sums[name] = sums[name] + amount.detach().cpu()
    return dict(sums)
