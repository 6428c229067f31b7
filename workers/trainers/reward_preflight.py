"""What a reward run will do, counted and timed before it does it."""

import time
from collections.abc import Sequence
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn

from workers.config.training import RewardSettings
from workers.data.token_budget import padded_tokens, parts_under
from workers.trainers.reward_data import EncodedPair, PairData
from workers.trainers.reward_parts import Part
from workers.trainers.reward_trainer import StepCollator

PROBED_PAIRS = 8  # on a processor; an accelerator is timed on a whole step
FORWARD_SHARE = 1 / 3  # of a step's time: a backward pass costs about two forward passes
MB = 1e6
LIKELY_DUPLICATES = 0.01  # share of held-out pairs among the training pairs worth a warning


def preflight(
    model: nn.Module, data: PairData, parts: Sequence[Part], settings: RewardSettings, pad_id: int
) -> dict[str, Any]:
    """Rows, truncation, ties, duplicates; steps, seconds and memory of the whole run.

    Seconds come from one timed step on pairs of median length, and memory from what that step keeps
    for its backward pass, scaled to the largest part: both are estimates, good to a factor of two.
    """
    counted = count(data, settings)
    steps = [part_steps(len(part.rows), settings) for part in parts]
    probe = _probe(model, data.train, settings, pad_id)
    tokens = _epoch_tokens(data.train, settings)
    seconds = 0.0
    for part, part_step_count in zip(parts, steps, strict=True):
        share = len(part.rows) / len(data.train)
        passes = part_step_count / max(1, ceil(len(part.rows) / settings.batch_size))
        evaluations = 1 + ceil(part_step_count / settings.eval_every)
        watched = min((_epoch_tokens(s, settings) for s in data.held_out.values() if s), default=0)
        everything = sum(_epoch_tokens(s, settings) for s in data.splits.values() if s)
        seconds += probe["seconds_per_token"] * (
            tokens * share * passes + FORWARD_SHARE * (evaluations * watched + everything)
        )
    if settings.max_seconds is not None:
        seconds = min(seconds, settings.max_seconds)
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    held = sum(p.numel() * p.element_size() for p in model.parameters())
    return counted | {
        "models": len(parts),
        "steps": sum(steps),
        "seconds": float(f"{seconds:.2g}"),
        "tokens_per_pass": tokens,
        # Gradients and Adam's two moments, in float32, beside the weights.
        "memory_mb": round((held + 12 * trainable + probe["activation_bytes"]) / MB, 1),
        "parameters": sum(p.numel() for p in model.parameters()),
        "trainable_parameters": trainable,
    }


def part_steps(rows: int, settings: RewardSettings) -> int:
    """Optimizer steps of one training, as the library counts them."""
    steps = ceil(ceil(rows / settings.batch_size) * settings.epochs)
    return settings.max_steps or max(1, steps)


def count(data: PairData, settings: RewardSettings) -> dict[str, Any]:
    """What the rows say by themselves."""
    overlong = [pair for pair in data.train if pair.cut]
    dropped = data.left_out.get("overlong", 0)
    return {
        "rows": {split: len(pairs) for split, pairs in data.splits.items()},
        "pairs_truncated": len(overlong),
        "tokens_cut_mean": round(sum(p.cut for p in overlong) / len(overlong), 1)
        if overlong
        else 0.0,
        "tokens_cut_most": max((p.cut for p in overlong), default=0),
        "pairs_trl_would_drop": len(overlong) + dropped,
        "pairs_dropped_as_overlong": dropped,
        "pairs_of_weight_zero": data.left_out.get("zero_weight", 0),
        "ties": sum(p.row.confidence == 0.5 for p in data.train),
        "pairs_alike_after_truncation": sum(p.chosen.ids == p.rejected.ids for p in data.train),
        "held_out_also_in_train": duplicates(data),
    }


