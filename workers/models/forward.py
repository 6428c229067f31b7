"""The output layer, on chosen states only and in chunks.

Logits are the largest tensor of a small model's forward pass: tokens × vocabulary. Nobody needs
them, only the log-probability of one token per row and perhaps the entropy, so they are made for a
chunk of states, read, and thrown away; the backward pass makes them again (Chen et al. 2016,
"Training Deep Nets with Sublinear Memory Cost").
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    DynamicCache,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.cache_utils import DynamicLayer

from workers.layouts.gathered import is_split
from workers.models.invariants import check_distinct, check_unchanged
from workers.models.loading import freeze, weights_sha256
from workers.models.lora import base_sha256, body_of
from workers.rl.losses import logprobs_and_entropy, selective_logprobs

_plain: "weakref.WeakKeyDictionary[nn.Module, bool]" = weakref.WeakKeyDictionary()


@contextmanager
def projecting(model: PreTrainedModel, pick: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Inside, the output layer gets `pick(states)`, [K, width], in the place of all [B, L, width].

    The model's logits are then [1, K, V], with whatever the model does to logits after the layer.
    """
    hook = model.get_output_embeddings().register_forward_pre_hook(
        lambda _module, args: (pick(args[0]).unsqueeze(0), *args[1:])
    )
    try:
        yield
    finally:
        hook.remove()


@torch.no_grad()
def is_plain(model: PreTrainedModel) -> bool:
    """Whether the logits are just what the output layer gives: no scale, no soft cap, no cut.

    Asked once per model, by one token with states large enough for any treatment to show. A model
    that treats its logits must project through its own forward pass, in one piece.
    """
    if model not in _plain:
        head = model.get_output_embeddings()
        seen: list[Tensor] = []

        def pick(states: Tensor) -> Tensor:
            generator = torch.Generator().manual_seed(0)
            large = 10 * torch.randn(1, states.shape[-1], generator=generator)
            seen.append(large.to(states.device, states.dtype))
            return seen[0]

        token = torch.zeros(1, 1, dtype=torch.long, device=head.weight.device)
        with projecting(model, pick):
            logits = model(input_ids=token, use_cache=False).logits[0]
        own = head(seen[0])
        _plain[model] = own.shape == logits.shape and torch.allclose(own, logits)
    return _plain[model]


def look(
    logits_of: Callable[[Tensor], Tensor],
    states: Tensor,
    tokens: Tensor,
    *,
    temperature: float,
    chunk: int | None,
    with_entropy: bool,
    entropy_gradient: bool,
) -> tuple[Tensor, Tensor | None]:
    """Log-probability of `tokens` [K] after `states` [K, width], and the entropy there: [K] nats.

    In pieces of `chunk` states (None: all at once), so that no more than chunk × V logits exist.
    """

    def piece(states: Tensor, tokens: Tensor) -> tuple[Tensor, ...]:
        logits = logits_of(states).float()
        if not with_entropy:
            return (selective_logprobs(logits, tokens, temperature=temperature),)
        return logprobs_and_entropy(
            logits, tokens, temperature=temperature, entropy_gradient=entropy_gradient
        )

    if chunk is None or len(states) <= chunk:
        found = piece(states, tokens)
    else:
        found = in_pieces(piece, states, tokens, chunk=chunk)
    return found[0], found[1] if with_entropy else None


def in_pieces(
    piece: Callable[[Tensor, Tensor], tuple[Tensor, ...]],
    states: Tensor,
    tokens: Tensor,
    *,
    chunk: int,
) -> tuple[Tensor, ...]:
    """What `piece` says of so many states [K, width] and tokens [K] at a time: each [K]. What it
    computes on the way is thrown away, and computed again in the backward pass."""
    pieces = [
        checkpoint(piece, *pair, use_reentrant=False, preserve_rng_state=False)
        if torch.is_grad_enabled()
        else piece(*pair)
        for pair in zip(states.split(chunk), tokens.split(chunk), strict=True)
    ]
    return tuple(torch.cat(parts) for parts in zip(*pieces, strict=True))


# Rows laid end to end: a pass without padding, where each row attends to itself alone.
#
# On a processor a pass costs its tokens and a fixed price, so one pass over all rows beats several
# rectangles that pad little (docs/speed.md). Accelerators keep rectangles: there a row is a kernel
# launch in every layer, and what that costs was not measured.

