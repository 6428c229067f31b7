"""Who draws the answers of a rollout: this process, its ranks, or actors elsewhere.

A rollout is drawn in chunks. A chunk carries its prompts and a seed of its own, so its answers are
the same whoever draws them, in whatever order, and however often a chunk is drawn again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.data.snapshot import Messages
from workers.rollouts.local import Responses, generate
from workers.rollouts.sampling import Sampling, derive_seed


@dataclass(frozen=True, slots=True)
class Chunk:
    """Prompts that are answered as one batch; `start` is the place of the first in the rollout."""

    start: int
    messages: list[Messages]
    ids: list[list[int]]
    sampling: Sampling


def chunks_of(
    messages: Sequence[Messages],
    ids: Sequence[Sequence[int]],
    sampling: Sampling,
    size: int | None = None,
) -> list[Chunk]:
    """The prompts `size` at a time. A single chunk keeps the seed of `sampling`."""
    size = size or len(ids)
    return [
        Chunk(
            start,
            list(messages[start : start + size]),
            [list(row) for row in ids[start : start + size]],
            sampling
            if len(ids) <= size
            else replace(sampling, seed=derive_seed(sampling.seed, start)),
        )
        for start in range(0, len(ids), size)
    ]


@dataclass(slots=True)
class Drawn:
    """The answers to one chunk, and the version of the policy that gave them: optimizer steps
    taken before. What that version thinks of them, [B, R] in nats, where it was asked."""

    chunk: Chunk
    responses: Responses
    version: int
    logprobs: Tensor | None = None
    entropy: Tensor | None = None


class Drawer(Protocol):
    """Draws answers to chunks; each comes as soon as it is ready, in the order of the chunks."""

    def draw(self, chunks: Sequence[Chunk], *, version: int) -> Iterator[Drawn]: ...


@dataclass(slots=True)
class LocalDrawer:
    """Draws here and now, from the policy as it stands."""

    policy: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stop: Sequence[int]

    def draw(self, chunks: Sequence[Chunk], *, version: int) -> Iterator[Drawn]:
        for chunk in chunks:
            responses = generate(
                self.policy, self.tokenizer, chunk.ids, chunk.sampling, stop=self.stop
            )
            yield Drawn(chunk, responses, version)
