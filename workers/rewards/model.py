"""A reward model as a source of rewards, with its own tokenizer."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import dispatch_model, infer_auto_device_map
from accelerate.utils import get_balanced_memory
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.pytorch_utils import Conv1D

from measures.messages import Messages
from workers import ranks
from workers.contract.events import Fault, RecipeError
from workers.contract.jobs import BFLOAT16, FLOAT16, FLOAT32, INT8, PRECISIONS
from workers.data.batches import Encoded, encode_pair, pad_right
from workers.models.loading import freeze, load_scorer, load_tokenizer, readable_length
from workers.rewards.ensemble import (
    EnsembleLayout,
    combine,
    disagreement,
    read_layout,
    standardise,
    to_raw,
)
from workers.rewards.source import RewardSource, Scores

# Cheaper number formats for scoring, and whether they still order answers alike.
#
# `lower` changes a frozen model in place:
#
#     float32             as it was trained and is judged
#     bfloat16, float16   weights and activations; the score head and its input stay float32, since
# a
#                         score rounded to eight bits ties answers that the model tells apart
#     int8                weights of the backbone's linear layers as 8-bit integers with one scale
# per
#                         output, inputs rounded to 8 bits with one scale per row as they come
#
# Source of int8: Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient
# Integer-Arithmetic-Only Inference", in its dynamic form (torch.ao's `quantize_dynamic`, which is
# deprecated in the installed torch, with one scale per output and per row instead of per tensor).

_HALF = {BFLOAT16: torch.bfloat16, FLOAT16: torch.float16}


def lower(model: PreTrainedModel, precision: str) -> PreTrainedModel:
    """The model in `precision`, changed in place. It must be frozen: there is no way back."""
    if precision == FLOAT32:
        return model
    if precision in _HALF:
        backbone = model.base_model
        backbone.to(_HALF[precision])
        backbone.register_forward_hook(_widen)
        return model
    if precision == INT8:
        return quantise(model, bits=8)
    raise ValueError(f"precision '{precision}' is none of {', '.join(PRECISIONS)}")


def _widen(module: nn.Module, arguments: Any, output: Any) -> Any:
    """The backbone's last states in float32 again, for the head."""
    if isinstance(output, Tensor):
        return output.float()
    for key, value in list(output.items()):
        if isinstance(value, Tensor) and value.is_floating_point():
            output[key] = value.float()
    return output


def quantise(model: PreTrainedModel, *, bits: int) -> PreTrainedModel:
    """Every linear layer of the backbone with integer weights of `bits` bits, in place."""
    for module in list(model.base_model.modules()):
        for name, layer in module.named_children():
            if isinstance(layer, nn.Linear | Conv1D):
                setattr(module, name, IntegerLinear(layer, bits=bits))
    return model


def device_map(model: PreTrainedModel, memory: Mapping[int, int]) -> dict[str, int]:
    """Where each module goes, by name: layers in their order over devices, about as many bytes on
    each, no layer torn apart. `memory`: bytes free on each device. Raises `RecipeError`
    (out_of_memory) where it does not fit on all of them together."""
    lists = [part for part in model.modules() if isinstance(part, nn.ModuleList)]
    layers = sorted({type(layer).__name__ for part in lists for layer in part})
    balanced = get_balanced_memory(model, dict(memory), no_split_module_classes=layers)
    most = {device: min(balanced[device], free) for device, free in memory.items()}
    found: dict[str, int] = infer_auto_device_map(
        model, most | {"cpu": 1 << 60}, no_split_module_classes=layers
    )
    if "cpu" in found.values():
        raise RecipeError(
            "out_of_memory",
            Fault.MACHINE,
            f"spread_reward: a reward model or judge of {_bytes(model) / 1e9:.1f} GB does not fit "
            f"into what {len(memory)} GPUs have free",
        )
    return found


def spread(model: PreTrainedModel) -> PreTrainedModel:
    """The frozen model, which lies in the CPU's memory, over all GPUs of this machine; only the
    first process scores, so the others leave it where it is. Raises `RecipeError` (too_few_gpus).

    Source: accelerate's big model inference (`infer_auto_device_map`, `dispatch_model`): layers
    follow each other from device to device, and one computes at a time.
    """
    count = torch.cuda.device_count()
    if count < 2:
        raise RecipeError(
            "too_few_gpus",
            Fault.MACHINE,
            f"spread_reward: needs two GPUs or more, and this machine has {count}",
        )
    if not ranks.is_first():
        return model
    free = {device: torch.cuda.mem_get_info(device)[0] for device in range(count)}
    placed: PreTrainedModel = dispatch_model(model, device_map(model, free))
    return placed


def _bytes(model: PreTrainedModel) -> int:
    held = [*model.parameters(), *model.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in held)


