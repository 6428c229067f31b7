"""What must hold exactly in a run against a reference. A violation is a bug, not a trend.

Each check raises `RecipeError` with a stable kind that begins with `contract_`.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from workers.contract.events import Fault, RecipeError
from workers.models.loading import shares_memory
from workers.rl.losses import masked_mean

KL_AT_START = 1e-4  # nats per token, mean; two float32 forwards of one model differ by less
ROUNDING = 1e-4  # of rewards and returns in single precision, relative
SAMPLER_ERRORS = 4.5  # of up to SAMPLER_LOOKS rollouts pooled
SAMPLER_LOOKS = 3
SAMPLER_LEAST = 0.02  # nats per token: a smaller gap is no evidence
LOG_RATIO_BEFORE_UPDATE = 0.05  # nats per token, mean; room for half precision


def _violation(kind: str, message: str, fault: Fault = Fault.BUG) -> RecipeError:
    return RecipeError(f"contract_{kind}", fault, message)


def check_distinct(policy: nn.Module, reference: nn.Module) -> None:
    """The reference is its own object with its own memory, and nothing in it trains."""
    if policy is reference or shares_memory(policy, reference):
        raise _violation("reference_aliased", "the reference shares weights with the policy")
    if any(p.requires_grad for p in reference.parameters()):
        raise _violation("reference_trains", "the reference has parameters that would be trained")


def check_unchanged(sha256: str, loaded: str) -> None:
    """The reference's weights are still those it was loaded with, by their hashes."""
    if sha256 != loaded:
        raise _violation("reference_changed", "the reference's weights have changed")


def check_alike(sha256s: Sequence[str]) -> None:
    """The copies of the weights that the ranks of a job hold are one: their hashes, by rank."""
    apart = [str(rank) for rank, sha256 in enumerate(sha256s) if sha256 != sha256s[0]]
    if apart:
        raise _violation(
            "ranks_apart",
            f"the weights of rank {', '.join(apart)} are not those of the first rank: their "
            "updates have come apart",
        )


def check_kl_at_start(logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor) -> None:
    """Before the first update the policy is its reference. [B, R] × 3."""
    distance = float(masked_mean((logprobs - ref_logprobs).abs(), mask))
    if not distance <= KL_AT_START:
        raise _violation(
            "kl_at_start",
            f"policy and reference differ by {distance:.2g} nats per token before the first "
            "update: the reference is another checkpoint (set reference_differs if that is meant)",
            Fault.CONFIGURATION,
        )


def check_mask(mask: Tensor, response_ids: Tensor, stop: tuple[int, ...]) -> None:
    """The mask covers exactly the response tokens: up to the first stop token, or all of them.

    Counted row by row in plain Python, another way than the mask was made. [B, R] × 2.
    """
    stops = set(stop)
    for row, (ids, marks) in enumerate(zip(response_ids.tolist(), mask.tolist(), strict=True)):
        end = next((i + 1 for i, token in enumerate(ids) if token in stops), len(ids))
        if sum(marks) != end or any(marks[end:]):
            raise _violation(
                "mask", f"response {row}: the loss mask covers {sum(marks)} tokens, not {end}"
            )


def check_tool_mask(learnt: Tensor, drawn: Sequence[int], mask: Tensor) -> None:
    """No token that a tool wrote is learnt: of each answer exactly as many tokens as the policy
    drew, counted turn by turn while it drew them; none of an answer that is masked whole.
    learnt, mask [B, R]; drawn [B]."""
    for row, (marks, count, real) in enumerate(
        zip(learnt.sum(1).tolist(), drawn, mask.any(1).tolist(), strict=True)
    ):
        if real and marks != count:
            raise _violation(
                "tool_mask",
                f"response {row}: the loss mask covers {marks} tokens and the policy drew {count}: "
                "it would be credited with what tools wrote",
            )


