"""Bradley–Terry on pairs: TRL's loss where labels are hard, and batches with little padding.

A step reaches the trainer as the parts it is computed in (`workers.data.batches`); every part
is divided by the weight of the whole step, so the gradient is that of the mean over the step's
pairs, however it was split.
"""

import inspect
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from torch.utils.data import Sampler
from transformers import TrainerControl, TrainerState, TrainingArguments

from measures.accuracy import pair_credit
from measures.calibration import fit_temperature
from workers import ranks
from workers.behaviour import rank_correlation
from workers.config.training import RewardSettings
from workers.context import RunContext
from workers.contract.events import Alert
from workers.data.batches import (
    LengthGroupedSampler,
    OrderSampler,
    inverse_frequency_order,
    length_strata,
    pad_right,
    stratified_order,
)
from workers.layouts.shards import ALONE, Shares
from workers.rl.losses import bradley_terry_loss
from workers.samples import choose
from workers.trainers.guarded_trainer import GuardedTrainer
from workers.trainers.reward_data import FIRST_MEMBER, MEMBER, MODEL, EncodedPair, Part, Progress
from workers.trainers.row_checks import MOST_ROWS, longer_excess
from workers.trainers.trainer_bridge import Reporter

Rows = dict[str, Any]


class StepCollator:
    """This rank's pairs of one step as parts: rectangles of ids [b, L] with their masks, `places`
    [2n] of the chosen then the rejected scores among the rectangles' rows, and [n] of target,
    weight and margin. Texts that recur in a part are read once."""

    def __init__(self, settings: RewardSettings, pad_id: int, shares: Shares = ALONE) -> None:
        self.settings = settings
        self.pad_id = pad_id
        self.shares = shares

    def __call__(self, pairs: Sequence[EncodedPair]) -> list[Rows]:
        parts = self.shares.parts(
            [pair.lengths for pair in pairs],
            budget=self.settings.max_tokens_per_batch,
            at_least=self.settings.gradient_accumulation,
        )
        total = torch.tensor(sum(pair.row.weight for pair in pairs))
        return [
            self._part([pairs[i] for i in part.rows], total, taken=float(part.counts))
            for part in parts
        ]

    def _part(self, pairs: Sequence[EncodedPair], total: Tensor, *, taken: float) -> Rows:
        texts = [tuple(p.chosen.ids) for p in pairs] + [tuple(p.rejected.ids) for p in pairs]
        distinct = list(dict.fromkeys(texts))
        groups = self.shares.rectangles([len(ids) for ids in distinct])
        place = {distinct[i]: k for k, i in enumerate(i for group in groups for i in group)}
        soft = self.settings.labels == "soft"
        rows = [pair.row for pair in pairs]
        return {
            "rectangles": [pad_right([distinct[i] for i in g], self.pad_id) for g in groups],
            "places": torch.tensor([place[ids] for ids in texts]),
            "target": torch.tensor([row.confidence if soft else 1.0 for row in rows]),
            "weight": torch.tensor([row.weight for row in rows]),
            "margin": torch.tensor(
                [self.settings.margin_coef * (row.strength or 0.0) for row in rows]
            ),
            "total_weight": total,
            "taken": taken,
        }