class IntegerLinear(nn.Module):
    """x·Wᵀ + b with integer weights [out, in] and inputs rounded per row as they come.

    Symmetric: W ≈ scale·Q with |Q| ≤ 2^(bits−1) − 1 and one scale per output; inputs always have 8
    bits. The products are summed as integers, so nothing but the two roundings is lost.
    """

    integers: Tensor
    scale: Tensor

    def __init__(self, layer: nn.Linear | Conv1D, *, bits: int) -> None:
        super().__init__()
        weight = layer.weight.detach().float()
        weight = weight.t() if isinstance(layer, Conv1D) else weight
        integers, scale = _rounded(weight, most=2 ** (bits - 1) - 1)
        self.register_buffer("integers", integers.t().contiguous())  # [in, out]
        self.register_buffer("scale", scale.squeeze(-1))  # [out]
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        integers, scale = _rounded(rows.float(), most=127)
        if integers.is_cuda:  # CUDA's integer product wants shapes of eights; float64 is as exact
            total = (integers.double() @ self.integers.double()).float()
        else:
            total = torch._int_mm(integers, self.integers).float()
        out = total * scale * self.scale
        if self.bias is not None:
            out = out + self.bias
        return out.to(x.dtype).reshape(*x.shape[:-1], -1)


def _rounded(values: Tensor, *, most: int) -> tuple[Tensor, Tensor]:
    """[R, C] -> integers [R, C] in ±most, scale [R, 1]; a row of zeros keeps scale 1."""
    largest = values.abs().amax(dim=-1, keepdim=True)
    scale = torch.where(largest > 0, largest / most, torch.ones_like(largest))
    return (values / scale).round().clamp(-most, most).to(torch.int8), scale


