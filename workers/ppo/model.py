"""What a PPO run is made of, before its first step."""

import copy
from pathlib import Path
from typing import NamedTuple, cast

import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.artifacts import state_in, state_of
from workers.models.forward import LOGITS_CHUNK, can_pack, response_states, score_responses
from workers.models.loading import load_exact, save_exact, save_model
from workers.models.lora import load_adapter, merged, save_adapter

# A policy and its critic.
#
# The critic is either a value head on the policy's own trunk, so that one forward gives
# log-probabilities and values, or a model of its own with such a head. The head is one linear map
# of
# the last hidden state, zero at the start, so that the first advantages are the rewards themselves
# and not the noise of a random critic. A critic of its own does not pull at the policy's trunk, at
# twice the memory and time; on the small models of the demo the shared trunk is as stable
# (docs/log.md).
#
# The policy may carry low-rank adapters. `policy` is then the model below them, with the adapters
# built into its layers, and `adapted` the handle that switches, saves and merges them.

VALUE_HEAD_FILE = "value_head.safetensors"
CRITIC_FILE = "critic.safetensors"


class ActorCriticOutputs(NamedTuple):
    """Per response token, [B, R]; what lies under the padding means nothing. A tuple, in which
    `fully_shard` finds the tensors whose backward pass it must hear of."""

    logprobs: Tensor  # nats, tempered
    entropy: Tensor  # nats per token, tempered
    values: Tensor  # deviations of the normalised reward


class ActorCritic(nn.Module):
    """`policy`, and a value head on its trunk or on that of `critic`."""

    # Tokens whose logits exist at once while it trains; None: all of a pass.
    logits_chunk: int | None = LOGITS_CHUNK

    def __init__(
        self,
        policy: PreTrainedModel,
        *,
        adapted: PeftModel | None = None,
        critic: PreTrainedModel | None = None,
    ) -> None:
        super().__init__()
        self.policy = policy
        self._adapted = [adapted]  # in a list: the same weights must not be registered twice
        self.critic = critic
        width = policy.get_output_embeddings().weight.shape[1]
        self.value_head = nn.Linear(width, 1, device=policy.device)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)

    @property
    def packs(self) -> bool:
        """Whether policy and critic read rows end to end, without padding."""
        return can_pack(self.policy) and (self.critic is None or can_pack(self.critic))

    @property
    def adapted(self) -> PeftModel | None:
        return self._adapted[0]

    def forward(
        self,
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        response_ids: Tensor,
        response_mask: Tensor,
        *,
        temperature: float,
        entropy_gradient: bool = False,
        values_alone: bool = False,
    ) -> ActorCriticOutputs:
        """Shapes as in `score_responses`. V_t is read from the state before token t is drawn.

        `values_alone`: only the value head gets a gradient, and a critic of its own; the policy
        gets none (the critic's warm-up).
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and not values_alone):
            outputs = score_responses(
                self.policy,
                prompt_ids,
                prompt_mask,
                response_ids,
                response_mask,
                temperature=temperature,
                with_entropy=True,
                entropy_gradient=entropy_gradient,
                with_hidden=self.critic is None,
                logits_chunk=self.logits_chunk if self.training else LOGITS_CHUNK,
            )
        hidden = outputs.hidden
        if self.critic is not None:
            hidden = self._critic_states(prompt_ids, prompt_mask, response_ids, response_mask)
        assert hidden is not None  # noqa: S101 — asked for
        assert outputs.entropy is not None  # noqa: S101 — as well
        values = self.value_head(hidden.to(self.value_head.weight.dtype)).squeeze(-1)
        return ActorCriticOutputs(outputs.logprobs, outputs.entropy, values)

    def values(
        self, prompt_ids: Tensor, prompt_mask: Tensor, response_ids: Tensor, response_mask: Tensor
    ) -> Tensor:
        """Values alone: [B, R], deviations. Without the policy's output layer where it can be."""
        if self.critic is None:
            sequences = (prompt_ids, prompt_mask, response_ids, response_mask)
            return self(*sequences, temperature=1.0).values
        hidden = self._critic_states(prompt_ids, prompt_mask, response_ids, response_mask)
        return self.value_head(hidden.to(self.value_head.weight.dtype)).squeeze(-1)

    def _critic_states(
        self, prompt_ids: Tensor, prompt_mask: Tensor, response_ids: Tensor, response_mask: Tensor
    ) -> Tensor:
        """The critic's last states before each response token: [B, R, width]."""
        assert self.critic is not None  # noqa: S101 — nobody else asks
        return response_states(self.critic, prompt_ids, prompt_mask, response_ids, response_mask)

    # --- who learns ---

    def policy_parameters(self) -> list[nn.Parameter]:
        return [p for p in self.policy.parameters() if p.requires_grad]

    def critic_parameters(self) -> list[nn.Parameter]:
        own = [] if self.critic is None else list(self.critic.parameters())
        return [*own, *self.value_head.parameters()]

    def trained_names(self) -> dict[nn.Parameter, str]:
        return {p: name for name, p in self.named_parameters() if p.requires_grad}

    # --- files ---

    def save(self, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
        """A model folder that any program can load (adapters merged into the weights), beside it
        the adapters as they are, because merging rounds; the critic among the trainer's state."""
        place = state_in(folder)
        if self.adapted is None:
            save_model(self.policy, tokenizer, folder)
            save_exact(self.policy, place)
        else:
            save_model(merged(self.adapted), tokenizer, folder)
            save_adapter(self.adapted, folder)
        save_file(self.value_head.state_dict(), place / VALUE_HEAD_FILE)
        if self.critic is not None:
            save_file(_own_memory(self.critic), place / CRITIC_FILE)

    def load(self, folder: Path) -> None:
        """Adapters and critic of a checkpoint. Weights of a policy without adapters are loaded
        with the model itself; here come those that its files round."""
        device, place = str(self.value_head.weight.device), state_of(folder)
        if self.adapted is not None:
            load_adapter(self.adapted, folder)
        else:
            load_exact(self.policy, place)
        with torch.no_grad():
            self.value_head.load_state_dict(load_file(place / VALUE_HEAD_FILE, device=device))
            if self.critic is not None:
                self.critic.load_state_dict(load_file(place / CRITIC_FILE, device=device))


def critic_of(policy: PreTrainedModel) -> PreTrainedModel:
    """A trunk of its own, with the policy's weights and without its output layer."""
    return cast(PreTrainedModel, copy.deepcopy(policy.base_model).requires_grad_(True))


def _own_memory(module: nn.Module) -> dict[str, Tensor]:
    """Tensors that share no memory, as the file format wants them."""
    return {name: t.detach().contiguous().clone() for name, t in module.state_dict().items()}


class NonFinite(Exception):
    """A loss, gradient or probability that is NaN or infinite; the message is a noun for it. The
    weights are still those before it."""
