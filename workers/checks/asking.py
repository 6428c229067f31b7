"""Asking a model the fixed prompts of a run, in the way in which its evaluations asked them.

Prompts, seeds and batches are those of `workers.ppo.evaluation`, so that on the same kind of
machine a healthy run's figures come out again to the last digit, and not only within their noise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.config.inference import AskingSettings
from workers.context import RunContext
from workers.models.forward import score_responses
from workers.models.loading import freeze, load_causal, load_tokenizer, stop_ids
from workers.ppo.setup import Prompts, read_evaluation_prompts
from workers.rl.masked import masked_sum
from workers.rollouts.local import Responses, generate
from workers.rollouts.sampling import Sampling, derive_seed

BATCH = 32  # as in workers.rollouts.answers: each batch draws from its own derived seed


@dataclass(frozen=True, slots=True)
class Speaker:
    """A frozen model with the tokenizer it speaks through."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Asked:
    """Answers to some of the prompts: `rows` says to which. Log-probabilities are [B, R], nats,
    tempered; `reference` only where another model looked on."""

    rows: slice
    responses: Responses
    own: Tensor
    entropy: Tensor
    reference: Tensor | None = None

    @property
    def kl(self) -> list[float]:
        """Nats of each answer against the reference, by k1."""
        if self.reference is None:
            raise ValueError("no reference looked on")
        return masked_sum(self.own - self.reference, self.responses.response_mask, dim=1).tolist()


def speaker(context: RunContext, role: str) -> Speaker:
    folder = context.input_path(role)
    return Speaker(freeze(load_causal(folder)), load_tokenizer(folder))


def fixed_prompts(
    context: RunContext, settings: AskingSettings, tokenizer: PreTrainedTokenizerBase
) -> Prompts:
    """Those that the run's evaluations asked, where seed and settings are the run's."""
    folder, seed = context.input_path("prompts"), context.spec.seed
    return read_evaluation_prompts(folder, tokenizer, settings, seed=seed)


def evaluation_sampling(context: RunContext, settings: AskingSettings) -> Sampling:
    seed = derive_seed(context.spec.seed, "eval")
    return Sampling(settings.max_new_tokens, temperature=settings.temperature, seed=seed)


@torch.no_grad()
def ask(
    by: Speaker,
    ids: Sequence[Sequence[int]],
    sampling: Sampling,
    parts: Iterator[slice],
    *,
    reference: PreTrainedModel | None = None,
) -> Iterator[Asked]:
    """Answers to `ids`, part by part (parts of `BATCH`), with what the model thinks of them."""
    for rows in parts:
        responses = generate(
            by.model,
            by.tokenizer,
            ids[rows],
            replace(sampling, seed=derive_seed(sampling.seed, "batch", rows.start)),
            stop=stop_ids(by.model, by.tokenizer),
        )
        yield looked_at(by.model, responses, rows, sampling.temperature, reference=reference)


@torch.no_grad()
def looked_at(
    model: PreTrainedModel,
    responses: Responses,
    rows: slice,
    temperature: float,
    *,
    reference: PreTrainedModel | None = None,
) -> Asked:
    """What `model` and `reference` think of given answers."""
    sequences = (
        responses.prompt_ids,
        responses.prompt_mask,
        responses.response_ids,
        responses.response_mask,
    )
    own = score_responses(model, *sequences, temperature=temperature, with_entropy=True)
    assert own.entropy is not None  # noqa: S101 — asked for
    other = None
    if reference is not None:
        other = score_responses(reference, *sequences, temperature=temperature).logprobs
    return Asked(rows, responses, own.logprobs, own.entropy, other)