BY_ROWS = "by_rows"  # the name of that attention among those of `transformers`
_SDPA = "sdpa"
_packs: "weakref.WeakKeyDictionary[nn.Module, bool]" = weakref.WeakKeyDictionary()


def attend_by_rows(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    row_lengths: list[int] | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """The attention of `transformers` called sdpa, for each of the rows by itself. query, key,
    value [1, heads, T, D], T the sum of `row_lengths`. Without these it is sdpa itself, so a model
    may keep it: what is recomputed in a backward pass is then attended to in the same way."""
    sdpa = AttentionInterface()[_SDPA]
    if row_lengths is None:
        return sdpa(module, query, key, value, attention_mask, **options)
    rows = zip(*(each.split(row_lengths, dim=2) for each in (query, key, value)), strict=True)
    return torch.cat([sdpa(module, *row, None, **options)[0] for row in rows], dim=1), None


AttentionInterface.register(BY_ROWS, attend_by_rows)
AttentionMaskInterface.register(BY_ROWS, AttentionMaskInterface()[_SDPA])


def attends_by_sdpa(model: PreTrainedModel) -> bool:
    return model.config._attn_implementation in (_SDPA, BY_ROWS)


def sees_every_position(config: PretrainedConfig) -> bool:
    """Whether a token sees all before it: no window, and no state of another kind."""
    cache = DynamicCache(config=config.get_text_config(decoder=True))
    return all(type(layer) is DynamicLayer for layer in cache.layers)


def can_pack(model: PreTrainedModel) -> bool:
    """Whether `model` reads rows laid end to end as it reads each alone, and gains by it. Found out
    once per model, by two short rows; from then on it attends by rows where rows are named. A model
    that something else wraps (DeepSpeed's engine) keeps rectangles."""
    if not isinstance(model, PreTrainedModel | PeftModel) or not attends_by_sdpa(model):
        return False
    if model not in _packs:
        fits = model.device.type == "cpu" and sees_every_position(model.config)
        if fits:
            model.set_attn_implementation(BY_ROWS)
            fits = _reads_alike(model, _end_to_end)
            if not fits:
                model.set_attn_implementation(_SDPA)
        _packs[model] = fits
    return _packs[model]


@torch.no_grad()
def _reads_alike(
    model: PreTrainedModel, joined: Callable[[Tensor, list[int]], dict[str, Any]]
) -> bool:
    """Whether two short rows, `joined` by their ids [1, T] and lengths, give what each gives."""
    tokens, lengths = torch.tensor([[0, 1, 2, 1, 0]], device=model.device), [3, 2]
    with torch.autocast(model.device.type, enabled=False):
        alone = torch.cat([_outputs(model, input_ids=row) for row in tokens.split(lengths, 1)], 1)
        try:
            together = _outputs(model, **joined(tokens, lengths))
            return torch.allclose(together, alone, rtol=1e-4, atol=1e-5)
        except (
            AttributeError,
            IndexError,
            RuntimeError,
            TypeError,
            ValueError,
        ):  # it takes no such arguments
            return False


def _outputs(model: PreTrainedModel, **inputs: Any) -> Tensor:
    output = model(use_cache=False, **inputs)
    return output.logits if "logits" in output else output.last_hidden_state


def _end_to_end(ids: Tensor, lengths: list[int]) -> dict[str, Any]:
    """What a model is called with: ids [1, T] of rows that are so long."""
    return sharing_rows(ids, _positions(ids, lengths)) | {
        # A mask in attention's own shape is passed on as it is, and by rows nobody reads it: none
        # of T × T is made.
        "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool, device=ids.device),
        "row_lengths": lengths,
    }


def _positions(ids: Tensor, lengths: list[int]) -> Tensor:
    """[1, T]: from 0 on in each of rows that are so long."""
    return torch.cat([torch.arange(length, device=ids.device) for length in lengths]).unsqueeze(0)


# Texts that share a row [b, L] and are told apart by their positions alone: without a mask of
# padding `transformers` lets a token see those before it up to where positions begin at 0 again,
# with the attentions sdpa and eager, on any device. The mask costs L × L, so rows are kept short.


def sharing_rows(ids: Tensor, positions: Tensor) -> dict[str, Tensor]:
    """What a model is called with, both [b, L]."""
    return {"input_ids": ids, "position_ids": positions}


def can_share_rows(model: PreTrainedModel) -> bool:
    """Whether `model` reads texts that share a row as it reads each alone, by two short ones."""
    return _reads_alike(model, lambda ids, lengths: sharing_rows(ids, _positions(ids, lengths)))


# Prompts and responses as the trunk reads them: one run of real tokens per row.
#
# A batch comes with its prompts padded on the left and its responses on the right. Read like that,
# every row is as wide as the longest prompt and the longest response together, and needs a mask
# and positions of its own. Here each row is pushed to the left, so that the batch is only as wide
# as its longest row, all padding lies after the last real token, where a causal model cannot see
# it, and positions count from 0 by themselves; or rows lie end to end, and there is no padding.
# The last token of a row predicts nothing and is left out.


@dataclass(frozen=True, slots=True)
class Aligned:
    """B rows of L positions, or all in one of T. K real response tokens in reading order."""

    ids: Tensor  # [B, L] or [1, T]
    rows: Tensor  # [K] row of the state before each response token
    columns: Tensor  # [K] and its position
    real: Tensor  # bool [B, R]: which of the response's places the K tokens fill
    lengths: list[int] | None = None  # of the rows that lie end to end

    @property
    def inputs(self) -> dict[str, Any]:
        """What a model is called with."""
        return (
            {"input_ids": self.ids} if self.lengths is None else _end_to_end(self.ids, self.lengths)
        )

    def at_states(self, states: Tensor) -> Tensor:
        """The states before each real response token: [B, L, width] -> [K, width]."""
        return states[self.rows, self.columns]

    def spread(self, values: Tensor) -> Tensor:
        """[K, …] -> [B, R, …], 0 under the padding."""
        places = self.real.nonzero(as_tuple=True)
        spread = values.new_zeros(*self.real.shape, *values.shape[1:])
        return spread.index_put(places, values)


def align(
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    response_ids: Tensor,
    response_mask: Tensor,
    *,
    packed: bool = False,
) -> Aligned:
    """prompt_* [B, P], response_* [B, R]; 1 in a mask is a real token, and each row has some.
    `packed`: end to end."""
    ids = torch.cat([prompt_ids, response_ids], dim=1)
    mask = torch.cat([prompt_mask, response_mask], dim=1).bool()
    first = mask.to(torch.uint8).argsort(dim=1, descending=True, stable=True)  # real tokens first
    ids = ids.gather(1, first)
    length = mask.sum(1, keepdim=True)
    width = int(length.max()) - 1
    ids = ids[:, :width]
    past = torch.arange(width, device=ids.device) >= length - int(packed)
    real = response_mask.bool()
    rows, offsets = real.nonzero(as_tuple=True)
    columns = prompt_mask.sum(1)[rows] - 1 + offsets
    if packed:
        lengths = length.squeeze(1) - 1
        start = lengths.cumsum(0) - lengths
        return Aligned(
            ids[~past].unsqueeze(0), rows * 0, start[rows] + columns, real, lengths.tolist()
        )
    return Aligned(
        # What lies behind a row is never looked at; its first token is as good as any, and unlike
        # the pad token it moves no model to ask for a mask.
        ids=torch.where(past, ids[:, :1], ids),
        rows=rows,
        columns=columns,
        real=real,
    )


def response_states(
    trunk: PreTrainedModel,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    response_ids: Tensor,
    response_mask: Tensor,
) -> Tensor:
    """Last states of a trunk without an output layer, before each response token: [B, R, width],
    0 under the padding."""
    sequences = (prompt_ids, prompt_mask, response_ids, response_mask)
    aligned = align(*sequences, packed=can_pack(trunk))
    states = trunk(**aligned.inputs, use_cache=False).last_hidden_state
    return aligned.spread(aligned.at_states(states))


# What a policy thinks of given responses: log-probabilities, entropy, the states behind them.

LOGITS_CHUNK = 1024  # tokens whose logits exist at once


@dataclass(slots=True)
class ResponseOutputs:
    """Per response token; 0 under the padding."""

    logprobs: Tensor  # [B, R] nats, tempered
    entropy: Tensor | None  # [B, R] nats per token, tempered
    hidden: Tensor | None  # [B, R, width] last state before each token is drawn


def score_responses(
    model: PreTrainedModel,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    response_ids: Tensor,
    response_mask: Tensor,
    *,
    temperature: float,
    with_entropy: bool = False,
    entropy_gradient: bool = False,
    with_hidden: bool = False,
    logits_chunk: int | None = LOGITS_CHUNK,
) -> ResponseOutputs:
    """One forward pass over prompt (padded left) and response (padded right).

    Rows are read without their padding, so padding moves nothing, on models with absolute
    positions too. The vocabulary is projected at real response tokens only, `logits_chunk` of them
    at a time, on the states that the model itself gives its output layer. None: all at once and
    within the model's own pass, for weights that are there during it only.
    """
    sequences = (prompt_ids, prompt_mask, response_ids, response_mask)
    aligned = align(*sequences, packed=can_pack(model))
    captured: list[Tensor] = []
    plain = logits_chunk is not None and is_plain(model)

    def pick(states: Tensor) -> Tensor:
        captured.append(aligned.at_states(states))
        return captured[0][:1] if plain else captured[0]

    with projecting(model, pick):
        logits = model(**aligned.inputs, use_cache=False).logits.squeeze(0)
    states = captured[0]
    logprobs, entropy = look(
        model.get_output_embeddings() if plain else lambda _states: logits,
        states,
        response_ids[aligned.real],
        temperature=temperature,
        chunk=logits_chunk if plain else None,
        with_entropy=with_entropy,
        entropy_gradient=entropy_gradient,
    )
    return ResponseOutputs(
        aligned.spread(logprobs),
        None if entropy is None else aligned.spread(entropy),
        aligned.spread(states) if with_hidden else None,
    )


def answer_logits(model: PreTrainedModel, inputs: dict[str, Tensor], keep: Tensor) -> Tensor:
    """Logits at the positions where `keep` is true, and nowhere else: [K, V].

    `inputs` of the model, keep: [B, L]; the K rows come in reading order. The last states are
    thinned out right before the output layer, so the model's own treatment of logits (scaling,
    soft caps) still applies, and prompts and padding cost no projection on the vocabulary.
    """
    with projecting(model, lambda states: states[keep]):
        output = model(**inputs, use_cache=False)
    return output.logits.squeeze(0)


def answer_states(model: PreTrainedModel, inputs: dict[str, Tensor], keep: Tensor) -> Tensor:
    """The states that `answer_logits` projects, [K, width], of a model that `is_plain`."""
    seen: list[Tensor] = []

    def pick(states: Tensor) -> Tensor:
        seen.append(states[keep])
        return seen[0][:1]

    with projecting(model, pick):
        model(**inputs, use_cache=False)
    return seen[0]


# The model that a policy is compared with: frozen, known by its hash, never the policy itself. It
# is either a model of its own, or the policy's own weights with its low-rank adapters switched off,
# which costs no second copy: adapters leave the weights below them untouched.


@dataclass
class Reference:
    """`model` alone, or below the adapters of `adapted`."""

    model: PreTrainedModel
    adapted: PeftModel | None = None
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        self.sha256 = self._hash()

    @classmethod
    def frozen(cls, model: PreTrainedModel, *, policy: torch.nn.Module) -> "Reference":
        """A copy of its own. Raises `RecipeError` where it shares memory with the policy."""
        check_distinct(policy, freeze(model))
        return cls(model)

    @classmethod
    def below_adapters(cls, policy: PeftModel) -> "Reference":
        return cls(body_of(policy), policy)

    @contextmanager
    def weights(self) -> Iterator[Any]:
        """The model to ask. Inside, a policy that shares the weights answers as the reference."""
        if self.adapted is None:
            yield self.model
            return
        with self.adapted.disable_adapter():
            # Weights that are split come together where the outermost model is called.
            yield self.adapted if is_split(self.adapted) else self.model

    @torch.no_grad()
    def logprobs(
        self,
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        response_ids: Tensor,
        response_mask: Tensor,
        *,
        temperature: float,
    ) -> Tensor:
        """log π_ref of given responses, shapes as in `score_responses`: [B, R], nats."""
        sequences = (prompt_ids, prompt_mask, response_ids, response_mask)
        with self.weights() as model:
            return score_responses(model, *sequences, temperature=temperature).logprobs

    def check(self) -> None:
        """Raises `RecipeError` (contract_reference_changed) when a weight has moved."""
        check_unchanged(self._hash(), self.sha256)

    def _hash(self) -> str:
        return weights_sha256(self.model) if self.adapted is None else base_sha256(self.adapted)
