"""An optimizer's state that is split over ranks, written and read as that of one process.

So a checkpoint is the same whatever layout wrote it, holds nothing that only DeepSpeed can
unpickle, and can be gone on from under any other layout.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from workers import ranks
from workers.layouts.gathered import as_split

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
        index: {name: _gathered(value) for name, value in moments.items()}
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


def _gathered(value: Tensor) -> Tensor:
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
