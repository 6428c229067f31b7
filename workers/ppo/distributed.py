"""A PPO run on several ranks: sharded weights, ZeRO, what one rank does for all."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from workers import ranks
from workers.contract.events import Fault, RecipeError
from workers.contract.jobs import ZERO3
from workers.layouts import deepspeed_config
from workers.layouts.arguments import without_compiling
from workers.layouts.gathered import fsdp_parts, put_state, whole_of, whole_state
from workers.models.forward import Reference
from workers.ppo.model import ActorCritic, ActorCriticOutputs, NonFinite
from workers.ppo.update import forget_rounded

# What the ranks of a PPO run add up, and what one of them does for all.


# Weights, gradients and optimizer split over the ranks of a job: torch's `fully_shard` ("FSDP2").
#
# While the policy learns, a layer's weights come together for its pass and part again, and its
# gradient is added up where its weights lie. While it answers, all weights are whole on every rank
# (`workers.layouts.gathered`).
#
# Source: Zhao et al. 2023, "PyTorch FSDP"; torch.distributed.fsdp.fully_shard. Departure:
# gradients
# are added and not averaged, for each rank divides by the tokens of the whole minibatch.


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
    cast(FSDPModule, actor_critic).reset_iter_state()
    if reference.adapted is None:
        cast(FSDPModule, reference.model).reset_iter_state()


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


def gathered_weights(model: nn.Module, *, keep: bool) -> dict[str, Tensor]:
    """Every weight whole on the CPU, on the ranks that `keep` it; every rank must ask."""
    state = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        full = whole_of(tensor)
        if keep:
            state[name] = full.detach().cpu()
    return state


# Steps by DeepSpeed: gradients and optimizer split over the ranks (ZeRO 2), weights too (ZeRO 3).
#
# DeepSpeed clips, steps and brings the weights together again. It averages gradients over the
# ranks,
# where ours are added up, for each rank divides by the tokens of the whole minibatch.
#
# Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
# Models"; deepspeed.initialize. Departure: which part of a minibatch is its last, and that a
# gradient
# may be dropped, we say ourselves.

RESTS = "rests"  # of a parameter group: it takes no step


class RestingAdamW(torch.optim.AdamW):
    """A group that rests is passed over, as torch does where weights have no gradient: DeepSpeed
    gives such weights a gradient of zeros, with which AdamW would count a step."""

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override] # narrower than torch's overloads
        groups = self.param_groups
        self.param_groups = [group for group in groups if not group.get(RESTS)]
        try:
            return super().step(closure)
        finally:
            self.param_groups = groups


class Zero:
    """DeepSpeed's engine around a policy and its critic: what an update steps with
    (`workers.ppo.update.Stepper`), and whose moments are kept in a checkpoint."""

    def __init__(
        self,
        actor_critic: ActorCritic,
        optimizer: RestingAdamW,
        *,
        layout: str,
        max_norm: float,
        half: bool,
    ) -> None:
        """Splits the weights in place under `layout` zero3, and takes over `optimizer` with what it
        remembers. The first group is the policy's. Every rank must call, with the same weights."""
        without_compiling()
        import deepspeed

        self._groups: list[list[nn.Parameter]] = [g["params"] for g in optimizer.param_groups]
        known = optimizer.state_dict()
        optimizer.state.clear()
        self.engine, *_ = deepspeed.initialize(
            model=actor_critic,
            optimizer=optimizer,
            config=configuration(layout, max_norm=max_norm, half=half),
            dist_init_required=False,
        )
        if layout == ZERO3:
            # Ranks meet at each call of a layer, and one with fewer tokens had fewer pieces.
            actor_critic.logits_chunk = None
        put_state(self.engine.optimizer, self._groups, known)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of AdamW, for their step sizes."""
        groups: list[dict[str, Any]] = self.engine.optimizer.param_groups
        return groups

    # --- steps ---

    def look(self, *sequences: Tensor, **options: Any) -> ActorCriticOutputs:
        return self.engine(*sequences, **options)

    def backward(self, share: Tensor, *, last: bool) -> None:
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(share * ranks.world(), scale_wrt_gas=False)

    def drop(self) -> None:
        optimizer = self.engine.optimizer
        optimizer.zero_grad()
        for kept in (optimizer.averaged_gradients, getattr(optimizer, "all_grad_tensors", {})):
            kept.clear()

    def step(self, *, policy_rests: bool) -> float:
        self.param_groups[0][RESTS] = policy_rests
        self.engine.step()
        forget_rounded()
        if not self.engine.was_step_applied():  # DeepSpeed has dropped the gradient
            raise NonFinite("the gradient of the update")
        return float(self.engine.get_global_grad_norm())

    # --- files ---

    def moments(self) -> Iterator[tuple[nn.Parameter, Mapping[str, Tensor]]]:
        """AdamW's state of each parameter that has any, whole; every rank must call."""
        state = whole_state(self.engine.optimizer, self._groups)["state"]
        parameters = [parameter for group in self._groups for parameter in group]
        yield from ((parameters[index], moments) for index, moments in state.items())

    def close(self) -> None:
        """Let go of the model, which other passes may go on with."""
        self.engine.destroy()


def configuration(layout: str, *, max_norm: float, half: bool) -> dict[str, Any]:
    """The shipped one, with what a run says in the place of `auto`. The size of a batch is ours to
    know: DeepSpeed sees passes."""
    shipped: dict[str, Any] = json.loads(deepspeed_config(layout).read_text())
    return shipped | {
        "bf16": {"enabled": False},  # weights stay in float32
        "torch_autocast": {
            "enabled": half,
            "dtype": "bfloat16",
            "lower_precision_safe_modules": [],  # gradients travel as they are
        },
        "gradient_clipping": max_norm,
        "gradient_accumulation_steps": 1,
        "train_micro_batch_size_per_gpu": 1,
        "train_batch_size": ranks.world(),
    }


# Adding up tensors over the ranks of a job.


# What one rank does for all, because it asks somebody outside or must be asked only once.
