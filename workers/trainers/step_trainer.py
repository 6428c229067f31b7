"""A model of single steps: one score at the end of each, by binary cross-entropy.

TRL 1.16 has no trainer for stepwise supervision. A step's label is learnt at its last token and
nowhere else, so prompts, results of tools, words of users and steps that nobody marked are read and
not learnt. Every part of a training step is divided by the marked steps of the whole.

Source: Lightman et al. 2023 ("Let's Verify Step by Step"), section 2; Uesato et al. 2022.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler
from transformers import PreTrainedTokenizerBase

from measures.steps import StepReport, step_report
from workers.config.training import ProcessRewardSettings
from workers.contract.events import Fault, RecipeError
from workers.data.batches import LengthGroupedSampler, encode_prompt, encode_step, pad_right
from workers.data.snapshot import JudgedSteps
from workers.trainers.guarded_trainer import GuardedTrainer

PROBED = 64  # trajectories whose text is changed, at each evaluation
UNMARKED = -1.0


@dataclass(frozen=True, slots=True)
class EncodedSteps:
    """Token ids of prompt and steps; `ends` are the places of the steps' last tokens, those that
    were not cut."""

    row: JudgedSteps
    prompt: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    cut: int = 0  # marked steps that were cut

    @property
    def ids(self) -> list[int]:
        return [*self.prompt, *(one for step in self.steps for one in step)]

    @property
    def ends(self) -> list[int]:
        places, at = [], len(self.prompt)
        for step in self.steps:
            at += len(step)
            places.append(at - 1)
        return places

    @property
    def labels(self) -> tuple[bool | None, ...]:
        return self.row.labels[: len(self.steps)]

    @property
    def marked(self) -> int:
        return sum(label is not None for label in self.labels)


def encode_steps(
    tokenizer: PreTrainedTokenizerBase, rows: Sequence[JudgedSteps], max_length: int
) -> tuple[list[EncodedSteps], int]:
    """The rows, whole steps up to `max_length` tokens, and how many have no marked step left."""
    found = [_encoded(tokenizer, row, max_length) for row in rows]
    return [one for one in found if one.marked], sum(not one.marked for one in found)


def _encoded(tokenizer: Any, row: JudgedSteps, max_length: int) -> EncodedSteps:
    prompt = encode_prompt(tokenizer, row.prompt)
    room = max_length - len(prompt)
    steps: list[tuple[int, ...]] = []
    for text, role in zip(row.steps, row.roles, strict=True):
        ids = encode_step(tokenizer, text, role)
        room -= len(ids)
        if room < 0 or not ids:
            break
        steps.append(tuple(ids))
    cut = sum(label is not None for label in row.labels[len(steps) :])
    return EncodedSteps(row, tuple(prompt), tuple(steps), cut)


def check_labels(rows: Sequence[EncodedSteps]) -> None:
    """Raises `RecipeError` (one_label) where there is no difference to learn."""
    labels = {label for row in rows for label in row.labels if label is not None}
    if len(labels) < 2:
        told = "right" if True in labels else "wrong"
        raise RecipeError(
            "one_label",
            Fault.DATA,
            f"every marked step of the {len(rows):,} training rows is {told}: there is no "
            "difference to learn. Import trajectories with right and with wrong steps.",
        )


class StepCollator:
    """A training step as parts: ids and mask [b, L], targets [b, L] (1 right, 0 wrong, −1 where
    nothing is learnt), and the marked steps of all parts."""

    def __init__(self, pad_id: int, parts: int) -> None:
        self.pad_id = pad_id
        self.parts = parts

    def __call__(self, rows: Sequence[EncodedSteps]) -> list[dict[str, Any]]:
        total = torch.tensor(float(sum(row.marked for row in rows)))
        size = -(-len(rows) // self.parts)
        return [
            self._part(rows[start : start + size], total) for start in range(0, len(rows), size)
        ]

    def _part(self, rows: Sequence[EncodedSteps], total: Tensor) -> dict[str, Any]:
        ids, mask = pad_right([row.ids for row in rows], self.pad_id)
        targets = torch.full(ids.shape, UNMARKED)
        for i, row in enumerate(rows):
            for place, label in zip(row.ends, row.labels, strict=True):
                if label is not None:
                    targets[i, place] = float(label)
        return {"ids": ids, "mask": mask, "targets": targets, "total": total, "taken": 1.0}


class StepTrainer(GuardedTrainer):
    """The library's trainer with a score for each step."""

    def __init__(self, *, settings: ProcessRewardSettings, pad_id: int, **kwargs: Any) -> None:
        # Gives a step's parts, where the library's own give one batch.
        collator: Any = StepCollator(pad_id, settings.gradient_accumulation)
        super().__init__(data_collator=collator, **kwargs)
        self.settings = settings
        self.pad_id = pad_id
        self.report: StepReport | None = None  # of the newest evaluation
        self.right, self.counted = 0.0, 0.0  # steps since the last point

    def train_order(self) -> Sampler[int]:
        lengths = [len(row.ids) for row in self.train_dataset]
        size = self.args.per_device_train_batch_size
        return LengthGroupedSampler(lengths, size, seed=self.args.seed)

    def row_tokens(self, row: EncodedSteps) -> int:
        return len(row.ids)

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Tensor:
        """A part's share of the step's loss: nats per marked step."""
        logits = self._logits(model, inputs["ids"], inputs["mask"])
        targets = inputs["targets"]
        marked = targets != UNMARKED
        z, y = logits[marked], targets[marked]
        self.right += float(((z > 0) == (y > 0.5)).sum())
        self.counted += float(len(y))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(z, y, reduction="sum")
        return loss / inputs["total"]

    @staticmethod
    def _logits(model: torch.nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
        """[b, L] log-odds that the step which ends at a token is right."""
        found: Tensor = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        return found.squeeze(-1).float()

    # --- metrics ---

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        if "loss" in logs and self.counted:
            logs["steps/accuracy"] = self.right / self.counted
            self.right = self.counted = 0.0
        super().log(logs, *args, **kwargs)

    @torch.no_grad()
    def score(self, rows: Sequence[EncodedSteps]) -> list[list[float]]:
        """Log-odds of each step, in the order of the rows."""
        was_training = self.model.training
        self.model.eval()
        size: int = self.args.per_device_eval_batch_size
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i].ids))
        found: dict[int, list[float]] = {}
        for start in range(0, len(rows), size):
            batch = order[start : start + size]
            ids, mask = pad_right([rows[i].ids for i in batch], self.pad_id)
            device = self.args.device
            with self.accelerator.autocast():
                logits = self._logits(self.model, ids.to(device), mask.to(device))
            for i, row in zip(batch, logits.tolist(), strict=True):
                found[i] = [row[place] for place in rows[i].ends]
        self.model.train(was_training)
        return [found[i] for i in range(len(rows))]

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        rows: Any = self.eval_dataset if eval_dataset is None else eval_dataset
        logits = self.score(rows)
        self.report = step_report(logits, [row.labels for row in rows], replicates=1)
        metrics = {f"{metric_key_prefix}_loss": held_out_loss(logits, rows)}
        metrics |= {f"eval_{name}": v for name, v in figures(self.report).items()}
        effect = self.next_over_own(rows)
        if effect is not None:
            metrics["eval_steps/next_over_own"] = effect
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def next_over_own(self, rows: Sequence[EncodedSteps]) -> float | None:
        """How far the score of the step behind a changed one moves, over how far that of the
        changed one moves itself: sums over trajectories in which one step, not the last, was put in
        place of another's. Who learns labels that belong to the step before learns them from it, so
        its scores move one step late: far over 1. None where no score moves."""
        draw = random.Random(self.args.seed)
        long = [row for row in rows if len(row.steps) > 1][:PROBED]
        if len(long) < 2:
            return None
        places = [draw.randrange(len(row.steps) - 1) for row in long]
        changed = []
        for i, (row, place) in enumerate(zip(long, places, strict=True)):
            other = long[(i + 1) % len(long)].steps
            told = other[min(place, len(other) - 1)]
            if told == row.steps[place]:
                told = other[0] if other[0] != told else other[-1]
            steps = (*row.steps[:place], told, *row.steps[place + 1 :])
            changed.append(replace(row, steps=steps))
        before, after = self.score(long), self.score(changed)
        own = [abs(a[k] - b[k]) for a, b, k in zip(before, after, places, strict=True)]
        late = [abs(a[k + 1] - b[k + 1]) for a, b, k in zip(before, after, places, strict=True)]
        moved = sum(own)
        return sum(late) / moved if moved > 1e-6 * len(own) else None


def held_out_loss(logits: Sequence[Sequence[float]], rows: Sequence[EncodedSteps]) -> float:
    """Nats per marked step."""
    both = [
        (z, float(y))
        for told, row in zip(logits, rows, strict=True)
        for z, y in zip(told, row.labels, strict=True)
        if y is not None
    ]
    z, y = torch.tensor([one[0] for one in both]), torch.tensor([one[1] for one in both])
    return float(torch.nn.functional.binary_cross_entropy_with_logits(z, y))


def figures(report: StepReport) -> dict[str, float]:
    """Those that are defined, by the names of metrics."""
    found = {
        "steps/accuracy": report.accuracy.value,
        "steps/majority": report.majority,
        "steps/error_located": report.located.value,
        "steps/right_passed": report.passed.value,
        "steps/first_error_f1": report.f1.value,
        "steps/ece": report.ece,
        "steps/explained": report.explained,
    }
    return {name: value for name, value in found.items() if value is not None}
