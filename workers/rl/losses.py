"""Losses of policy and critic, estimators of the KL divergence, statistics of padded tensors."""

import contextlib
import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

# Statistics over the real tokens of padded tensors.


def masked_sum(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum of `values` where `mask`, over `dim` or over everything.

    Padding is replaced rather than multiplied by 0, since 0 × NaN is NaN.
    """
    kept = torch.where(mask.bool(), values, torch.zeros_like(values))
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of `values` where `mask`; NaN where the mask is empty, for the mean is undefined."""
    count = mask.sum() if dim is None else mask.sum(dim)
    return masked_sum(values, mask, dim) / count


def masked_var(values: Tensor, mask: Tensor, *, unbiased: bool = True) -> Tensor:
    """Variance over all masked values; NaN with fewer than two of them when `unbiased`."""
    count = mask.sum()
    centred = values - masked_mean(values, mask)
    return masked_sum(centred * centred, mask) / (count - 1 if unbiased else count)


def masked_whiten(
    values: Tensor, mask: Tensor, *, shift_mean: bool = True, epsilon: float = 1e-8
) -> Tensor:
    """`values` scaled to unit variance and, with `shift_mean`, to mean 0 over the mask.

    [B, R] -> [B, R], 0 under the padding. `epsilon` is added to the variance, so that values
    which differ by rounding only are not blown up to unit size. Whitening makes any non-constant
    signal look equally strong: the caller must have refused a constant reward before.
    """
    mean = masked_mean(values, mask)
    variance = masked_var(values, mask) if int(mask.sum()) > 1 else torch.zeros_like(mean)
    whitened = (values - mean) * torch.rsqrt(variance + epsilon)
    if not shift_mean:
        whitened = whitened + mean
    return torch.where(mask.bool(), whitened, torch.zeros_like(values))


# The running scale of a reward.

# A spread below this, or below this share of the scores' own size, is rounding and not preference
# (log-odds and rule scores alike live on a scale of about 1).
SPREAD_FLOOR = 1e-5


@dataclass
class RunningMoments:
    """Mean and variance of all scores seen so far, merged batch by batch.

    Raw scores have no scale of their own; divided by their running deviation the KL coefficient
    means the same for every reward, and a reward times ten gives the same updates. Over all
    scores rather than per batch, since a batch's own deviation hides a collapse of the spread.
    Source: Chan, Golub & LeVeque 1979 (merging); scaling by running moments after Zheng et al.
    2023, "Secrets of RLHF in Large Language Models Part I", section 5.3.1.
    """

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0  # sum of squared distances from the mean

    @property
    def std(self) -> float:
        """Sample deviation; 0 with fewer than two scores."""
        return math.sqrt(self.m2 / (self.count - 1)) if self.count > 1 else 0.0

    @property
    def constant(self) -> bool:
        """Whether all scores so far were equal up to rounding: then they prefer nothing."""
        return self.std <= SPREAD_FLOOR * max(1.0, abs(self.mean))

    def update(self, scores: Tensor) -> None:
        """Take in a batch [B] of raw scores."""
        batch = scores.double()
        n = batch.numel()
        if n == 0:
            return
        mean = float(batch.mean())
        total = self.count + n
        delta = mean - self.mean
        self.m2 += float(((batch - mean) ** 2).sum()) + delta**2 * self.count * n / total
        self.mean += delta * n / total
        self.count = total

    def normalise(self, scores: Tensor, *, clip: float) -> Tensor:
        """(scores − mean) / std, clipped to ±`clip` deviations: [B] -> [B]. 0 when constant."""
        if self.constant:
            return scores * 0.0
        return ((scores - self.mean) / self.std).clamp(-clip, clip)

    def state(self) -> dict[str, float]:
        return asdict(self)


# Estimators of KL(π ‖ π_ref) from samples of π, and the exact value from logits.
#
# Source: J. Schulman, "Approximating KL Divergence" (2020), http://joschu.net/blog/kl-approx.html.
# With log r = log π_ref(x) − log π(x), x ~ π:
#
#     k1 = −log r            unbiased, high variance, negative on single samples
#     k2 = (log r)² / 2      biased, low variance, never negative
#     k3 = (r − 1) − log r   unbiased, low variance, never negative
#
# All are per token; a sequence's KL is the sum over its tokens.

ESTIMATORS = ("k1", "k2", "k3")


def kl_k1(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """[B, R] -> [B, R], nats."""
    return logprobs - ref_logprobs


def kl_k2(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """[B, R] -> [B, R], nats."""
    return 0.5 * (logprobs - ref_logprobs) ** 2


def kl_k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """[B, R] -> [B, R], nats. expm1 keeps tiny differences from rounding to below zero."""
    log_ratio = ref_logprobs - logprobs
    return torch.expm1(log_ratio) - log_ratio


def kl_estimate(logprobs: Tensor, ref_logprobs: Tensor, estimator: str) -> Tensor:
    """The estimator by its name, one of `ESTIMATORS`."""
    return {"k1": kl_k1, "k2": kl_k2, "k3": kl_k3}[estimator](logprobs, ref_logprobs)


def kl_exact(logits: Tensor, ref_logits: Tensor) -> Tensor:
    """Σ_v π(v) (log π(v) − log π_ref(v)): [B, R, V] × 2 -> [B, R], nats. Exact per position."""
    log_p = torch.log_softmax(logits, dim=-1)
    log_q = torch.log_softmax(ref_logits, dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


# How strongly the policy is held to its reference.


@dataclass
class FixedKL:
    """The coefficient stays what it was."""

    coef: float

    def update(self, kl: float, samples: int) -> None:
        """Nothing follows from `kl` (nats per sequence) over `samples` sequences."""


@dataclass
class AdaptiveKL:
    """The coefficient moves so that the sequence KL approaches `target`.

        β ← β·(1 + clip(KL/target − 1, ±0.2)·n/horizon)

    `target` in nats per sequence, `horizon` in sequences: after one horizon of samples far from
    the target the coefficient has changed by a factor e^±0.2. A horizon far above the planned
    samples never moves; a tenth of them is a good start.
    Source: Ziegler et al. 2019, "Fine-Tuning Language Models from Human Preferences", section
    2.2. (Not to be taken for an early stop of the update, which bounds another KL.)
    """

    coef: float
    target: float
    horizon: float

    def update(self, kl: float, samples: int) -> None:
        """Move by the sequence KL measured over `samples` sequences."""
        error = min(max(kl / self.target - 1.0, -0.2), 0.2)
        self.coef *= 1.0 + error * samples / self.horizon


# Losses, and the statistics of an update that are read beside them.

# Log-probabilities and entropy from logits.

_LEAST = -1e4  # exp of it is 0, and 0 · it is 0, which 0 · −∞ is not


def selective_logprobs(logits: Tensor, token_ids: Tensor, *, temperature: float = 1.0) -> Tensor:
    """log π(token) of the tempered softmax, without building the whole log-softmax.

    logits [B, R, V], token_ids [B, R] -> [B, R], nats. The temperature must be the one that was
    sampled with: a ratio of differently tempered policies is not the ratio of the update.
    """
    scaled = logits / temperature if temperature != 1.0 else logits
    picked = scaled.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1)
    return picked - torch.logsumexp(scaled, dim=-1)


def logprobs_and_entropy(
    logits: Tensor,
    token_ids: Tensor,
    *,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """`selective_logprobs`, and the entropy −Σ p log p at each position, from one log-softmax.

    logits [B, R, V], token_ids [B, R] -> two of [B, R], nats and nats per token. A forbidden token
    (logit −∞) adds nothing to the entropy. The entropy's gradient doubles the cost of the backward
    pass, so only an entropy bonus asks for it.
    """
    log_softmax = torch.log_softmax(logits / temperature if temperature != 1.0 else logits, dim=-1)
    picked = log_softmax.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1)
    with contextlib.nullcontext() if entropy_gradient else torch.no_grad():
        entropy = -(log_softmax.exp() * log_softmax.clamp(min=_LEAST)).sum(-1)
    return picked, entropy


def policy_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, *, clip: float
) -> Tensor:
    """PPO's clipped surrogate per token, as a loss: [B, R] × 4 -> [B, R], 0 under the padding.

        −min(ρ·A, clip(ρ, 1 − ε, 1 + ε)·A),    ρ = π / π_old

    Summing and dividing is the caller's: a minibatch may come in several microbatches, and only
    a division by the minibatch's token count gives the same gradient either way.
    Source: Schulman et al. 2017, "Proximal Policy Optimization Algorithms", equation 7.
    """
    ratio = torch.exp(logprobs - old_logprobs)
    unclipped = ratio * advantages
    clipped = torch.clamp(ratio, 1 - clip, 1 + clip) * advantages
    return torch.where(mask.bool(), -torch.minimum(unclipped, clipped), torch.zeros_like(ratio))


def value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, *, clip: float | None
) -> Tensor:
    """Half the squared error of the value, clipped around its old value (not at all if `clip` is
    None): [B, R] × 4 -> [B, R].

        ½·max((V − R)², (clip(V, V_old ± ε) − R)²)

    The larger of the two, so that clipping can only make the loss more pessimistic.
    Source: OpenAI baselines, ppo2/model.py; Huang et al. 2022, "The 37 Implementation Details of
    Proximal Policy Optimization", detail 9.
    """
    loss = 0.5 * (values - returns) ** 2
    if clip is not None:
        clipped = torch.maximum(torch.minimum(values, old_values + clip), old_values - clip)
        loss = torch.maximum(loss, 0.5 * (clipped - returns) ** 2)
    return torch.where(mask.bool(), loss, torch.zeros_like(loss))


def bradley_terry_loss(
    chosen: Tensor,
    rejected: Tensor,
    *,
    target: Tensor | None = None,
    weight: Tensor | None = None,
    margin: Tensor | None = None,
    label_smoothing: float = 0.0,
    center_coef: float = 0.0,
    total_weight: Tensor | float | None = None,
) -> Tensor:
    """Weighted mean of the cross-entropy of P(chosen wins) = σ(Δ − m(2t − 1)), Δ = r_c − r_r.

        −t' log σ(Δ − m(2t − 1)) − (1 − t') log σ(m(2t − 1) − Δ) + c (r_c + r_r)²

    chosen, rejected [N] scores; target t [N] the share of people for `chosen` (1 = a hard label,
    the default: −log σ(Δ)); weight [N] ≥ 0; margin m [N] ≥ 0, raw score, by how much more a strong
    preference must be scored apart; label_smoothing ε: t' = (1 − ε)t + ε(1 − t), the share of
    labels held to be flipped; center_coef c -> scalar, nats per pair. With `total_weight`, that of
    the whole step, the result is the step's part: the parts' sum is the step's loss whatever the
    parts are. With hard labels and equal weights it is the loss of TRL's RewardTrainer.

    Source: Bradley & Terry 1952; Ouyang et al. 2022, equation 1 (hard labels); Touvron et al. 2023,
    "Llama 2", equation 2 (margins); Eisenstein et al. 2023, "Helping or Herding?", section 2
    (centring); Mitchell 2023, "A note on DPO with noisy preferences" (smoothing). Departure: the
    margin shrinks with the target's distance from a tie, which must not be pushed to either side.
    """
    delta = chosen - rejected
    share = torch.ones_like(delta) if target is None else target
    if margin is not None:
        delta = delta - margin * (2 * share - 1)
    share = (1 - label_smoothing) * share + label_smoothing * (1 - share)
    loss = -share * F.logsigmoid(delta) - (1 - share) * F.logsigmoid(-delta)
    if center_coef:
        loss = loss + center_coef * (chosen + rejected) ** 2
    counted = torch.ones_like(loss) if weight is None else weight
    return (loss * counted).sum() / (counted.sum() if total_weight is None else total_weight)


def clip_fraction(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """Share of real tokens whose ratio left [1 − ε, 1 + ε]: scalar in 0–1."""
    outside = (torch.exp(logprobs - old_logprobs) - 1).abs() > clip
    return masked_mean(outside.to(logprobs.dtype), mask)


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """1 − Var(returns − values) / Var(returns): scalar; 1 perfect, 0 no better than a constant.

    NaN when the returns do not vary, for then there is nothing to explain.
    """
    total = masked_var(returns, mask)
    unexplained = masked_var(returns - values, mask)
    return torch.where(total > 0, 1 - unexplained / total, torch.full_like(total, torch.nan))


def mean_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """Mean of π / π_old over real tokens: scalar, 1 before the first step of an update."""
    return masked_sum(torch.exp(logprobs - old_logprobs), mask) / mask.sum()


# From a score per response to an advantage per token.


def last_token_index(mask: Tensor) -> Tensor:
    """Index of the last real token of each response: [B, R] -> [B]. −1 for an empty response."""
    positions = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return (mask.long() * positions).amax(dim=1) - 1


def shaped_rewards(scores: Tensor, kl: Tensor, mask: Tensor, *, kl_coef: float) -> Tensor:
    """Reward of every token: −β·KL, and the response's score on its last real token.

    scores [B], kl [B, R] nats, mask [B, R] -> [B, R]. The score belongs on the last real token
    (the end-of-sequence token when there is one), never after it, where the mask would drop it.
    Source: Ouyang et al. 2022 (InstructGPT), equation 2; Stiennon et al. 2020, section 3.4.
    """
    rewards = torch.where(mask.bool(), -kl_coef * kl, torch.zeros_like(kl))
    last = last_token_index(mask)
    rows = torch.nonzero(last >= 0).squeeze(-1)
    return rewards.index_put((rows, last[rows]), scores[rows].to(rewards.dtype), accumulate=True)


def gae(
    rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation over responses padded on the right.

    rewards, values, mask [B, R] -> (advantages, returns), both [B, R], 0 under the padding.

        δ_t = r_t + γ·V_{t+1} − V_t,    A_t = δ_t + γλ·A_{t+1},    returns = A + V

    Every response ends its episode, truncated ones too: V after the last real token is 0, since
    nothing of the sequence is scored beyond it.
    Source: Schulman et al. 2016, "High-Dimensional Continuous Control Using GAE", equation 16.
    """
    real = mask.to(values.dtype)
    values = torch.where(mask.bool(), values, torch.zeros_like(values))
    rewards = torch.where(mask.bool(), rewards, torch.zeros_like(rewards))
    advantages = torch.zeros_like(values)
    next_value = torch.zeros_like(values[:, 0])
    next_advantage = torch.zeros_like(next_value)
    for t in range(values.shape[1] - 1, -1, -1):
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        next_advantage = (delta + gamma * lam * next_advantage) * real[:, t]
        advantages[:, t] = next_advantage
        next_value = values[:, t]
    return advantages, advantages + values


# Learning from answers that an earlier policy drew.

CORRECTED = 0.01  # a weight further from 1 than this counts as a correction


def importance_weights(
    logprobs: Tensor, drawn_logprobs: Tensor, mask: Tensor, *, cap: float
) -> Tensor:
    """Truncated weights per token: [B, R] × 3 -> [B, R], 1 under the padding.

        w = min(π_old / π_drew, c)

    π_old: the policy as the update finds it (`logprobs`, nats); π_drew: the version that drew the
    answer (`drawn_logprobs`). The policy loss of a token is multiplied by w, a constant, while
    PPO's ratio stays π/π_old: the decoupled objective of Hilton et al. 2022, "Batch size-invariance
    for policy optimization", as Fu et al. 2025, "AReaL", equation 5, use it for stale answers.
    Source of the cap: Espeholt et al. 2018, "IMPALA", the ρ̄ of V-trace. Departures: advantages stay
    those of GAE on the drawn answers, without V-trace's corrected values, and weights are of single
    tokens, not of prefixes.
    """
    ratio = torch.exp((logprobs - drawn_logprobs).clamp(max=80.0))
    return torch.where(mask.bool(), ratio.clamp(max=cap), torch.ones_like(ratio))


def importance_metrics(weights: Tensor, mask: Tensor, *, cap: float) -> dict[str, float]:
    """What the weights [B, R] of a batch look like, by the names of docs/metrics.md."""
    return {
        "rollout/corrected_share": _share((weights - 1).abs() > CORRECTED, mask),
        "rollout/capped_share": _share(weights >= cap, mask),
        "rollout/importance_mean": float(masked_mean(weights, mask)),
    }


def _share(which: Tensor, mask: Tensor) -> float:
    return float(masked_mean(which.to(torch.float32), mask))
