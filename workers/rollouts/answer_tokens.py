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

from workers.data.batches import Encoded, pad_right, rectangles, row_tokens, shared_rows
from workers.layouts.gathered import is_split
from workers.models.forward import answer_logits, answer_states, in_pieces, is_plain, sharing_rows
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
    """Texts as rectangles: per rectangle what the model is called with and labels, all [b, L];
    `counts` [N] answer tokens by text, in the rectangles' order."""

    rectangles: list[tuple[dict[str, Tensor], Tensor]]
    counts: Tensor

    def to(self, device: torch.device) -> "Batch":
        moved = [
            ({name: tensor.to(device) for name, tensor in inputs.items()}, labels.to(device))
            for inputs, labels in self.rectangles
        ]
        return Batch(moved, self.counts.to(device))


def batch_of(
    texts: Sequence[Encoded],
    pad_id: int,
    grouped: Callable[[Sequence[int]], list[list[int]]] = rectangles,
    *,
    row_length: int | None = None,
) -> tuple[Batch, list[int]]:
    """The texts in rectangles, as `grouped` puts them together by their lengths, and at which row
    of the result each of them comes. `row_length`: several texts share a row of at most so many
    tokens, where that makes fewer tokens with their padding."""
    lengths = [len(text.ids) for text in texts]
    groups = [[[i] for i in group] for group in grouped(lengths)]
    if row_length is not None:
        rows = shared_rows(lengths, row_length)
        if row_tokens(rows, lengths) < sum(row_tokens(group, lengths) for group in groups):
            groups = [rows]
    built = [_rectangle([[texts[i] for i in row] for row in group], pad_id) for group in groups]
    order = [i for group in groups for row in group for i in row]
    place = {i: row for row, i in enumerate(order)}
    counts = torch.tensor([answer_length(texts[i]) for i in order])
    return Batch(built, counts), [place[i] for i in range(len(texts))]


def _rectangle(rows: list[list[Encoded]], pad_id: int) -> tuple[dict[str, Tensor], Tensor]:
    """What a model is called with and the labels, of rows that hold one text or more."""
    ids, mask = pad_right([[token for text in row for token in text.ids] for row in rows], pad_id)
    labels, _ = pad_right(
        [[label for text in row for label in _labels(text)] for row in rows], IGNORED
    )
    if all(len(row) == 1 for row in rows):
        return {"input_ids": ids, "attention_mask": mask}, labels
    # What ends a row is read as one more text, which nobody learns.
    filled = [[len(text.ids) for text in row] for row in rows]
    positions = [
        [place for length in [*lengths, ids.shape[1] - sum(lengths)] for place in range(length)]
        for lengths in filled
    ]
    return sharing_rows(ids, torch.tensor(positions)), labels


def _labels(text: Encoded) -> list[int]:
    start = answer_start(text)
    labels = [IGNORED] * start + text.ids[start:]
    for first, end in text.others:
        labels[first:end] = [IGNORED] * (end - first)
    return labels


def answer_start(text: Encoded) -> int:
    """Where the answer begins; the very first token of a text has nothing before it to tell it."""
    return max(1, text.prompt_length)


def answer_length(text: Encoded) -> int:
    """Tokens that are learnt."""
    others = sum(end - start for start, end in text.others)
    return len(text.ids) - answer_start(text) - others


def tokens_of_answers(texts: Sequence[Encoded]) -> int:
    """Tokens of the texts' answers as they were encoded, however they are labelled afterwards; the
    first token of a text is none that could be learnt."""
    return sum(text.response_length - (text.prompt_length == 0) for text in texts)


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
    model: Any, inputs: dict[str, Tensor], labels: Tensor, chunk: int | None
) -> tuple[Tensor, ...]:
    """Four of [K], in reading order."""
    targets = labels[:, 1:]
    wanted = targets[targets != IGNORED]
    keep = nn.functional.pad(targets != IGNORED, (0, 1))  # the position before each answer token
    if chunk is None or len(wanted) <= chunk or not is_plain(getattr(model, "module", model)):
        return _of_logits(answer_logits(model, inputs, keep), wanted)
    layer = model.get_output_embeddings()

    def piece(states: Tensor, tokens: Tensor) -> tuple[Tensor, ...]:
        return _of_logits(layer(states), tokens)

    states = answer_states(model, inputs, keep)
    return in_pieces(piece, states, wanted, chunk=chunk)


def _of_logits(logits: Tensor, wanted: Tensor) -> tuple[Tensor, ...]:
    """[K, V] and the K tokens that came: four of [K]."""
    logits = logits.float()
    log_probs, entropy = logprobs_and_entropy(logits, wanted)
    with torch.no_grad():
        return log_probs, entropy, logits.mean(-1), logits.argmax(-1) == wanted
