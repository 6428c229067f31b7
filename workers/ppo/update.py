"""One PPO update: several passes over a batch of rollouts, in clipped steps."""

import math
from collections import defaultdict
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from torch import Tensor

from workers import ranks
from workers.config.policy import PPOSettings
from workers.models.invariants import check_first_ratio
from workers.ppo.distributed import Stepper, stepper_of
from workers.ppo.model import ActorCritic, NonFinite
from workers.ppo.rollout import Rollout, sequences_of, shared_parts
from workers.rl.losses import (
    clip_fraction,
    kl_k3,
    masked_sum,
    masked_whiten,
    mean_ratio,
    policy_loss,
    value_loss,
)
from workers.rollouts.local import derive_seed

_LARGEST_LOG_RATIO = 80.0  # its exponential is still a number in single precision


@dataclass(slots=True)
class UpdateStats:
    """What an update did, by the names of docs/metrics.md: means over its minibatches, but for the
    greatest and least values, which say so."""

    metrics: dict[str, float]
    steps: int  # optimizer steps taken
    stopped_by_kl: bool
    skipped: int = 0  # minibatches with a ratio over the limit
    norms: list[float] = field(default_factory=list)  # gradient norms before clipping
    tokens: int = 0  # that its passes read, of prompts and answers


@dataclass(slots=True)
class Minibatch:
    """Statistics of one minibatch, whose gradient is accumulated: scalars."""

    means: dict[str, Tensor]
    ratio_max: float  # greatest of π/π_old and π_old/π
    logprob_min: float  # nats, least likely response token under the new policy

    @property
    def finite(self) -> bool:
        return all(map(torch.isfinite, self.means.values())) and math.isfinite(self.ratio_max)

    def of_all_ranks(self) -> "Minibatch":
        """What is decided by these is decided alike everywhere: sums of the ranks' shares, and
        their greatest and least. Added up in one order, so alike to the bit."""
        own = ({k: float(v) for k, v in self.means.items()}, self.ratio_max, self.logprob_min)
        told = ranks.gathered(own)
        if len(told) == 1:
            return self
        names = {name: None for means, *_ in told for name in means}
        return Minibatch(
            {n: torch.tensor(sum(means.get(n, 0.0) for means, *_ in told)) for n in names},
            max((ratio for _, ratio, _ in told), key=_or_nan),
            min(logprob for *_, logprob in told),
        )


def update(
    actor_critic: ActorCritic,
    optimizer: torch.optim.Optimizer | Stepper,
    rollout: Rollout,
    advantages: Tensor,
    returns: Tensor,
    settings: PPOSettings,
    *,
    seed: int,
    trusted: Tensor | None = None,
    epochs: int | None = None,
    entropy_coef: float | None = None,
    critic_alone: bool = False,
    accelerator: Accelerator | None = None,
) -> UpdateStats:
    """`epochs` passes in minibatches (the settings' if None). advantages, returns [B, R]; trusted
    [B], all if None.

    Advantages are whitened over the batch. Before each step the KL of the old policy to the new
    one is looked at; past twice `update_kl_target` the rest of the update is dropped. A minibatch
    with a ratio over `ratio_limit` is skipped. Answers that are not trusted take part in nothing:
    neither in the whitening nor in any minibatch. Raises `NonFinite` before a loss or gradient
    that is no number touches a weight.
    """
    if trusted is None:
        trusted = torch.ones(len(rollout.prompts), dtype=torch.bool)
    kept = torch.nonzero(trusted.cpu()).squeeze(-1)
    mask = rollout.mask * trusted.to(rollout.mask.device)[:, None]
    stepper = stepper_of(actor_critic, optimizer, accelerator, max_norm=settings.max_grad_norm)
    learn = _Learner(
        stepper,
        actor_critic.packs,
        rollout,
        masked_whiten(advantages, mask),
        returns,
        settings,
        settings.entropy_coef if entropy_coef is None else entropy_coef,
        critic_alone,
    )
    actor_critic.train()  # dropout is off; activations are recomputed only while training
    try:
        for epoch in range(settings.update_epochs if epochs is None else epochs):
            generator = torch.Generator().manual_seed(derive_seed(seed, "minibatches", epoch))
            order = kept[torch.randperm(len(kept), generator=generator)]
            for rows in order.split(settings.minibatch_size):
                if not learn.minibatch(rows):
                    return learn.stats(stopped_by_kl=True)
    except NonFinite:
        stepper.drop()
        raise
    finally:
        actor_critic.eval()
    return learn.stats(stopped_by_kl=False)


