"""What a policy did, kept with everything needed to learn from it or to repeat it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from workers.data.snapshot import Messages
from workers.models import stop_ids
from workers.ppo.actor_critic import ActorCritic
from workers.reference import Reference
from workers.rollouts.local import Responses, generate
from workers.rollouts.sampling import Sampling


@dataclass(slots=True)
class Rollout:
    """B answers of one policy version. P, R as in `Responses`; tensors [B, R] unless said."""

    policy_version: int  # optimizer steps taken before it was drawn
    sampling: Sampling
    prompts: list[Messages]
    responses: Responses
    logprobs: Tensor  # behaviour policy, nats, recomputed in one forward pass
    ref_logprobs: Tensor  # nats
    entropy: Tensor  # nats per token
    values: Tensor  # deviations

    @property
    def mask(self) -> Tensor:
        return self.responses.response_mask


@torch.no_grad()
def collect(
    actor_critic: ActorCritic,
    reference: Reference,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Messages],
    prompt_ids: Sequence[Sequence[int]],
    sampling: Sampling,
    *,
    policy_version: int,
) -> Rollout:
    """Draw an answer to each prompt and look at it with policy, critic and reference.

    The behaviour log-probabilities come from the forward pass that the update uses too, rather
    than from the sampler, whose cache and batch shapes round differently.
    """
    stop = stop_ids(actor_critic.policy, tokenizer)
    responses = generate(actor_critic.policy, tokenizer, prompt_ids, sampling, stop=stop)
    sequences = (
        responses.prompt_ids,
        responses.prompt_mask,
        responses.response_ids,
        responses.response_mask,
    )
    own = actor_critic(*sequences, temperature=sampling.temperature)
    ref = reference.logprobs(*sequences, temperature=sampling.temperature)
    return Rollout(
        policy_version=policy_version,
        sampling=sampling,
        prompts=list(prompts),
        responses=responses,
        logprobs=own.logprobs,
        ref_logprobs=ref,
        entropy=own.entropy,
        values=own.values,
    )


def sequences_of(responses: Responses, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Prompt ids and mask, response ids and mask of some rows, without columns that are padding
    in all of them; and the width that the response is cut to."""
    prompt_mask, response_mask = responses.prompt_mask[rows], responses.response_mask[rows]
    first = int(prompt_mask.any(0).long().argmax())
    width = int(response_mask.sum(1).max())
    return (
        responses.prompt_ids[rows, first:],
        prompt_mask[:, first:],
        responses.response_ids[rows, :width],
        response_mask[:, :width],
        width,
    )