class RewardTrainer(GuardedTrainer):
    """The library's trainer with our loss, our batches, and held-out metrics over all pairs."""

    settings: RewardSettings
    train_dataset: Any
    eval_dataset: Any
    data_collator: Any

    def __init__(
        self, *, settings: RewardSettings, known: Sequence[EncodedPair] = (), **kwargs: Any
    ) -> None:
        """`known`: pairs whose better answer is known, asked at every evaluation."""
        super().__init__(**kwargs)
        self.settings = settings
        self.known = known
        rows = self.train_dataset
        self.trained = [rows[i] for i in choose(len(rows), MOST_ROWS, self.args.seed)]
        self.held_out_margins: list[float] = []
        self.seen: list[Tensor] = []  # [2, n] scores of the steps since the last point
        self.has_seen = False
        body = self.model.get_base_model() if isinstance(self.model, PeftModel) else self.model
        # A cache of keys and values is for generation; scoring would only fill it.
        parameters = inspect.signature(body.forward).parameters
        self.forward_options = {"use_cache": False} if "use_cache" in parameters else {}

    # --- training ---

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: Rows,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Tensor:
        """A part's share of the step's loss."""
        chosen, rejected = self._scores(model, inputs).chunk(2)
        self.has_seen = True  # on some rank
        if inputs["taken"]:
            self.seen.append(torch.stack([chosen, rejected]).detach())
        return bradley_terry_loss(
            chosen,
            rejected,
            target=inputs["target"],
            weight=inputs["weight"],
            margin=inputs["margin"] if self.settings.margin_coef else None,
            label_smoothing=self.settings.label_smoothing,
            center_coef=self.settings.center_coef,
            total_weight=inputs["total_weight"],
        )

    def _scores(self, model: torch.nn.Module, part: Rows) -> Tensor:
        """[2n], chosen first."""
        scores = [
            model(input_ids=ids, attention_mask=mask, **self.forward_options).logits.squeeze(-1)
            for ids, mask in part["rectangles"]
        ]
        return torch.cat(scores).float()[part["places"]]

    def row_tokens(self, row: EncodedPair) -> int:
        return sum(row.lengths)

    def train_order(self) -> Sampler[int]:
        pairs: Sequence[EncodedPair] = self.train_dataset
        lengths = [pair.longest for pair in pairs]
        groups = [pair.row.group or pair.row.cluster for pair in pairs]
        seed = self.args.seed
        if self.settings.sampling == "stratified":
            strata = list(zip(groups, length_strata(lengths), strict=True))
            return OrderSampler(lambda g: stratified_order(strata, g), len(pairs), seed=seed)
        if self.settings.sampling == "inverse_frequency":
            return OrderSampler(lambda g: inverse_frequency_order(groups, g), len(pairs), seed=seed)
        return LengthGroupedSampler(lengths, self.args.per_device_train_batch_size, seed=seed)

    # --- metrics ---

    @torch.no_grad()
    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Over all pairs at once: the library would average over batches. The loss is the
        cross-entropy of the labels, without the terms that only steer training (margins, smoothing,
        centring), so runs with and without them can be compared."""
        pairs = self.eval_dataset if eval_dataset is None else eval_dataset
        chosen, rejected = self.score(pairs)
        soft = self.settings.labels == "soft"
        loss = bradley_terry_loss(
            chosen,
            rejected,
            target=torch.tensor([p.row.confidence if soft else 1.0 for p in pairs]),
            weight=torch.tensor([p.row.weight for p in pairs]),
        )
        metrics = {f"{metric_key_prefix}_loss": loss.item()}
        metrics |= _metric_values(chosen, rejected, f"{metric_key_prefix}_")
        if eval_dataset is None:
            self.held_out_margins = (chosen - rejected).tolist()
            found = {**held_out_figures(pairs, self.held_out_margins), **self.fixed_figures()}
            metrics |= {f"eval_{name}": v for name, v in found.items() if v is not None}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def fixed_figures(self) -> dict[str, float]:
        """How well it ranks some of the pairs it learns from, and pairs that are known."""
        found = {}
        for name, pairs in (("trained", self.trained), ("canary", self.known)):
            if pairs:
                chosen, rejected = self.score(pairs)
                found[f"{name}_accuracy"] = float(pair_credit(chosen - rejected).mean())
        return found | ({"canary_pairs": float(len(self.known))} if self.known else {})

    @torch.no_grad()
    def score(self, pairs: Sequence[EncodedPair]) -> tuple[Tensor, Tensor]:
        """(chosen, rejected) scores [n] of any pairs, dropout off, as they are trained: on an
        accelerator in its half precision."""
        was_training = self.model.training
        self.model.eval()
        texts = [tuple(p.chosen.ids) for p in pairs] + [tuple(p.rejected.ids) for p in pairs]
        distinct = sorted(set(texts), key=lambda ids: (len(ids), ids))
        place = {ids: row for row, ids in enumerate(distinct)}
        found = torch.zeros(len(distinct))
        rows, shares = 2 * self.args.per_device_eval_batch_size, self.data_collator.shares
        starts = range(0, len(distinct), rows)
        for number in range(shares.rank, shares.rounds(len(starts)), shares.world):
            start = starts[min(number, len(starts) - 1)]
            batch = distinct[start : start + rows]
            ids, mask = pad_right(batch, self.data_collator.pad_id)
            with self.compute_loss_context_manager():
                output = self.model(
                    input_ids=ids.to(self.args.device),
                    attention_mask=mask.to(self.args.device),
                    **self.forward_options,
                )
            if number < len(starts):
                found[start : start + rows] = output.logits.squeeze(-1).float().cpu()
        self.model.train(was_training)
        chosen, rejected = ranks.summed(found)[[place[ids] for ids in texts]].chunk(2)
        return chosen, rejected

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds what the scores of the steps since the last point say, under TRL's names."""
        if self.has_seen and "loss" in logs:
            nothing = torch.zeros(2, 0, device=self.args.device)
            chosen, rejected = torch.cat([nothing, *self.seen], dim=1)
            logs |= _metric_values(chosen, rejected, prefix="")
            self.seen, self.has_seen = [], False
        super().log(logs, start_time)


def correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Pearson's; None under three values or where either does not vary."""
    if len(one) < 3 or len(set(one)) < 2 or len(set(other)) < 2:
        return None
    return statistics.correlation(one, other)


def held_out_figures(
    pairs: Sequence[EncodedPair], margins: Sequence[float]
) -> dict[str, float | None]:
    """What the margins say besides who won: their median size, the temperature at which they are
    calibrated (over 1: over-confident), and by how much they follow length more than people do."""
    labels = [pair.row.confidence if pair.row.soft else 1.0 for pair in pairs]
    lengths = [(pair.chosen.response_length, pair.rejected.response_length) for pair in pairs]
    return {
        "margin_size": median(map(abs, margins)),
        "temperature": fit_temperature(margins, labels).value if any(margins) else None,
        "longer_excess": longer_excess(margins, lengths),
        "length_correlation": rank_correlation(margins, [a - b for a, b in lengths]),
    }


def _metric_values(chosen: Tensor, rejected: Tensor, prefix: str) -> dict[str, float]:
    """accuracy (a tie counts half), margin and mean_reward of the [n] scores of every rank."""
    chosen, rejected = chosen.double(), rejected.double()
    right = (torch.sign(chosen - rejected) + 1) / 2
    each = torch.stack([right, chosen - rejected, (chosen + rejected) / 2, torch.ones_like(right)])
    accuracy, margin, reward, count = ranks.summed(each.sum(1)).tolist()
    return {
        f"{prefix}accuracy": accuracy / count,
        f"{prefix}margin": margin / count,
        f"{prefix}mean_reward": reward / count,
    }


# Watches a reward model learn: stops it when held-out loss rises, and says when it never fell.

# Evaluations after which a held-out loss that has not fallen by so much is told.
FIRST_EVALUATIONS = 3
LEAST_FALL = 0.002  # nats per pair
# A training loss of so many nats over the held-out loss of the start has jumped: ln 2 is a coin.
JUMP = 0.5


