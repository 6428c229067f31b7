"""The exact divergence from the reference at every token, for those who pay for it."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from workers.models.reference import Reference
from workers.rl.kl import kl_exact


@torch.no_grad()
def exact_kl_of(
    policy: PreTrainedModel,
    reference: Reference,
    sequences: Sequence[Tensor],
    *,
    temperature: float,
) -> Tensor:
    """Σ_v π (log π − log π_ref) of the tempered distributions: [B, R], nats.

    `sequences`: prompt ids and mask, response ids and mask. Holds two tensors [B, R, V].
    """
    own = _logits(policy, sequences)
    with reference.weights() as model:
        other = _logits(model, sequences)
    return kl_exact(own / temperature, other / temperature)


def _logits(model: PreTrainedModel, sequences: Sequence[Tensor]) -> Tensor:
    prompt_ids, prompt_mask, response_ids, response_mask = sequences
    mask = torch.cat([prompt_mask, response_mask], dim=1)
    output = model(
        input_ids=torch.cat([prompt_ids, response_ids], dim=1),
        attention_mask=mask,
        position_ids=(mask.cumsum(1) - 1).clamp(min=0),
        logits_to_keep=response_ids.shape[1] + 1,
        use_cache=False,
    )
    return output.logits[:, :-1].float()