class _Learner:
    """The minibatches of one update, and what they looked like."""

    def __init__(
        self,
        stepper: Stepper,
        packed: bool,
        rollout: Rollout,
        advantages: Tensor,
        returns: Tensor,
        settings: PPOSettings,
        entropy_coef: float,
        critic_alone: bool,
    ) -> None:
        self.stepper = stepper
        self.packed = packed
        self.rollout = rollout
        self.advantages = advantages
        self.returns = returns
        self.settings = settings
        self.entropy_coef = entropy_coef
        self.critic_alone = critic_alone
        self.seen: dict[str, list[float]] = defaultdict(list)
        self.steps = 0
        self.skipped = 0
        self.tokens = 0
        answers = rollout.responses
        self.lengths = (answers.prompt_mask.sum(1) + answers.response_mask.sum(1)).cpu()  # [B]

    def minibatch(self, rows: Tensor) -> bool:
        """One optimizer step, or none; False when the policy has moved far enough."""
        found = self.gradients(rows)
        self.tokens += int(self.lengths[rows].sum())
        if not found.finite:
            raise NonFinite("the loss of the update")
        for name, value in found.means.items():
            self.seen[name].append(float(value))
        self.seen["policy/ratio_max"].append(found.ratio_max)
        self.seen["policy/logprob_min"].append(found.logprob_min)
        if found.means["policy/approxkl_avg"] > 2 * self.settings.update_kl_target:
            self.stepper.drop()
            return False
        if found.ratio_max > self.settings.ratio_limit:
            self.stepper.drop()
            self.skipped += 1
            return True
        self.seen["grad_norm"].append(self.stepper.step(policy_rests=self.critic_alone))
        self.steps += 1
        return True

    def gradients(self, rows: Tensor) -> Minibatch:
        """Accumulate the gradient of one minibatch, in parts; returns its statistics.

        Every sum is divided by the minibatch's token count, so the split changes nothing, neither
        that into parts nor that over the ranks of a job. Before the first step of an update the
        ratio must be 1.
        """
        settings, rollout = self.settings, self.rollout
        total = rollout.mask[rows].sum()
        sums: dict[str, Tensor] = defaultdict(lambda: torch.zeros(()))
        ratio_max, logprob_min = 1.0, 0.0
        parts = shared_parts(
            rollout.responses,
            rows,
            most_rows=settings.microbatch_size,
            most_tokens=settings.max_tokens_per_batch,
            packed=self.packed,
        )
        for number, (part, counts) in enumerate(parts, start=1):
            *sequences, width = sequences_of(rollout.responses, part)
            mask = sequences[-1]
            old = rollout.logprobs[part, :width]
            new = self.stepper.look(
                *sequences,
                temperature=settings.temperature,
                entropy_gradient=self.entropy_coef > 0,
                values_alone=self.critic_alone,
            )
            if self.steps == 0 and self.skipped == 0 and counts:
                check_first_ratio(new.logprobs.detach(), old, mask)
            policy_losses = policy_loss(
                new.logprobs, old, self.advantages[part, :width], mask, clip=settings.clip
            )
            if rollout.importance is not None:  # drawn by an earlier version
                policy_losses = policy_losses * rollout.importance[part, :width]
            policy = policy_losses.sum()
            value = value_loss(
                new.values,
                rollout.values[part, :width],
                self.returns[part, :width],
                mask,
                clip=settings.value_clip,
            ).sum()
            entropy = masked_sum(new.entropy, mask)
            loss = settings.value_coef * value
            if not self.critic_alone:
                loss = loss + policy - self.entropy_coef * entropy
            share = loss / total if counts else loss * 0.0
            self.stepper.backward(share, last=number == len(parts))
            if not counts:
                continue
            with torch.no_grad():
                tokens = mask.sum() / total
                for name, amount in {
                    "loss/policy_avg": policy / total,
                    "loss/value_avg": value / total,
                    "policy/entropy_avg": entropy / total,
                    "policy/approxkl_avg": masked_sum(kl_k3(old, new.logprobs), mask) / total,
                    "policy/clipfrac_avg": clip_fraction(
                        new.logprobs, old, mask, clip=settings.clip
                    )
                    * tokens,
                    "val/ratio": mean_ratio(new.logprobs, old, mask) * tokens,
                }.items():
                    sums[name] = sums[name] + amount.detach().cpu()
                real = mask.bool()
                moved = (new.logprobs - old)[real].abs().amax().clamp(max=_LARGEST_LOG_RATIO)
                ratio_max = max(ratio_max, float(moved.exp()))
                logprob_min = min(logprob_min, float(new.logprobs[real].amin()))
        return Minibatch(dict(sums), ratio_max, logprob_min).of_all_ranks()

    def stats(self, *, stopped_by_kl: bool) -> UpdateStats:
        greatest = {"policy/ratio_max": max, "policy/logprob_min": min}
        metrics = {
            name: greatest.get(name, _mean)(values) for name, values in self.seen.items() if values
        }
        norms = self.seen.get("grad_norm", [])
        if norms:
            metrics["grad_norm_max"] = max(norms)
        metrics |= {
            "update/steps": float(self.steps),
            "update/skipped_minibatches": float(self.skipped),
            "update/stopped_by_kl": float(stopped_by_kl),
        }
        return UpdateStats(
            metrics, self.steps, stopped_by_kl, self.skipped, list(norms), self.tokens
        )


def _or_nan(value: float) -> float:
    """A NaN is the greatest of all, so that it is not lost among numbers."""
    return math.inf if math.isnan(value) else value


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
