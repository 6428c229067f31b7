"""Answers to a list of prompts, and how far from the reference each of them lies."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers import ranks
from workers.models.forward import score_responses
from workers.models.loading import stop_ids
from workers.models.reference import Reference
from workers.rl.kl import kl_k1
from workers.rl.masked import masked_sum
from workers.rollouts.local import generate
from workers.rollouts.sampling import Sampling, derive_seed


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `tokens` counts the end token; `ended` says whether there is one."""

    text: str
    tokens: int
    ended: bool
    kl: float | None = None  # nats of this sequence against the reference, by k1


@torch.no_grad()
def answer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    *,
    batch_size: int = 32,
    reference: Reference | None = None,
    by_ranks: bool = False,
) -> list[Answer]:
    """An answer to each prompt (token ids), in order; each batch draws from its own derived seed.

    `by_ranks`: every rank of this job asks for the same, each gives every n-th batch, and all get
    all answers.

    With `reference`, each answer carries log π − log π_ref summed over its tokens (k1): its mean
    over answers estimates the sequence KL without bias. Sampling must then be from the whole
    tempered distribution (no top_p, top_k), or the estimate is of another policy.
    """
    starts = range(0, len(prompts), batch_size)
    first, step = (ranks.rank(), ranks.world()) if by_ranks else (0, 1)
    batches: list[list[Answer]] = []
    for start in starts[first::step]:
        responses = generate(
            model,
            tokenizer,
            prompts[start : start + batch_size],
            replace(sampling, seed=derive_seed(sampling.seed, "batch", start)),
            stop=stop_ids(model, tokenizer),
        )
        kl: list[float] | list[None] = [None] * len(responses.texts)
        if reference is not None:
            sequences = (
                responses.prompt_ids,
                responses.prompt_mask,
                responses.response_ids,
                responses.response_mask,
            )
            own = score_responses(model, *sequences, temperature=sampling.temperature)
            ref = reference.logprobs(*sequences, temperature=sampling.temperature)
            per_token = kl_k1(own.logprobs, ref)
            kl = masked_sum(per_token, responses.response_mask, dim=1).tolist()
        batches.append(
            [
                Answer(text, int(tokens), bool(ended), nats)
                for text, tokens, ended, nats in zip(
                    responses.texts, responses.lengths, responses.ended, kl, strict=True
                )
            ]
        )
    told = ranks.gathered(batches) if by_ranks else [batches]
    in_order = (told[i % step][i // step] for i in range(len(starts)))
    return [answer for batch in in_order for answer in batch]