class ModelReward:
    """Scores text with a sequence classifier of one label, in batches of similar length."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "model",
        batch_size: int = 64,
        max_length: int | None = None,
        precision: str = FLOAT32,
        spread_out: bool = False,
    ) -> None:
        self.tokenizer = load_tokenizer(folder)
        place = torch.device("cpu") if spread_out else None
        model = lower(freeze(self._load(folder, place)), precision)
        self.model = spread(model) if spread_out else model
        self.max_length = max_length or readable_length(self.model, self.tokenizer)
        self._name = name
        self._batch_size = batch_size

    def _load(self, folder: Path, device: torch.device | None) -> PreTrainedModel:
        return load_scorer(folder, self.tokenizer, device=device)

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        return self.score_rows(self.encode(prompts, responses))

    def encode(
        self, prompts: Sequence[Messages], responses: Sequence[str]
    ) -> list[tuple[Encoded, ...]]:
        """Per text its ids: a row per distinct tokenizer, of which one model has one."""
        rows = encode_all(self.tokenizer, prompts, responses, max_length=self.max_length)
        return [(row,) for row in rows]

    def score_rows(self, texts: Sequence[tuple[Encoded, ...]]) -> Scores:
        """Scores of texts as `encode` left them."""
        rows = [row for (row,) in texts]
        cut = [row.truncated for row in rows]
        values = score_rows(self.model, self.tokenizer, rows, batch_size=self._batch_size)
        return Scores(values, {self._name: values}, sum(cut), cut=cut)

    @property
    def tokenizers(self) -> list[PreTrainedTokenizerBase]:
        """In the order of the rows of `encode`."""
        return [self.tokenizer]


def encode_all(
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Messages],
    responses: Sequence[str],
    *,
    max_length: int,
) -> list[Encoded]:
    return [
        encode_pair(tokenizer, prompt, response, max_length=max_length)
        for prompt, response in zip(prompts, responses, strict=True)
    ]


def score_rows(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Encoded],
    *,
    batch_size: int,
) -> list[float]:
    """One raw score per row, in order. Rows with equal tokens are read once."""
    return score_together([model], tokenizer, rows, batch_size=batch_size)[0]


@torch.no_grad()
def score_together(
    models: Sequence[PreTrainedModel],
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Encoded],
    *,
    batch_size: int,
) -> list[list[float]]:
    """M × n raw scores: each batch is padded once and read by every model. Rows with equal tokens
    are read once.

    On a CPU a row is padded to a length that depends on its own alone, since sums over other
    lengths round differently: its score is then the same bit by bit whatever is scored beside it,
    so what a cache remembers, or another order of batches gives, is what scoring it again gives.
    """
    distinct = sorted({tuple(row.ids) for row in rows}, key=lambda ids: (len(ids), ids))
    scores: list[dict[tuple[int, ...], float]] = [{} for _ in models]
    alone = all(model.device.type == "cpu" for model in models)
    most = min(readable_length(model, tokenizer) for model in models) if alone else 0
    for batch, length in batches_of(distinct, batch_size=batch_size, most=most):
        ids, mask = pad_right(batch, tokenizer.pad_token_id, length)
        for model, seen in zip(models, scores, strict=True):
            output = model(input_ids=ids.to(model.device), attention_mask=mask.to(model.device))
            seen.update(zip(batch, output.logits.squeeze(-1).float().tolist(), strict=True))
    return [[seen[tuple(row.ids)] for row in rows] for seen in scores]


def batches_of(
    rows: Sequence[tuple[int, ...]], *, batch_size: int, most: int
) -> Iterator[tuple[Sequence[tuple[int, ...]], int]]:
    """(rows, padded length) of every batch. rows: sorted by length. `most`: what the models can
    read; only rows of one padded length up to it share a batch. 0: each batch is padded to its
    longest row."""
    groups = [rows]
    if most:
        groups = [list(group) for _, group in groupby(rows, key=lambda r: padded(len(r), most))]
    for group in groups:
        for start in range(0, len(group), batch_size):
            batch = group[start : start + batch_size]
            longest = len(batch[-1])
            yield batch, padded(longest, most) if most else longest


def padded(length: int, most: int) -> int:
    """The next multiple of 16 tokens, and of 1/16 to 1/8 of a longer row's length; up to `most`,
    for a model may have no more positions."""
    step = max(16, 1 << max(0, (length - 1).bit_length() - 4))
    return max(length, min(-(-length // step) * step, most))


# Several reward models read as one, with their disagreement per answer.


class EnsembleReward:
    """Members that share a tokenizer read the same rows in the same batches, so a text is
    tokenised and padded once per distinct tokenizer.

    `parts` hold each member's raw scores as `<name>/<member>`; `values` are the combined scores on
    the average member's scale.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "model",
        batch_size: int = 64,
        max_length: int | None = None,
        precision: str = FLOAT32,
        spread_out: bool = False,
    ) -> None:
        self.layout: EnsembleLayout = read_layout(folder)
        self.members = [
            ModelReward(
                folder / member,
                name=member,
                batch_size=batch_size,
                max_length=max_length,
                precision=precision,
                spread_out=spread_out,
            )
            for member in self.layout.members
        ]
        self._name = name
        self._batch_size = batch_size
        self._groups = _by_tokenizer(self.members)

    @property
    def threshold(self) -> float | None:
        """The disagreement over which an answer is not trusted, in validation deviations."""
        return self.layout.threshold

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        return self.score_rows(self.encode(prompts, responses))

    def encode(
        self, prompts: Sequence[Messages], responses: Sequence[str]
    ) -> list[tuple[Encoded, ...]]:
        """Per text its ids: one row for each distinct tokenizer (and length) of the members."""
        readings = [
            encode_all(first.tokenizer, prompts, responses, max_length=first.max_length)
            for first in (self.members[group[0]] for group in self._groups)
        ]
        return list(zip(*readings, strict=True))

    def score_rows(self, texts: Sequence[tuple[Encoded, ...]]) -> Scores:
        """Scores of texts as `encode` left them."""
        raw = np.zeros((len(self.members), len(texts)))
        for place, group in enumerate(self._groups):
            raw[group] = score_together(
                [self.members[i].model for i in group],
                self.members[group[0]].tokenizer,
                [rows[place] for rows in texts],
                batch_size=self._batch_size,
            )
        cut = [any(row.truncated for row in rows) for rows in texts]
        standardised = standardise(raw, self.layout.scales)
        combined = combine(standardised, self.layout.aggregate, lam=self.layout.lam)
        return Scores(
            to_raw(combined, self.layout.scales).tolist(),
            {
                f"{self._name}/{member}": row.tolist()
                for member, row in zip(self.layout.members, raw, strict=True)
            },
            sum(cut),
            disagreement(standardised).tolist(),
            cut,
        )

    @property
    def tokenizers(self) -> list[PreTrainedTokenizerBase]:
        """In the order of the rows of `encode`."""
        return [self.members[group[0]].tokenizer for group in self._groups]


def threshold_of(source: RewardSource) -> float | None:
    """The disagreement an ensemble allows, also inside a cache or a sum; None of other sources."""
    threshold: float | None = getattr(source, "threshold", None)
    return threshold


def _by_tokenizer(members: Sequence[ModelReward]) -> list[list[int]]:
    """Indices of members for which a text is the same row of ids."""
    groups: dict[tuple[str, int], list[int]] = {}
    for index, member in enumerate(members):
        key = (tokenizer_sha256(member.tokenizer), member.max_length)
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def tokenizer_sha256(tokenizer: PreTrainedTokenizerBase) -> str:
    """Identity by what decides the ids: vocabulary, merges, normaliser, template, special tokens.

    A tokenizer without a Rust backend is told apart by its object: nothing is shared then.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    told = backend.to_str() if backend is not None else f"{type(tokenizer)}{id(tokenizer)}"
    special = sorted((key, str(value)) for key, value in tokenizer.special_tokens_map.items())
    text = "\0".join([told, str(tokenizer.chat_template), repr(special)])
    return hashlib.sha256(text.encode()).hexdigest()
