"""Who draws the answers of a rollout: this process, its ranks, or actors elsewhere.

A rollout is drawn in chunks. A chunk carries its prompts and a seed of its own, so its answers are
the same whoever draws them, in whatever order, and however often a chunk is drawn again.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from measures.messages import Messages
from workers import ranks
from workers.context import RunContext
from workers.models.forward import Reference, score_responses
from workers.models.loading import stop_ids
from workers.rl.losses import kl_k1, masked_sum
from workers.rollouts.local import Responses, Sampling, derive_seed, generate

# How answers are drawn. No torch.


class Draw(Protocol):
    """Answers to prompts, all in one batch: `workers.rollouts.local.generate`, or rollouts with
    tools."""

    def __call__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        *,
        stop: Sequence[int],
    ) -> Responses: ...


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


# Drawing by all ranks of a job: each draws every n-th chunk, and all of them hold every answer.
#
# A chunk has its own seed, so the answers are those of one process with the same chunks.


@dataclass(slots=True)
class RankedDrawer:
    """`own` draws what falls to this rank. Every rank must draw the same chunks, to the end."""

    own: Drawer
    device: torch.device

    def draw(self, chunks: Sequence[Chunk], *, version: int) -> Iterator[Drawn]:
        """In rounds of one chunk a rank, so that a round can be scored while the next is drawn.

        A draw that fails on one rank fails on all, with its words: a policy that holds numbers
        that are none is passed over by everybody or by nobody.
        """
        for start in range(0, len(chunks), ranks.world()):
            in_turn = chunks[start : start + ranks.world()]
            told = ranks.gathered(self._drawn(in_turn, version=version))
            for answer in told:
                if isinstance(answer, str):
                    raise RuntimeError(answer)
            for chunk, answer in zip(in_turn, told, strict=False):
                yield Drawn(chunk, _moved(answer, self.device), version)

    def _drawn(self, in_turn: Sequence[Chunk], *, version: int) -> Responses | str | None:
        """This rank's answers of a round, or why there are none; None where no chunk is left."""
        mine = in_turn[ranks.rank() : ranks.rank() + 1]
        try:
            for one in self.own.draw(mine, version=version):
                return _moved(one.responses, torch.device("cpu"))
        except RuntimeError as error:
            return str(error)
        return None


def _moved(responses: Responses, device: torch.device) -> Responses:
    tensors: dict[str, Any] = {
        field.name: value.to(device)
        for field in fields(responses)
        if isinstance(value := getattr(responses, field.name), Tensor)
    }
    return replace(responses, **tensors)


# Which prompts a step answers.


class PromptOrder:
    """An endless order over `count` prompts: every pass a new permutation, by seed and position.

    The position is all there is to remember, so a resumed run continues with the next prompt.
    """

    def __init__(self, count: int, *, seed: int) -> None:
        self._count = count
        self._seed = seed

    def take(self, position: int, n: int) -> list[int]:
        """Indices of the `n` prompts from `position` on."""
        taken: list[int] = []
        while len(taken) < n:
            done, offset = divmod(position + len(taken), self._count)
            generator = torch.Generator().manual_seed(derive_seed(self._seed, "prompts", done))
            order = torch.randperm(self._count, generator=generator).tolist()
            taken.extend(order[offset : offset + n - len(taken)])
        return taken


# Answers to a list of prompts, and how far from the reference each of them lies.


