"""Sampling answers in this process."""

import hashlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import (
    DynamicCache,
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.cache_utils import Cache, DynamicLayer

from workers.data.batches import pad_left
from workers.data.snapshot import as_drawn
from workers.models.forward import attends_by_sdpa, projecting, sees_every_position

# Called with what is drawn so far, [B, R]; true ends the drawing there.
Watch = Callable[[Tensor], bool]

# How answers are drawn, here and by actors and servers.


@dataclass(frozen=True, slots=True)
class Sampling:
    """Everything that decides a draw; nothing is inherited from the model's own defaults."""

    max_new_tokens: int
    temperature: float = 1.0  # 0 takes the most likely token each time
    top_p: float = 1.0  # 1 keeps the whole distribution
    top_k: int = 0  # 0 keeps the whole vocabulary
    seed: int = 0


def derive_seed(seed: int, *parts: str | int) -> int:
    """A seed for one purpose of a run, for instance ("rollout", 17): 0 … 2³¹ − 1.

    Each step draws from its own seed, so a run that is resumed at step k continues exactly like
    one that was never stopped, with no generator state to carry over.
    """
    text = "/".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


# Sampling token by token with a cache, on what is left of a batch.
#
# `transformers` computes every row of a batch until the last one has ended, copies its whole cache
# for each token, and builds a mask again for each. This loop writes into a cache of the final size,
# drops rows that have ended (what that saves: docs/speed.md), and draws the very tokens that
# `transformers` would: the noise of a draw belongs to the row and the step, not to who else is
# still
# there. What it does not know how to do (caches that slide or hold states of another kind),
# `supports` says, and `transformers` does.

_DROP_AT = 0.8  # ended rows are dropped once this share of the rows is left: each drop copies


@dataclass(frozen=True, slots=True)
class Drawn:
    """B answers, R positions. What lies after a row's first stop token is the pad token."""

    ids: Tensor  # [B, R]
    logprobs: Tensor | None  # [B, R] nats, untempered, 0 after the stop token


def supports(model: PreTrainedModel) -> bool:
    """Whether the model keeps nothing between tokens but keys and values of every position."""
    if model.config.is_encoder_decoder:
        return False
    if "position_ids" not in inspect.signature(type(model).forward).parameters:
        return False
    return sees_every_position(model.config)


@torch.no_grad()
def decode(
    model: PreTrainedModel,
    ids: Tensor,
    mask: Tensor,
    sampling: Sampling,
    *,
    stop: Sequence[int],
    pad_id: int,
    keep_logprobs: bool = False,
    watch: Watch | None = None,
) -> Drawn:
    """Answers to prompts padded left: ids, mask [B, P]. Draws from a generator of its own."""
    device, (count, width), room = ids.device, ids.shape, sampling.max_new_tokens
    generator = torch.Generator(device).manual_seed(sampling.seed)
    shape_scores: Any = _warpers(sampling)
    stops = torch.tensor(list(stop), device=device)
    drawn = torch.full((count, room), pad_id, device=device)
    logprobs = torch.zeros(count, room, device=device) if keep_logprobs else None
    cache = _cache(model, width + room)
    seen = torch.cat([mask.bool(), mask.new_ones(count, room, dtype=torch.bool)], dim=1)
    length = mask.sum(1)
    alive = torch.arange(count, device=device)  # rows of the batch that the model still computes
    ended = torch.zeros(count, dtype=torch.bool, device=device)
    padded = not bool(mask.all())
    inputs, positions = ids, (mask.cumsum(1) - 1).clamp(min=0)
    with _evaluating(model), projecting(model, lambda states: states[:, -1]):
        for step in range(room):
            logits = model(
                input_ids=inputs,
                attention_mask=_mask(model, seen, width + step, step) if padded else None,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            ).logits[0]
            logits = logits.float()
            scores = shape_scores(inputs, logits)
            if sampling.temperature == 0:
                tokens = scores.argmax(-1)
            else:  # as torch.multinomial draws: the greatest of p over exponential noise
                noise = scores.new_empty(count, scores.shape[1]).exponential_(generator=generator)
                tokens = (scores.softmax(-1) / noise[alive]).argmax(-1)
            going = ~ended[alive]
            drawn[alive[going], step] = tokens[going]
            if logprobs is not None:
                picked = logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
                logprobs[alive[going], step] = picked[going]
            ended[alive] |= torch.isin(tokens, stops)
            kept = (~ended[alive]).nonzero()[:, 0]
            if not len(kept) or (watch is not None and watch(drawn[:, : step + 1])):
                break
            if len(kept) <= _DROP_AT * len(alive):
                cache.batch_select_indices(kept)
                alive, tokens, seen = alive[kept], tokens[kept], seen[kept]
                padded = padded and not bool(seen.all())
            inputs, positions = tokens[:, None], (length[alive] + step)[:, None]
    drawn = drawn[:, : step + 1]
    return Drawn(drawn, None if logprobs is None else logprobs[:, : step + 1])


@contextmanager
def _evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Evaluation mode: a model that recomputes its activations while training keeps no cache."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _mask(model: PreTrainedModel, seen: Tensor, past: int, step: int) -> Tensor:
    """Which positions may be looked at. After the prompt in the shape that attention takes itself,
    so that nothing is made of it for each token."""
    ready = step > 0 and attends_by_sdpa(model)
    return seen[:, None, None, :past] if ready else seen[:, :past].long()


def _warpers(sampling: Sampling) -> LogitsProcessorList:
    """Temperature, then top_k, then top_p, by those of `transformers`."""
    warpers = LogitsProcessorList()
    if sampling.temperature not in (0, 1):
        warpers.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.temperature and sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.temperature and sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    return warpers


def _cache(model: PreTrainedModel, room: int) -> Cache:
    """A cache with `room` positions from the beginning."""
    count = len(DynamicCache(config=model.config.get_text_config(decoder=True)).layers)
    return Cache(layers=[_RoomyLayer(room) for _ in range(count)])


class _RoomyLayer(DynamicLayer):
    """Keys and values in memory of the final size: a new token is written, nothing is copied."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.length = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.all_keys, self.all_values = (
                new.new_empty(*new.shape[:2], self.room, new.shape[3])
                for new in (key_states, value_states)
            )
        end = self.length + key_states.shape[2]
        self.all_keys[:, :, self.length : end] = key_states
        self.all_values[:, :, self.length : end] = value_states
        self.length = end
        self.keys, self.values = self.all_keys[:, :, :end], self.all_values[:, :, :end]
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self.length

    def batch_select_indices(self, indices: Tensor) -> None:
        self.all_keys, self.all_values = self.all_keys[indices], self.all_values[indices]


@dataclass(slots=True)
class Responses:
    """Answers to B prompts. P prompt positions padded left, R response positions padded right."""

    prompt_ids: Tensor  # [B, P]
    prompt_mask: Tensor  # [B, P] 1 = real token
    response_ids: Tensor  # [B, R]
    response_mask: Tensor  # [B, R] 1 = real token, the stop token included
    ended: Tensor  # [B] whether a stop token was reached
    texts: list[str]
    logprobs: Tensor | None = None  # [B, R] nats, as seen while sampling, untempered
    learnt: Tensor | None = None  # [B, R] 1 = drawn by the policy, where tools wrote others

    @property
    def drawn_mask(self) -> Tensor:
        """[B, R] 1 = drawn by the policy."""
        return self.response_mask if self.learnt is None else self.response_mask * self.learnt

    @property
    def lengths(self) -> Tensor:
        """Tokens per response that the policy drew, the stop token included: [B]."""
        return self.drawn_mask.sum(1)


@torch.no_grad()
def generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    *,
    stop: Sequence[int],
    keep_logprobs: bool = False,
    watch: Watch | None = None,
) -> Responses:
    """One answer to each prompt (token ids), all in one batch.

    Draws from a generator of its own, seeded by `sampling`, token for token as `transformers`
    would with that seed; and by `transformers` itself where our loop does not know the model's
    cache, which sets the seed of torch's global generator. `keep_logprobs` keeps the
    log-probability of each drawn token as it was seen while sampling. `watch` is called after every
    token.
    """
    device = model.device
    pad_id = tokenizer.pad_token_id
    ids, mask = (t.to(device) for t in pad_left(prompts, pad_id))
    draw = decode if supports(model) else _by_transformers
    given: Any = {"pad_id": pad_id, "keep_logprobs": keep_logprobs, "watch": watch}
    drawn = draw(model, ids, mask, sampling, stop=stop, **given)
    real = _through_first_stop(drawn.ids, stop)
    width = int(real.sum(1).max())
    response, real = drawn.ids[:, :width], real[:, :width]
    response = torch.where(real, response, torch.full_like(response, pad_id))
    stops = torch.tensor(list(stop), device=device)
    result = Responses(
        prompt_ids=ids,
        prompt_mask=mask,
        response_ids=response,
        response_mask=real.long(),
        ended=(torch.isin(response, stops) & real).any(1),
        texts=[],
    )
    result.texts = [
        as_drawn(str(tokenizer.decode(row[keep], skip_special_tokens=True)), bool(ended))
        for row, keep, ended in zip(response, real, result.ended, strict=True)
    ]
    if drawn.logprobs is not None:
        picked = drawn.logprobs[:, :width]
        result.logprobs = torch.where(real, picked, torch.zeros_like(picked))
    return result


def _by_transformers(
    model: Any,
    ids: Tensor,
    mask: Tensor,
    sampling: Sampling,
    *,
    stop: Sequence[int],
    pad_id: int,
    keep_logprobs: bool,
    watch: Watch | None,
) -> Drawn:
    """`decode` for any model. `keep_logprobs` costs B × R × V floats here."""
    torch.manual_seed(sampling.seed)
    with _generation_config(model, _config(pad_id, sampling, stop, keep_logprobs)):
        # Under ZeRO 3 it would wait at every token for ranks that may draw nothing now.
        output = model.generate(
            input_ids=ids,
            attention_mask=mask,
            synced_gpus=False,
            stopping_criteria=StoppingCriteriaList(
                [] if watch is None else [_Watched(watch, ids.shape[1])]
            ),
        )
    drawn = output.sequences[:, ids.shape[1] :]
    if not keep_logprobs:
        return Drawn(drawn, None)
    logits = torch.stack(output.logits, dim=1).float()
    return Drawn(drawn, logits.log_softmax(-1).gather(-1, drawn.unsqueeze(-1)).squeeze(-1))


class _Watched(StoppingCriteria):
    """`watch` as `transformers` asks it, which shows the prompt too."""

    def __init__(self, watch: Watch, prompt: int) -> None:
        self._watch = watch
        self._prompt = prompt

    def __call__(self, input_ids: Tensor, scores: object, **kwargs: object) -> Tensor:
        over = self._watch(input_ids[:, self._prompt :])
        return torch.full((len(input_ids),), over, device=input_ids.device)


def _through_first_stop(ids: Tensor, stop: Sequence[int]) -> Tensor:
    """[B, R] -> bool [B, R]: True up to and including the first stop token.

    Found by position and not by comparing with the pad id, for a model may pad with its end token.
    """
    is_stop = torch.isin(ids, torch.tensor(list(stop), device=ids.device)).long()
    return (is_stop.cumsum(1) - is_stop) == 0


def _config(pad_id: int, sampling: Sampling, stop: Sequence[int], logits: bool) -> GenerationConfig:
    greedy = sampling.temperature == 0
    drawn = (
        {}
        if greedy
        else {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
        }
    )
    return GenerationConfig(
        max_new_tokens=sampling.max_new_tokens,
        do_sample=not greedy,
        eos_token_id=list(stop),
        pad_token_id=pad_id,
        return_dict_in_generate=True,
        output_logits=logits,
        **drawn,
    )


@contextmanager
def _generation_config(model: PreTrainedModel, config: GenerationConfig) -> Iterator[None]:
    """`config` and nothing else: `generate` fills fields left open from the model's own defaults,
    so a repetition penalty there would leak into the samples and not into the log-probabilities."""
    own = model.generation_config
    model.generation_config = config
    try:
        yield
    finally:
        model.generation_config = own
