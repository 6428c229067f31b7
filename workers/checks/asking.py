"""Asking a model the fixed prompts of a run, in the way in which its evaluations asked them.

Prompts, seeds and batches are those of `workers.ppo.evaluation`, so that on the same kind of
machine a healthy run's figures come out again to the last digit, and not only within their noise.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.checks.kept import KeptAnswer, is_finite
from workers.config.inference import AskingSettings
from workers.context import RunContext
from workers.data.batches import encode_prompt, pad_left
from workers.models.forward import score_responses
from workers.models.loading import freeze, load_causal, load_tokenizer, stop_ids
from workers.ppo.setup import Prompts, read_evaluation_prompts
from workers.rewards.build import build_reward
from workers.rewards.source import RewardSource
from workers.rl.losses import masked_sum
from workers.rollouts.local import Responses, Sampling, derive_seed, generate

BATCH = 32  # as in workers.rollouts.drawing: each batch draws from its own derived seed


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
    context: RunContext, settings: AskingSettings, tokenizer: PreTrainedTokenizerBase | None
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


# Kept answers as token ids again. A text that was decoded may encode to other tokens: such
# answers are left out, and told by their number.


@dataclass(frozen=True, slots=True)
class Encoded:
    answer: KeptAnswer
    prompt: list[int]
    response: list[int]


def encode_again(rows: Sequence[KeptAnswer], tokenizer: PreTrainedTokenizerBase) -> list[Encoded]:
    """Those rows whose answers encode to as many tokens as they had, with their log-probability."""
    found = []
    for row in rows:
        if not (is_finite(row.logprob) and is_finite(row.kl)):
            continue
        ids = tokenizer(row.response, add_special_tokens=False)["input_ids"]
        ids = [*ids, tokenizer.eos_token_id] if row.ended else list(ids)
        if ids and len(ids) == row.tokens:
            found.append(Encoded(row, encode_prompt(tokenizer, row.prompt), ids))
    return found


def as_responses(
    rows: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase, device: torch.device
) -> Responses:
    """One batch: prompts padded left, answers right."""
    prompt_ids, prompt_mask = (
        t.to(device) for t in pad_left([row.prompt for row in rows], tokenizer.pad_token_id)
    )
    width = max(len(row.response) for row in rows)
    ids = torch.full((len(rows), width), tokenizer.pad_token_id, device=device)
    mask = torch.zeros((len(rows), width), dtype=torch.long, device=device)
    for i, row in enumerate(rows):
        ids[i, : len(row.response)] = torch.tensor(row.response, device=device)
        mask[i, : len(row.response)] = 1
    return Responses(
        prompt_ids=prompt_ids,
        prompt_mask=prompt_mask,
        response_ids=ids,
        response_mask=mask,
        ended=torch.tensor([row.answer.ended for row in rows]),
        texts=[row.answer.response for row in rows],
    )


# The run's reward, asked again: a cache would only repeat what it was told before.

_CACHED = ("model", "http")


def fresh_reward(context: RunContext, settings: AskingSettings) -> RewardSource:
    return build_reward(
        context, without_cache(settings.reward), batch_size=settings.reward_batch_size
    )


def without_cache(reward: Mapping[str, Any]) -> dict[str, Any]:
    """The same reward with every cache in it switched off."""
    found = dict(reward)
    if found.get("type", "model") in _CACHED:
        found["cache"] = False
    if isinstance(found.get("parts"), list):
        found["parts"] = [
            {**part, "source": without_cache(part.get("source") or {})} for part in found["parts"]
        ]
    return found