# Answers drawn from a policy with what the reference says of them.


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
    draw: Draw = generate,
) -> list[Answer]:
    """An answer to each prompt (token ids), in order; each batch draws from its own derived seed.

    `draw` answers a batch: in one turn, or in several with tools.

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
        responses = draw(
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
            kl = masked_sum(per_token, responses.drawn_mask, dim=1).tolist()
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


# How long a caller waits for an answer, with and without what is computed beside it: the value head
# of a PPO run, or the reward model's score of the answer.
#
# What is served beside an answer (best-of-n, guided decoding, filters) costs time, and that must
# not be found out in production. Both paths answer requests one at a time, warmed up, in turns, so
# that a machine that slows down slows both.

LATENCY_FILE = "latency.json"
VALUE_HEAD, SCORE = "value_head", "score"
_BESIDE = {VALUE_HEAD: "the value head", SCORE: "the score"}

WARM_UP = 2  # requests of each path that are answered first and not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """Times of one path over `requests` requests. Milliseconds; per token: of generated tokens."""

    requests: int
    tokens: int
    p50_ms: float
    p99_ms: float
    p50_ms_per_token: float
    p99_ms_per_token: float

    def to_json(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Both paths; `added_*` is what `what` (VALUE_HEAD or SCORE) adds to each."""

    without: Path
    with_it: Path
    what: str = VALUE_HEAD

    @property
    def added_p50_ms(self) -> float:
        return self.with_it.p50_ms - self.without.p50_ms

    @property
    def added_p99_ms(self) -> float:
        return self.with_it.p99_ms - self.without.p99_ms

    @property
    def message(self) -> str:
        share = self.added_p50_ms / self.without.p50_ms if self.without.p50_ms else 0.0
        few = (
            f" With {self.without.requests} requests p99 is little more than the slowest."
            if self.without.requests < 100
            else ""
        )
        return (
            f"An answer takes {self.without.p50_ms:.1f} ms (p50) and {self.without.p99_ms:.1f} ms "
            f"(p99) without {_BESIDE[self.what]}; it adds {self.added_p50_ms:.1f} ms "
            f"({100 * share:.0f} %) at p50 and {self.added_p99_ms:.1f} ms at p99, n = "
            f"{self.without.requests} requests.{few}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "version": 1,
            f"without_{self.what}": self.without.to_json(),
            f"with_{self.what}": self.with_it.to_json(),
            "added_p50_ms": self.added_p50_ms,
            "added_p99_ms": self.added_p99_ms,
            "message": self.message,
        }


def measure_latency(
    without: Callable[[int], int],
    with_it: Callable[[int], int],
    *,
    requests: int,
    what: str = VALUE_HEAD,
    clock: Callable[[], float] = time.perf_counter,
    warm_up: int = WARM_UP,
) -> Latency:
    """Time both paths. Each takes the number of a request, answers it, and returns the number of
    generated tokens; a device must have finished by then. `clock` tells seconds.

    The paths take turns, and who goes first changes with every request.
    """
    if requests < 1:
        raise ValueError(f"requests must be at least 1, not {requests}")
    paths = (without, with_it)
    for number in range(warm_up):
        for answer in paths:
            answer(number)
    seconds: tuple[list[float], list[float]] = ([], [])
    tokens: tuple[list[int], list[int]] = ([], [])
    for number in range(requests):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        for which in order:
            started = clock()
            made = paths[which](number)
            seconds[which].append(clock() - started)
            tokens[which].append(made)
    return Latency(
        without=_path(seconds[0], tokens[0]), with_it=_path(seconds[1], tokens[1]), what=what
    )


def _path(seconds: Sequence[float], tokens: Sequence[int]) -> Path:
    ms = 1000 * np.asarray(seconds)
    per_token = ms / np.maximum(np.asarray(tokens), 1)
    return Path(
        requests=len(ms),
        tokens=int(sum(tokens)),
        p50_ms=float(np.quantile(ms, 0.5)),
        p99_ms=float(np.quantile(ms, 0.99)),
        p50_ms_per_token=float(np.quantile(per_token, 0.5)),
        p99_ms_per_token=float(np.quantile(per_token, 0.99)),
    )


def save_latency(context: RunContext, found: Latency) -> dict[str, Any]:
    """As the artifact latency.json, which is returned."""
    plain = found.to_json()
    path = context.workdir / LATENCY_FILE
    path.write_text(json.dumps(plain, indent=1))
    context.save_artifact(path, media_type="application/json")
    return plain
