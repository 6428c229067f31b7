"""Weights, gradients and optimizer split over the ranks of a job: torch's `fully_shard` ("FSDP2").

While the policy learns, a layer's weights come together for its pass and part again, and its
gradient is added up where its weights lie. While it answers, all weights are whole on every rank
(`workers.layouts.whole_weights`).

Source: Zhao et al. 2023, "PyTorch FSDP"; torch.distributed.fsdp.fully_shard. Departure: gradients
are added and not averaged, for each rank divides by the tokens of the whole minibatch.
"""

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from workers import ranks
from workers.contract.events import (
    Fault,
    RecipeError,
)
from workers.layouts.whole import whole_of
from workers.layouts.whole_weights import fsdp_parts
from workers.models.reference import Reference
from workers.ppo.actor_critic import ActorCritic


def split(actor_critic: ActorCritic, reference: Reference) -> None:
    """Split a policy, its critic and a reference of its own in place. Every rank must hold the same
    weights before. Raises `RecipeError` (bad_config) for a model that names no layers."""
    _split_model(actor_critic.policy)
    if actor_critic.critic is not None:
        _split_model(actor_critic.critic)
    fully_shard(actor_critic, mesh=_mesh(actor_critic.policy))  # the value head
    if reference.adapted is None:
        _split_model(reference.model)
    for part in (*fsdp_parts(actor_critic), *fsdp_parts(reference.model)):
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
    # torch takes the module whose forward pass comes first for the one that holds all others.
    one = torch.ones(1, 1, dtype=torch.long, device=actor_critic.policy.device)
    with torch.no_grad():
        actor_critic(one, one, one, one, temperature=1.0)
        reference.logprobs(one, one, one, one, temperature=1.0)
    # What stays whole after a forward pass is split again, or an optimizer would be given the
    # whole weights, which never see a gradient.
    actor_critic.reset_iter_state()
    if reference.adapted is None:
        reference.model.reset_iter_state()


def _split_model(model: nn.Module) -> None:
    """Each layer by itself, and the rest together. The rest stays whole from its forward to its
    backward pass, for the output layer is also read outside of the model's own forward."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    layers = [module for module in model.modules() if type(module).__name__ in names]
    if not layers:
        raise RecipeError(
            "bad_config",
            Fault.CONFIGURATION,
            f"layout: 'fsdp' cannot split this policy, for {type(model).__name__} does not say "
            "what its layers are; 'data' keeps a copy on each GPU",
        )
    for layer in layers:
        fully_shard(layer, mesh=_mesh(model))
    fully_shard(model, mesh=_mesh(model), reshard_after_forward=False)


def _mesh(model: nn.Module) -> DeviceMesh:
    kind = next(model.parameters()).device.type
    return init_device_mesh(kind, (ranks.world(),))


def whole_state(model: nn.Module, *, keep: bool) -> dict[str, Tensor]:
    """Every weight whole on the CPU, on the ranks that `keep` it; every rank must ask."""
    state = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        full = whole_of(tensor)
        if keep:
            state[name] = full.detach().cpu()
    return state
