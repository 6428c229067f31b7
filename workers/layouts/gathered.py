"""All weights of a split model whole on every rank for a while: to draw answers, to read logits.

While a model learns, a layer's weights come together for its pass and part again. While it answers,
all of them are whole on every rank, because ranks draw answers of different lengths, and a layer
that waited for the others at every token would wait for ever.

Sources: torch.distributed.fsdp.FSDPModule; DeepSpeed's `GatheredParameters`; for taking off the
hooks of ZeRO 3, `unwrap_model_for_generation` of TRL 1.16 (trl/models/utils.py).
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import FSDPModule

from workers import ranks

# Weights that are split over ranks, looked at as one.
#
# A parameter is split by torch's fully_shard (it is a DTensor then), or by DeepSpeed (it has a
# `ds_id` where the weights are split, an `_hp_mapping` where only the optimizer is). Where ranks
# must
# work together every rank must call, in the same order.


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


def as_split(value: Tensor, parameter: Any) -> Tensor:
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


_entered: set[int] = set()  # models that are whole at the moment, by id


@contextmanager
def whole_weights(*models: Any) -> Iterator[None]:
    """Inside, each rank holds all weights of `models` and asks nobody in a forward pass, so that
    each may make as many as it likes, of the model or of any part of it. No gradients inside, and
    no weight may change. Every rank must enter and leave. May be nested; does nothing where
    nothing is split.

    `models` are modules that `fully_shard` was called on, DeepSpeed's engines (not the modules in
    them, which do not know their hooks: `TypeError`), or whole modules.
    """
    with ExitStack() as stack:
        for model in models:
            if id(model) in _entered:
                continue
            if isinstance(model, FSDPModule):
                stack.enter_context(_noted(model))
                stack.enter_context(_unsharded(model))
            elif (offload := _offload(model)) is not None:
                stack.enter_context(_noted(model))
                stack.enter_context(_offload_gathered(offload))
            elif any(hasattr(weight, "ds_id") for weight in model.parameters()):
                raise TypeError(f"{type(model).__name__} is split, and its engine is not given")
        yield


def fsdp_parts(model: Any) -> list[FSDPModule]:
    """The modules of `model` that were split by themselves."""
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


@contextmanager
def _noted(model: Any) -> Iterator[None]:
    _entered.add(id(model))
    try:
        yield
    finally:
        _entered.discard(id(model))


@contextmanager
def _unsharded(model: FSDPModule) -> Iterator[None]:
    """Of torch's `fully_shard`."""
    # torch takes the module whose pass comes first for the one that holds all others.
    model._get_fsdp_state()._lazy_init()
    parts = fsdp_parts(model)
    parting = [part for part in parts if _parts_after_forward(part)]
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        model.reset_iter_state()  # splits again, and forgets the passes that only this rank made
        for part in parting:
            part.set_reshard_after_forward(True, recurse=False)


def _parts_after_forward(part: FSDPModule) -> bool:
    groups = part._get_fsdp_state()._fsdp_param_groups
    return any(group.post_forward_mesh_info is not None for group in groups)


def _offload(model: Any) -> Any:
    """What of DeepSpeed ZeRO 3 holds the hooks of an engine's modules; None of anything else."""
    optimizer = getattr(model, "optimizer", None)  # of an engine without one it is the offload
    found = getattr(optimizer, "parameter_offload", optimizer)
    return found if hasattr(found, "param_coordinator") else None


@contextmanager
def _offload_gathered(offload: Any) -> Iterator[None]:
    """Of DeepSpeed ZeRO 3. Its hooks would fetch a layer's weights from the other ranks and let
    them go after the layer's pass, in a context in which all are there as well."""
    from deepspeed.runtime.zero import GatheredParameters

    module = offload.module
    # What the last pass left whole would be taken for one's own, and not be split at the end.
    offload.empty_partition_cache()
    with GatheredParameters(list(module.parameters())):
        _take_hooks_off(offload)
        try:
            yield
        finally:
            _put_hooks_back(offload)


def _take_hooks_off(offload: Any) -> None:
    for parameter in offload.module.parameters():
        parameter.ds_active_sub_modules.clear()
    offload._remove_module_hooks()  # the outermost module's too, at which ranks meet at each pass
    offload.forward_hooks, offload.backward_hooks = [], []


def _put_hooks_back(offload: Any) -> None:
    """And forget in which order layers were fetched, which DeepSpeed recorded to fetch ahead by:
    a record that a pass without hooks cut off is none."""
    from deepspeed.runtime.zero.parameter_offload import FWD_MODULE_STACK

    offload.setup_zero_stage3_hooks()
    FWD_MODULE_STACK.pop()  # the outermost module, which is on the stack for good since the first


# An optimizer's state that is split over ranks, written and read as that of one process.
#
# So a checkpoint is the same whatever layout wrote it, holds nothing that only DeepSpeed can
# unpickle, and can be gone on from under any other layout.

State = dict[str, Any]
Groups = Sequence[Sequence[nn.Parameter]]  # the model's parameters, as the optimizer was given them
_ZERO3 = "fp32_partitioned_groups_flat"  # where only ZeRO 3 keeps its weights
_MOMENTS = ("exp_avg", "exp_avg_sq")  # AdamW's


