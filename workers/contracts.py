"""What must hold exactly in a run against a reference. A breach is a bug, never a trend to watch.

Each check raises `RecipeError` with a stable kind that begins with `contract_`.
"""

import torch
from torch import Tensor, nn

from workers.context import RecipeError
from workers.contract.events import Fault
from workers.models import shares_memory
from workers.rl.masked import masked_mean

KL_AT_START = 1e-4  # nats per token, mean; two float32 forwards of one model differ by less
LOG_RATIO_BEFORE_UPDATE = 0.05  # nats per token, mean; room for half precision


def _breach(kind: str, message: str, fault: Fault = Fault.BUG) -> RecipeError:
    return RecipeError(f"contract_{kind}", fault, message)


def check_distinct(policy: nn.Module, reference: nn.Module) -> None:
    """The reference is its own object with its own memory, and nothing in it trains."""
    if policy is reference or shares_memory(policy, reference):
        raise _breach("reference_aliased", "the reference shares weights with the policy")
    if any(p.requires_grad for p in reference.parameters()):
        raise _breach("reference_trains", "the reference has parameters that would be trained")


def check_unchanged(sha256: str, loaded: str) -> None:
    """The reference's weights are still those it was loaded with, by their hashes."""
    if sha256 != loaded:
        raise _breach("reference_changed", "the reference's weights have changed")


def check_kl_at_start(logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor) -> None:
    """Before the first update the policy is its reference. [B, R] × 3."""
    distance = float(masked_mean((logprobs - ref_logprobs).abs(), mask))
    if not distance <= KL_AT_START:
        raise _breach(
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
            raise _breach(
                "mask", f"response {row}: the loss mask covers {sum(marks)} tokens, not {end}"
            )


def check_first_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> None:
    """Before the first step of an update the policy is the one that sampled. [B, R] × 3."""
    distance = float(masked_mean((logprobs - old_logprobs).abs(), mask))
    if not distance < LOG_RATIO_BEFORE_UPDATE:
        raise _breach(
            "first_ratio",
            f"|log π/π_old| is {distance:.2g} nats per token before the first step of the update",
        )


def check_fresh(policy_version: int, rollout_version: int) -> None:
    """The rollout was drawn from the policy that is about to learn from it."""
    if policy_version != rollout_version:
        raise _breach(
            "stale_rollout",
            f"a rollout of policy version {rollout_version} meets version {policy_version}",
        )


def check_finite(name: str, values: Tensor) -> None:
    """Raises `RecipeError` (non_finite) when a NaN or infinity is among `values`."""
    if not torch.isfinite(values).all():
        raise RecipeError("non_finite", Fault.GUARD, f"{name} is not finite")
