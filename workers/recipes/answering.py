"""Answers to a list of prompts in batches, and samples for people to read."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.context import RunContext
from workers.contract.events import Sample
from workers.data.encoding import encode_prompt
from workers.data.snapshot import Messages
from workers.models import stop_ids
from workers.rollouts.local import Responses, generate
from workers.rollouts.sampling import Sampling, derive_seed


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `tokens` counts the end token; `ended` says whether there is one."""

    text: str
    tokens: int
    ended: bool


def answer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Messages],
    sampling: Sampling,
    *,
    batch_size: int = 32,
) -> list[Answer]:
    """An answer to each prompt, in order. Each batch draws from its own derived seed."""
    stop = stop_ids(model, tokenizer)
    encoded = [encode_prompt(tokenizer, prompt) for prompt in prompts]
    answers: list[Answer] = []
    for start in range(0, len(prompts), batch_size):
        responses = generate(
            model,
            tokenizer,
            encoded[start : start + batch_size],
            replace(sampling, seed=derive_seed(sampling.seed, "batch", start)),
            stop=stop,
        )
        answers.extend(to_answers(responses))
    return answers


def to_answers(responses: Responses) -> list[Answer]:
    return [
        Answer(text, int(length), bool(ended))
        for text, length, ended in zip(
            responses.texts, responses.lengths, responses.ended, strict=True
        )
    ]


def emit_samples(
    context: RunContext,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Messages],
    *,
    count: int,
    max_new_tokens: int,
    step: int,
    baselines: Sequence[str] | None = None,
) -> None:
    """Answer `count` prompts, the same ones at every call of a run, and emit them as samples."""
    chosen = choose(len(prompts), count, context.spec.seed)
    if not chosen:
        return
    sampling = Sampling(max_new_tokens, seed=derive_seed(context.spec.seed, "sample", step))
    model.eval()
    answers = answer(model, tokenizer, [prompts[i] for i in chosen], sampling)
    for i, given in zip(chosen, answers, strict=True):
        context.emit(
            Sample(
                step=step,
                bucket="random",
                prompt=list(prompts[i]),
                response=given.text,
                tokens=given.tokens,
                baseline=baselines[i] if baselines else None,
            )
        )


def choose(available: int, count: int, seed: int) -> list[int]:
    """`count` of the indices below `available`, by seed, in order."""
    return sorted(random.Random(seed).sample(range(available), min(count, available)))
