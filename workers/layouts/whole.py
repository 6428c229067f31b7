"""Weights that are split over ranks, looked at as one.

A parameter is split by torch's fully_shard (it is a DTensor then), or by DeepSpeed (it has a
`ds_id` where the weights are split, an `_hp_mapping` where only the optimizer is). Where ranks must
work together every rank must call, in the same order.
"""

import torch
from torch import Tensor, distributed, nn

from workers import ranks


def own(tensor: Tensor) -> Tensor:
    """What of `tensor` lies on this rank; all of it where it is not split."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


@torch.no_grad()
def whole_of(parameter: Tensor) -> Tensor:
    """All of it, in the precision it is trained in; every rank must call."""
    if hasattr(parameter, "full_tensor"):
        return parameter.full_tensor()
    if _by_deepspeed(parameter):
        from deepspeed.runtime.zero import GatheredParameters
        from deepspeed.utils import safe_get_full_fp32_param

        if parameter.requires_grad and (trained := safe_get_full_fp32_param(parameter)) is not None:
            return trained
        if _gathered(parameter):
            return parameter.detach().clone()
        with GatheredParameters([parameter]):
            return parameter.detach().clone()
    return parameter.detach()


@torch.no_grad()
def put_whole(parameter: Tensor, value: Tensor | None) -> None:
    """Make it `value`, which the first rank has; every rank must call. Not for going on with a
    training: DeepSpeed's optimizer keeps a copy of its own."""
    if hasattr(parameter, "ds_id"):
        from deepspeed.runtime.zero import GatheredParameters

        with GatheredParameters([parameter], modifier_rank=0):
            if value is not None:
                parameter.copy_(value)
        return
    told = value if value is not None else torch.empty(parameter.shape)
    told = told.to(parameter.device, parameter.dtype).contiguous()
    if ranks.world() > 1:
        distributed.broadcast(told, src=0)
    parameter.copy_(as_split(told, parameter) if hasattr(parameter, "full_tensor") else told)


def as_split(value: Tensor, parameter: Tensor) -> Tensor:
    """`value` split as `parameter` is by fully_shard; every rank has all of it."""
    from torch.distributed.tensor import distribute_tensor

    value = value.to(parameter.device, parameter.dtype)
    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)


def size_of(parameter: Tensor) -> int:
    """Numbers in it, on all ranks together."""
    return getattr(parameter, "ds_numel", None) or parameter.numel()


def is_split(module: nn.Module) -> bool:
    """Whether a weight of the module lies on several ranks; not while all are whole."""
    return any(
        hasattr(p, "full_tensor") or (hasattr(p, "ds_id") and not _gathered(p))
        for p in module.parameters()
    )


def _gathered(parameter: Tensor) -> bool:
    """Whether all of what DeepSpeed ZeRO 3 splits is here for a while."""
    return parameter.numel() == size_of(parameter)


def _by_deepspeed(parameter: Tensor) -> bool:
    return hasattr(parameter, "ds_id") or hasattr(parameter, "_hp_mapping")