class Watch(Reporter):
    """Reports a part's training and decides when it ends.

    Where training ends by itself nothing is saved here: the recipe saves the weights that are kept.
    A command from outside saves all that is needed to go on.
    """

    def __init__(
        self,
        context: RunContext,
        settings: RewardSettings,
        part: Part,
        progress: Progress,
        *,
        keep_best: Callable[[], None],
        complete: Callable[[Path], None],
        total_steps: int,
        max_seconds: float | None,
        rows: Mapping[str, float],
        first_member: dict[int, list[float]],
    ) -> None:
        """`first_member`: the held-out margins of an ensemble's first member by its own steps,
        which its own watch fills and later ones compare themselves with. `keep_best` keeps the
        present weights; `complete` adds to a checkpoint's folder what the library's trainer does
        not know of."""
        super().__init__(
            context,
            settings,
            offset=progress.steps,
            tokens_before=progress.tokens,
            total_steps=total_steps,
            max_seconds=max_seconds,
            rows=rows if progress.steps == 0 else None,
        )
        self.first_member = first_member
        self.part = part
        self.progress = progress
        self.patience = settings.patience
        self.min_delta = settings.min_delta
        self.keep_best = keep_best
        self.complete = complete
        self.reason = "the schedule ended"
        self.highest_loss = 0.0  # of training, nats per pair
        self.best = float("inf")

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        lowest = self.progress.watched.lowest
        self.best = lowest if lowest is not None and state.global_step else self.best

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        control = super().on_step_end(args, state, control, **kwargs)
        if self.context.stopped:
            self.reason = f"a person or the machine asked: {self.context.stopped}"
        elif self.stop is None and (self.timed_out or state.global_step >= state.max_steps):
            if self.timed_out:
                self.reason = "max_seconds was over"
            control.should_evaluate = control.should_log = True
            control.should_save = False
        return control

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        self.highest_loss = max(self.highest_loss, (logs or {}).get("loss", 0.0))
        super().on_log(args, state, control, logs, **kwargs)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> TrainerControl:
        super().on_evaluate(args, state, control, metrics, **kwargs)
        self._note_margins(state.global_step, control, kwargs)
        loss, step, watched = self.evaluated["eval/loss"], state.global_step, self.progress.watched
        if step == 0:
            watched.initial = loss
        else:
            watched.evaluations += 1
        if watched.lowest is None or loss < watched.lowest - self.min_delta:
            watched.lowest, watched.lowest_at, watched.without = loss, step, 0
            if self.patience:
                self.keep_best()
                control.should_save = control.should_save or (
                    0 < step < state.max_steps and not control.should_training_stop
                )
        elif step:
            watched.without += 1
        self._judge_learning_rate(step)
        if self.patience and watched.without >= self.patience and not control.should_training_stop:
            self.reason = (
                f"the held-out loss has not fallen for {watched.without} evaluations "
                f"(lowest {watched.lowest:.4f} at step {watched.lowest_at})"
            )
            control.should_training_stop = True
            control.should_save = False
        self.stop_where_due(control)
        return control

    def _note_margins(self, step: int, control: TrainerControl, parts: dict[str, Any]) -> None:
        """How they are spread, and how alike another member's were at the same step of its own."""
        margins, at = self.trainer.held_out_margins, self.offset + step
        self.context.emit(self.histograms.of(at, "margin", margins))
        if self.part.kind != MEMBER or step == 0:
            return
        known = self.first_member.get(step)
        if self.part.name == FIRST_MEMBER:
            self.first_member[step] = margins
        elif known is not None and (alike := correlation(margins, known)) is not None:
            metrics = {"ensemble/correlation": alike}
            self.context.metrics(at, metrics)
            self.look(step, metrics, control, **parts)

    def _judge_learning_rate(self, step: int) -> None:
        watched = self.progress.watched
        if (
            watched.warned
            or watched.evaluations != FIRST_EVALUATIONS
            or watched.initial is None
            or watched.lowest is None
            or watched.lowest < watched.initial - LEAST_FALL
        ):
            return
        watched.warned = True
        too_high = self.highest_loss > watched.initial + JUMP
        advice = (
            "the training loss jumped, so it is likely too high: divide it by ten"
            if too_high
            else "it may be too low (multiply it by ten), or the data hold nothing to learn"
        )
        self.context.emit(
            Alert(
                rule="learning_rate",
                severity="warning",
                step=self.offset + step,
                message=f"{self.part.name}: after {FIRST_EVALUATIONS} evaluations the held-out "
                f"loss has not fallen below its start ({watched.initial:.3f}). Learning rate "
                f"{self.settings.learning_rate:g}: {advice}.",
                value=watched.lowest,
                threshold=watched.initial - LEAST_FALL,
            )
        )

    def finish_folder(self, folder: Path) -> None:
        super().finish_folder(folder)
        self.complete(folder)

    def takes_best(self, metrics: Mapping[str, float]) -> bool:
        return self.part.kind == MODEL and super().takes_best(metrics)

    def takes_final(self) -> bool:
        return self.context.stopped == "stop"
