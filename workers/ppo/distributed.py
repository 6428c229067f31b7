"""A PPO run on one rank or several: how a gradient becomes a step, sharded weights, ZeRO, what one
rank does for all."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, cast

import torch
from accelerate import Accelerator
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.utils import clip_grad_norm_

from workers import ranks
from workers.contract.events import Fault, RecipeError
from workers.contract.jobs import ZERO3
from workers.layouts.arguments import deepspeed_config, without_compiling
from workers.layouts.gathered import fsdp_parts, is_split, put_state, whole_of, whole_state
from workers.models.forward import Reference
from workers.models.loading import whole
from workers.ppo.model import ActorCritic, ActorCriticOutputs, NonFinite

# What the ranks of a PPO run add up.

BUCKET = 16_000_000  # numbers that travel together


def add_up(tensor: Tensor) -> None:
    """The sum over all ranks in the place of each rank's own, alike to the bit on all of them."""
    if ranks.world() > 1:
        distributed.all_reduce(tensor)


def add_up_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Each parameter's gradient becomes the sum of all ranks'. A parameter without one has none on
    any rank, for all ranks make the same passes."""
    if ranks.world() == 1:
        return
    for bucket in _buckets([p.grad for p in parameters if p.grad is not None]):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        distributed.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in bucket])
        for gradient, part in zip(bucket, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


def _buckets(gradients: list[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for gradient in gradients:
        if bucket and sum(each.numel() for each in bucket) + gradient.numel() > BUCKET:
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket


# What one rank does for all, because it asks somebody outside or must be asked only once.

Found = TypeVar("Found")


def by_first(work: Callable[[], Found]) -> Found:
    """What `work` gives on the first rank, on every rank. Where it fails there, it fails everywhere
    and with the same words. Every rank must call it, and `work` may ask nothing of the others."""
    if ranks.world() == 1:
        return work()
    found, failed = None, None
    if ranks.is_first():
        try:
            found = work()
        except Exception as error:
            ranks.from_first((None, _told(error)))
            raise
    found, failed = ranks.from_first((found, None))
    if failed is not None:
        kind, fault, message = failed
        raise RecipeError(kind, Fault(fault), message)
    return found


def _told(error: Exception) -> tuple[str, str, str]:
    if isinstance(error, RecipeError):
        return error.kind, error.fault.value, error.message
    return "bug", Fault.BUG.value, f"the first rank failed: {type(error).__name__}: {error}"


# How the gradient of a minibatch comes together over the ranks of a job, and becomes a step.
#
# A minibatch comes in parts, as many on every rank. The gradient is the sum over parts and ranks,
# and is then either dropped or, clipped, steps.


class Stepper(Protocol):
    """What an update does with a model."""

    def look(self, *sequences: Tensor, **options: Any) -> ActorCriticOutputs:
        """`ActorCritic.forward`, with gradients."""

    def backward(self, share: Tensor, *, last: bool) -> None:
        """Add the gradient of one part's share of the minibatch's loss, a scalar; `last`: of the
        minibatch. Every rank must call, equally often."""

    def drop(self) -> None:
        """Forget the gradient."""

    def step(self, *, policy_rests: bool) -> float:
        """Clip the gradient and take a step; returns the norm before clipping. With `policy_rests`
        only the critic got a gradient. Raises `NonFinite` where the norm is no number, before any
        weight has moved."""


def stepper_of(
    actor_critic: ActorCritic,
    optimizer: torch.optim.Optimizer | Stepper,
    accelerator: Accelerator | None,
    *,
    max_norm: float,
) -> Stepper:
    """What steps with torch's optimizer, or what already is one (`Zero`)."""
    if isinstance(optimizer, torch.optim.Optimizer):
        return WholeSteps(actor_critic, optimizer, accelerator, max_norm=max_norm)
    return optimizer


class WholeSteps:
    """Weights that each rank has whole, or that `fully_shard` has split."""

    def __init__(
        self,
        actor_critic: ActorCritic,
        optimizer: torch.optim.Optimizer,
        accelerator: Accelerator | None,
        *,
        max_norm: float,
    ) -> None:
        self._actor_critic = actor_critic
        self._optimizer = optimizer
        self._accelerator = accelerator
        self._max_norm = max_norm
        self._split = is_split(actor_critic)  # then gradients add up as they go
        # Those of the optimizer: of weights split over ranks, the parts that this one holds.
        self._trained = [p for group in optimizer.param_groups for p in group["params"]]

    def look(self, *sequences: Tensor, **options: Any) -> ActorCriticOutputs:
        return self._actor_critic(*sequences, **options)

    def backward(self, share: Tensor, *, last: bool) -> None:
        if self._accelerator is None:
            share.backward()
        else:
            self._accelerator.backward(share)
        if last and not self._split:
            add_up_gradients(self._trained)

    def drop(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)

    def step(self, *, policy_rests: bool) -> float:
        norm = whole(clip_grad_norm_(self._trained, self._max_norm))
        if not torch.isfinite(norm):
            raise NonFinite("the gradient of the update")
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        forget_rounded()
        return float(norm)


def forget_rounded() -> None:
    """Let the next pass round the weights again. Autocast keeps its bfloat16 copies until it is
    left, and an update is one autocast: its later minibatches would see the weights before it."""
    torch.clear_autocast_cache()


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
    (`Stepper`), and whose moments are kept in a checkpoint."""

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