def duplicates(data: PairData) -> dict[str, int]:
    """By split: held-out pairs that are training pairs too, whatever the order of the answers."""
    seen = {_key(pair) for pair in data.train}
    return {s: sum(_key(pair) in seen for pair in pairs) for s, pairs in data.held_out.items()}


def warnings_of(found: dict[str, Any]) -> list[str]:
    """What a person should know before the run, one sentence each."""
    rows = found["rows"]
    told = []
    if found["pairs_truncated"]:
        told.append(
            f"{found['pairs_truncated']} of {rows['train']} training pairs are longer than "
            f"max_length and are cut, by {found['tokens_cut_mean']} tokens on average and "
            f"{found['tokens_cut_most']} at most."
        )
    if found["pairs_dropped_as_overlong"]:
        told.append(
            f"{found['pairs_dropped_as_overlong']} training pairs are longer than max_length and "
            "are left out."
        )
    if found["pairs_of_weight_zero"]:
        told.append(f"{found['pairs_of_weight_zero']} training pairs weigh nothing: left out.")
    if found["pairs_alike_after_truncation"]:
        told.append(
            f"{found['pairs_alike_after_truncation']} training pairs hold the same tokens twice "
            "and teach nothing."
        )
    for split, number in found["held_out_also_in_train"].items():
        if number > LIKELY_DUPLICATES * rows[split]:
            told.append(f"{number} of {rows[split]} pairs of '{split}' are training pairs too.")
    return told


def _key(pair: EncodedPair) -> tuple[str, frozenset[str]]:
    answers = frozenset(" ".join(text.split()) for text in (pair.row.chosen, pair.row.rejected))
    return repr(pair.row.prompt), answers


def _epoch_tokens(pairs: Sequence[EncodedPair], settings: RewardSettings) -> int:
    """Tokens of one pass, padding included: pairs of similar length share a step."""
    ordered = sorted(pairs, key=lambda pair: pair.longest)
    size = settings.batch_size
    return sum(
        padded_tokens([n for pair in ordered[start : start + size] for n in pair.lengths])
        for start in range(0, len(ordered), size)
    )


def _probe(
    model: nn.Module, pairs: Sequence[EncodedPair], settings: RewardSettings, pad_id: int
) -> dict[str, float]:
    """Seconds per padded token of a step, and bytes that the largest part keeps for its backward
    pass. Leaves no gradient behind."""
    device = next(model.parameters()).device
    ordered = sorted(pairs, key=lambda pair: pair.longest)
    size = settings.batch_size if device.type == "cuda" else PROBED_PAIRS
    size = min(size, settings.batch_size, len(ordered))
    middle = (len(ordered) - size) // 2
    parts = StepCollator(settings, pad_id)(ordered[middle : middle + size])
    tokens = sum(ids.numel() for part in parts for ids, _ in part["rectangles"])
    model.train()
    kept = 0

    def pack(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    seconds = 0.0
    for attempt in range(2):  # the first one warms up, and is counted instead of timed
        hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
        started = time.perf_counter()
        for part in parts:
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                scores = torch.cat(
                    [
                        _forward(
                            model, ids.to(device), mask.to(device), hooks if not attempt else None
                        )
                        for ids, mask in part["rectangles"]
                    ]
                )
                loss = scores.float().square().mean()
            loss.backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started
    model.zero_grad(set_to_none=True)
    longest = ordered[-settings.batch_size :]
    largest = max(
        padded_tokens([n for i in part for n in longest[i].lengths])
        for part in parts_under(
            [pair.lengths for pair in longest],
            budget=settings.max_tokens_per_batch,
            at_least=settings.gradient_accumulation,
        )
    )
    return {
        "seconds_per_token": seconds / tokens,
        "activation_bytes": kept * largest / tokens,
    }


def _forward(model: nn.Module, ids: Tensor, mask: Tensor, hooks: Any) -> Tensor:
    if hooks is None:
        return model(input_ids=ids, attention_mask=mask).logits.squeeze(-1)
    with hooks:
        return model(input_ids=ids, attention_mask=mask).logits.squeeze(-1)
