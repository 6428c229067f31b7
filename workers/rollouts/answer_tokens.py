"""What a model thinks of the answers of a batch, token by token, for losses that train on it.

N texts, T tokens of the longest answer, K answer tokens of all texts, V the vocabulary. Texts are
read in rectangles of similar length, and only the positions before answer tokens meet the output
layer: prompts and padding cost no projection on the vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from workers.data.batches import Encoded, pad_right, rectangles
from workers.layouts.gathered import is_split
from workers.models.forward import answer_logits, answer_states, in_pieces, is_plain
from workers.rl.losses import logprobs_and_entropy

IGNORED = -100  # the label that losses skip


@dataclass(slots=True)
class AnswerTokens:
    """Per answer token, from the first column on, 0 after the last. The names are TRL's, whose
    losses read this in place of a model's answer."""

    log_probs: Tensor  # [N, T] nats
    entropy: Tensor  # [N, T] nats, no gradient
    mean_logits: Tensor  # [N, T] mean over the vocabulary, no gradient
    is_top1: Tensor  # [N, T] bool: the likeliest token
    label_mask: Tensor  # [N, T] bool: an answer token

    def rows(self, places: Tensor) -> "AnswerTokens":
        """The texts at `places`, any of them as often as it is named."""
        return AnswerTokens(*(getattr(self, f.name)[places] for f in fields(self)))


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts as rectangles: per rectangle ids, mask and labels [b, L], longest first; `counts` [N]
    answer tokens by text, in the rectangles' order."""

    rectangles: list[tuple[Tensor, Tensor, Tensor]]
    counts: Tensor

    def to(self, device: torch.device) -> "Batch":
        moved = [tuple(t.to(device) for t in rectangle) for rectangle in self.rectangles]
        return Batch(moved, self.counts.to(device))  # type: ignore[arg-type] # of a transformers model


def batch_of(
    texts: Sequence[Encoded],
    pad_id: int,
    grouped: Callable[[Sequence[int]], list[list[int]]] = rectangles,
) -> tuple[Batch, list[int]]:
    """The texts in rectangles, as `grouped` puts them together by their lengths, and at which row
    of the result each of them comes."""
    groups = grouped([len(text.ids) for text in texts])
    built, counts = [], []
    for group in groups:
        ids, mask = pad_right([texts[i].ids for i in group], pad_id)
        labels = torch.where(mask.bool(), ids, IGNORED)
        for label, i in zip(labels, group, strict=True):
            label[: answer_start(texts[i])] = IGNORED
            for start, end in texts[i].others:
                label[start:end] = IGNORED
        built.append((ids, mask, labels))
        counts += [answer_length(texts[i]) for i in group]
    place = {i: row for row, i in enumerate(i for group in groups for i in group)}
    return Batch(built, torch.tensor(counts)), [place[i] for i in range(len(texts))]


def answer_start(text: Encoded) -> int:
    """Where the answer begins; the very first token of a text has nothing before it to tell it."""
    return max(1, text.prompt_length)


def answer_length(text: Encoded) -> int:
    """Tokens that are learnt."""
    others = sum(end - start for start, end in text.others)
    return len(text.ids) - answer_start(text) - others


def with_output_layer(model: nn.Module) -> nn.Module:
    """The model as a trainer passes it, or what distributed training has wrapped: the wrapper must
    be called, but only the model inside knows its output layer."""
    if not hasattr(model, "get_output_embeddings"):
        model.get_output_embeddings = model.module.get_output_embeddings  # type: ignore[union-attr] # of a transformers model
    return model


def answer_tokens(model: nn.Module, batch: Batch, *, chunk: int | None = None) -> AnswerTokens:
    """`AnswerTokens` of a batch, rows in the batch's order; gradients flow to `log_probs`.

    `chunk` is how many tokens' logits exist at once, for accelerators; all K × V of a rectangle
    without it, and where the weights are split over ranks, which are there in one pass only.
    """
    chunk = None if chunk is None or is_split(model) else chunk
    flat = [_of_rectangle(model, *rectangle, chunk) for rectangle in batch.rectangles]
    columns = torch.arange(int(batch.counts.max()), device=batch.counts.device)
    real = columns < batch.counts.unsqueeze(1)
    joined = [torch.cat(parts) for parts in zip(*flat, strict=True)]
    log_probs, entropy, mean_logits, is_top1 = (
        x.new_zeros(real.shape).masked_scatter(real, x) for x in joined
    )
    return AnswerTokens(log_probs, entropy, mean_logits, is_top1, real)


def _of_rectangle(
    model: Any, ids: Tensor, mask: Tensor, labels: Tensor, chunk: int | None
) -> tuple[Tensor, ...]:
    """Four of [K], in reading order."""
    targets = labels[:, 1:]
    wanted = targets[targets != IGNORED]
    keep = nn.functional.pad(targets != IGNORED, (0, 1))  # the position before each answer token
    if chunk is None or len(wanted) <= chunk or not is_plain(getattr(model, "module", model)):
        return _of_logits(answer_logits(model, ids, mask, keep), wanted)
    layer = model.get_output_embeddings()

    def piece(states: Tensor, tokens: Tensor) -> tuple[Tensor, ...]:
        return _of_logits(layer(states), tokens)

    states = answer_states(model, ids, mask, keep)
    return in_pieces(piece, states, wanted, chunk=chunk)


def _of_logits(logits: Tensor, wanted: Tensor) -> tuple[Tensor, ...]:
    """[K, V] and the K tokens that came: four of [K]."""
    logits = logits.float()
    log_probs, entropy = logprobs_and_entropy(logits, wanted)
    with torch.no_grad():
        return log_probs, entropy, logits.mean(-1), logits.argmax(-1) == wanted
