"""Answers that are shown while and after a run, for people to read."""

import random
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from workers.context import RunContext
from workers.contract.events import Sample
from workers.data.encoding import encode_prompt
from workers.data.snapshot import Messages
from workers.rollouts.answers import Answer


def choose(available: int, count: int, seed: int) -> list[int]:
    """`count` of the indices below `available`, by seed, in order."""
    return sorted(random.Random(seed).sample(range(available), min(count, available)))


def encode_fitting(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Messages], max_length: int
) -> tuple[list[Messages], list[list[int]]]:
    """The prompts of at most `max_length` tokens, and their ids."""
    encoded = [(prompt, encode_prompt(tokenizer, prompt)) for prompt in prompts]
    fitting = [(prompt, ids) for prompt, ids in encoded if len(ids) <= max_length]
    return [prompt for prompt, _ in fitting], [ids for _, ids in fitting]


def emit_samples(
    context: RunContext,
    step: int,
    prompts: Sequence[Messages],
    answers: Sequence[Answer],
    *,
    rewards: Sequence[float] | None = None,
    baselines: Sequence[Answer] | None = None,
) -> None:
    """One `Sample` of the random bucket per prompt."""
    for i, (prompt, given) in enumerate(zip(prompts, answers, strict=True)):
        context.emit(
            Sample(
                step=step,
                bucket="random",
                prompt=list(prompt),
                response=given.text,
                reward=rewards[i] if rewards else None,
                kl=given.kl,
                tokens=given.tokens,
                baseline=baselines[i].text if baselines else None,
            )
        )
