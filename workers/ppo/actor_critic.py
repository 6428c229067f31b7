"""A policy with a value head on its own trunk.

One forward gives log-probabilities and values. The head is one linear map of the last hidden
state, zero at the start, so that the first advantages are the rewards themselves and not the noise
of a random critic. A critic of its own would see the policy's trunk change less abruptly, at twice
the memory and time; on the small models of the demo the shared trunk is as stable (docs/log.md).
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from workers.rollouts.forward import score_responses

VALUE_HEAD_FILE = "value_head.safetensors"


@dataclass(slots=True)
class ActorCriticOutputs:
    """Per response token, [B, R]; what lies under the padding means nothing."""

    logprobs: Tensor  # nats, tempered
    entropy: Tensor  # nats per token, tempered
    values: Tensor  # deviations of the normalised reward


class ActorCritic(nn.Module):
    """`policy` and the linear value head beside it."""

    def __init__(self, policy: PreTrainedModel) -> None:
        super().__init__()
        self.policy = policy
        width = policy.get_output_embeddings().weight.shape[1]
        self.value_head = nn.Linear(width, 1, device=policy.device)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)

    def forward(
        self,
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        response_ids: Tensor,
        response_mask: Tensor,
        *,
        temperature: float,
        entropy_gradient: bool = False,
    ) -> ActorCriticOutputs:
        """Shapes as in `score_responses`. V_t is read from the state before token t is drawn."""
        outputs = score_responses(
            self.policy,
            prompt_ids,
            prompt_mask,
            response_ids,
            response_mask,
            temperature=temperature,
            with_entropy=True,
            entropy_gradient=entropy_gradient,
            with_hidden=True,
        )
        values = self.value_head(outputs.hidden.to(self.value_head.weight.dtype)).squeeze(-1)
        return ActorCriticOutputs(outputs.logprobs, outputs.entropy, values)

    def save_head(self, folder: Path) -> None:
        save_file(self.value_head.state_dict(), folder / VALUE_HEAD_FILE)

    def load_head(self, folder: Path) -> None:
        state = load_file(folder / VALUE_HEAD_FILE, device=str(self.value_head.weight.device))
        with torch.no_grad():
            self.value_head.load_state_dict(state)