def check_first_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> None:
    """Before the first step of an update the policy is the one that sampled. [B, R] × 3."""
    distance = float(masked_mean((logprobs - old_logprobs).abs(), mask))
    if not distance < LOG_RATIO_BEFORE_UPDATE:
        raise _violation(
            "first_ratio",
            f"|log π/π_old| is {distance:.2g} nats per token before the first step of the update",
        )


def check_fresh(policy_version: int, rollout_version: int, *, allowed: int = 0) -> None:
    """The rollout was drawn from the policy that is about to learn from it, or from one that is at
    most `allowed` optimizer steps older."""
    if not 0 <= policy_version - rollout_version <= allowed:
        raise _violation(
            "stale_rollout",
            f"a rollout of policy version {rollout_version} meets version {policy_version}",
        )


def check_finite(name: str, values: Tensor) -> None:
    """Raises `RecipeError` (non_finite) when a NaN or infinity is among `values`."""
    if not torch.isfinite(values).all():
        raise RecipeError("non_finite", Fault.GUARD, f"{name} is not finite")


def check_score_position(
    rewards: Tensor, kl: Tensor, scores: Tensor, mask: Tensor, *, kl_coef: float
) -> None:
    """Each answer's score lies on its last real token, and nowhere else is anything but the price
    of divergence. rewards, kl, mask [B, R]; scores [B], normalised.

    Counted row by row, another way than the rewards were made.
    """
    rest = (rewards + kl_coef * kl).tolist()
    for row, (values, score, length) in enumerate(
        zip(rest, scores.tolist(), mask.sum(1).tolist(), strict=True)
    ):
        size = ROUNDING * max(1.0, abs(score), kl_coef * float(kl[row].abs().max()))
        others = [*values[: length - 1], *rewards[row, length:].tolist()]
        if abs(values[length - 1] - score) > size or any(abs(v) > size for v in others):
            raise _violation(
                "score_position", f"response {row}: the score is not on its last token, {length}"
            )


def check_done(rewards: Tensor, returns: Tensor, mask: Tensor) -> None:
    """Every answer ends its episode: what its last token returns is that token's reward, with
    nothing beyond it. [B, R] × 3."""
    last = (mask.sum(1) - 1).clamp(min=0)
    rows = torch.arange(len(last), device=mask.device)
    earned, returned = rewards[rows, last], returns[rows, last]
    size = ROUNDING * (1.0 + earned.abs() + returned.abs())
    if ((earned - returned).abs() > size).any():
        row = int(((earned - returned).abs() > size).nonzero()[0])
        raise _violation(
            "done", f"response {row}: a value beyond its last token entered the return"
        )


def sampler_z(logprobs: Tensor, entropy: Tensor, mask: Tensor) -> float:
    """Distance of E[−log π(a)] from the entropy, in standard errors. [B, R] × 3.

    Where answers were drawn from the very distribution they are looked at with, the surprise of a
    token exceeds the entropy by nothing on average, so the sums over answers have mean 0. Their own
    spread is the standard error, but of a policy that is nearly certain all surprise lies in rare
    draws, and a batch without one has hardly any spread: so no error smaller than `SAMPLER_LEAST`
    a token is believed.
    """
    sums = torch.where(mask.bool(), -logprobs - entropy, torch.zeros_like(entropy)).sum(1)
    least = SAMPLER_LEAST * float(mask.sum())
    return float(sums.double().sum()) / math.hypot(float(sums.double().norm()), least)


def check_sampler(looks: Sequence[float]) -> None:
    """Sampler and trainer are one distribution. `looks` are z of the newest rollouts: of two or
    three pooled, Σz/√n past the limit says they are not (another temperature, a penalty, a filter
    of the sampler's)."""
    if len(looks) < 2:
        return
    pooled = math.fsum(looks) / math.sqrt(len(looks))
    if abs(pooled) > SAMPLER_ERRORS:
        raise _violation(
            "sampler",
            f"the answers' surprise is {pooled:+.1f} standard errors off the policy's entropy: "
            "they were drawn from another distribution than the one that learns",
        )