def whole_state(optimizer: Any, groups: Groups) -> State:
    """What `optimizer.state_dict()` of one process would be; every rank must call."""
    if _is_deepspeed(optimizer):
        return _of_deepspeed(optimizer, groups)
    state: State = optimizer.state_dict()
    found = {
        index: {name: _gathered_state(value) for name, value in moments.items()}
        for index, moments in state["state"].items()
    }
    return {"state": found, "param_groups": state["param_groups"]}


def put_state(optimizer: Any, groups: Groups, state: State) -> None:
    """Give each rank its part of `state`, which all of them have."""
    if _is_deepspeed(optimizer):
        _to_deepspeed(optimizer, groups, state)
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    split = {
        index: {
            name: as_split(value, parameters[index]) if value.dim() else value
            for name, value in moments.items()
        }
        for index, moments in state["state"].items()
    }
    optimizer.load_state_dict({"state": split, "param_groups": state["param_groups"]})


def _gathered_state(value: Tensor) -> Tensor:
    return value.full_tensor().cpu() if hasattr(value, "full_tensor") else value


def _is_deepspeed(optimizer: Any) -> bool:
    return hasattr(optimizer, "loss_scaler")  # as none of torch's own


def _of_deepspeed(optimizer: Any, groups: Groups) -> State:
    from deepspeed.utils import safe_get_full_optimizer_state

    inner: torch.optim.Optimizer = optimizer.optimizer
    steps = {
        number: inner.state[part]["step"]
        for number, part in _parts(optimizer)
        if "step" in inner.state.get(part, {})
    }
    if steps:
        _link(optimizer)
    state: State = {"state": {}, "param_groups": []}
    first = 0
    numbers = _numbers(groups)
    for group, number, options in zip(groups, numbers, _options(inner, groups), strict=True):
        if number in steps:  # others have rested so far
            for index, parameter in enumerate(group, start=first):
                state["state"][index] = {"step": steps[number].clone()} | {
                    name: safe_get_full_optimizer_state(parameter, name).cpu() for name in _MOMENTS
                }
        kept = {name: value for name, value in options.items() if name != "params"}
        state["param_groups"].append(kept | {"params": list(range(first, first + len(group)))})
        first += len(group)
    return state


def _to_deepspeed(optimizer: Any, groups: Groups, state: State) -> None:
    inner: torch.optim.Optimizer = optimizer.optimizer
    for options, saved in zip(_options(inner, groups), state["param_groups"], strict=True):
        options.update({name: value for name, value in saved.items() if name != "params"})
    if not state["state"]:
        return
    known = state["state"]
    kept = [
        (parameter, known[index])
        for index, parameter in enumerate(p for group in groups for p in group)
        if index in known
    ]
    number_of = {
        parameter: number
        for group, number in zip(groups, _numbers(groups), strict=True)
        for parameter in group
    }
    steps = {number_of[parameter]: moments["step"] for parameter, moments in kept}
    for number, part in _parts(optimizer):
        if number in steps:
            inner.state[part] = {"step": steps[number].clone()} | {
                name: torch.zeros_like(part) for name in _MOMENTS
            }
    _link(optimizer)
    for parameter, moments in kept:
        for name in _MOMENTS:
            _put_moment(parameter, name, moments[name])


def _parts(optimizer: Any) -> list[tuple[int, Tensor]]:
    """The weights that AdamW steps on this rank, each with the number of its group."""
    if _whole_weights(optimizer):
        return list(enumerate(optimizer.single_partition_of_fp32_groups))
    of_group = optimizer.sub_group_to_group_id
    return [(of_group[i], part) for i, part in enumerate(getattr(optimizer, _ZERO3))]


def _numbers(groups: Groups) -> list[int]:
    """Of each group, as DeepSpeed counts them: one without a parameter has none of its own."""
    counted = -1
    return [counted := counted + bool(group) for group in groups]


def _options(inner: torch.optim.Optimizer, groups: Groups) -> list[dict[str, Any]]:
    """Of each group; DeepSpeed leaves out those without a parameter, for which a copy stands in."""
    kept = iter(inner.param_groups)
    return [next(kept) if group else dict(inner.param_groups[0]) for group in groups]


def _whole_weights(optimizer: Any) -> bool:
    """Whether it is ZeRO 2's."""
    return not hasattr(optimizer, _ZERO3)


def _link(optimizer: Any) -> None:
    """Let ZeRO 2 find the moments of each parameter. Of itself it does so within the first step
    (DeepSpeed 0.19), after the first group's and before the other groups' moments are there."""
    if _whole_weights(optimizer):
        optimizer._hp_optimizer_states_linked = False
        optimizer._lazy_init_hp_params_optimizer_state()


def _put_moment(parameter: Any, name: str, value: Tensor) -> None:
    from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

    value = value.to(parameter.device)
    if not hasattr(parameter, "ds_id"):
        safe_set_full_optimizer_state(parameter, value, name)
        return
    size = parameter.partition_numel()  # the last rank's is filled up
    filled = value.new_zeros(size * ranks.world())
    filled[: value.numel()] = value.flatten()
    own = filled[size * ranks.rank() : size * (ranks.rank() + 1)]
    safe_set_local_optimizer_state(parameter, own, name)
