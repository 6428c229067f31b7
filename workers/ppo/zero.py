"""Steps by DeepSpeed: gradients and optimizer split over the ranks (ZeRO 2), weights too (ZeRO 3).

DeepSpeed clips, steps and brings the weights together again. It averages gradients over the ranks,
where ours are added up, for each rank divides by the tokens of the whole minibatch.

Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models"; deepspeed.initialize. Departure: which part of a minibatch is its last, and that a gradient
may be dropped, we say ourselves.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from workers import ranks
from workers.contract.layouts import ZERO3
from workers.layouts import deepspeed_config
from workers.layouts.arguments import without_compiling
from workers.layouts.optimizer_state import put_state, whole_state
from workers.ppo.actor_critic import ActorCritic, ActorCriticOutputs
from workers.ppo.finite import NonFinite
from workers.ppo.stepping import forget_rounded

RESTS = "rests"  # of a parameter group: it takes no step


class RestingAdamW(torch.optim.AdamW):
    """A group that rests is passed over, as torch does where weights have no gradient: DeepSpeed
    gives such weights a gradient of zeros, with which AdamW would count a step."""

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        groups = self.param_groups
        self.param_groups = [group for group in groups if not group.get(RESTS)]
        try:
            return super().step(closure)
        finally:
            self.param_groups = groups


class Zero:
    """DeepSpeed's engine around a policy and its critic: what an update steps with
    (`workers.ppo.stepping.Stepper`), and whose moments are kept in a checkpoint."""

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
