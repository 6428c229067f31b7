"""The trainings of a reward run, one after another, and the checkpoints between and within them.

A checkpoint holds the trainer's state of the part under way, the finished members in folders of
their own, and `training.json`; it can be loaded as a model at any time: as the ensemble of the
finished members where there are two, else as the model that is being trained.
"""

import gc
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase, TrainingArguments, set_seed

from workers.artifacts import state_in, state_of
from workers.config.training import RewardSettings
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.layouts.shards import Shares
from workers.models.loading import freeze_body, keep, load_scorer
from workers.models.lora import attach_lora
from workers.trainers.guarded_trainer import tokens_seen
from workers.trainers.reward_data import (
    FOLD,
    MEMBER,
    MODEL,
    PairData,
    Part,
    Progress,
    Result,
    Scores,
    Watched,
)
from workers.trainers.reward_reports import ensemble_layout, part_steps
from workers.trainers.reward_trainer import RewardTrainer, StepCollator, Watch
from workers.trainers.row_checks import leaked_share, longer_chosen_share
from workers.trainers.trainer_bridge import train_from, trainer_arguments


def fresh_model(
    source: str | Path,
    tokenizer: PreTrainedTokenizerBase,
    settings: RewardSettings,
    layout: str,
    *,
    seed: int,
) -> Any:
    """The model to train; a new score head depends on the seed alone."""
    set_seed(seed)
    adapted = settings.lora_rank > 0 or settings.head_only
    kept = keep(settings, layout, trained=not adapted)
    model: Any = load_scorer(source, tokenizer, dropout=settings.dropout, keep=kept)
    if settings.head_only:
        freeze_body(model)
    if settings.gradient_checkpointing:
        model.activation_checkpointing_enable()
    if settings.lora_rank:
        model = attach_lora(
            model,
            rank=settings.lora_rank,
            alpha=settings.lora_alpha,
            dropout=settings.dropout,
        )
    return model


@dataclass
class Training:
    """The parts of a run, trained one after another."""

    context: RunContext
    settings: RewardSettings
    source: str | Path
    tokenizer: PreTrainedTokenizerBase
    data: PairData
    validation: str
    parts: list[Part]
    progress: Progress = field(default_factory=Progress)
    resume: Path | None = None
    trainer: RewardTrainer | None = None
    started: float = field(default_factory=time.monotonic)
    margins: dict[int, list[float]] = field(default_factory=dict)  # of the first member, by step

    @property
    def first_rank(self) -> bool:
        """Whether this process writes files; under torchrun the others train along."""
        return self.context.writer is not None

    # --- one part ---

    def train(self, part: Part) -> Result:
        """Train one part to its end, or until someone stops the run, and score what it leaves."""
        trainer, watch = self._trainer(part)
        train_from(self.context, trainer, self.resume, offset=self.progress.steps)
        self.resume = None
        steps, kept = trainer.state.global_step, trainer.state.global_step
        watched = self.progress.watched
        loss = watch.evaluated.get("eval/loss")
        if self.context.stopped == "cancel":
            return self._result(part, watch.reason, steps, kept, loss, {})
        if self.settings.patience and not self.context.stopped:
            trainer.accelerator.wait_for_everyone()  # the first rank has written it
            trainer.take_weights(self._best)
            kept, loss = watched.lowest_at, watched.lowest
        return self._result(part, watch.reason, steps, kept, loss, self._score(part))

    def _trainer(self, part: Part) -> tuple[RewardTrainer, Watch]:
        if self.trainer is not None:
            self.trainer = None
            gc.collect()  # the model before, before the next one is loaded
        if self.progress.current != part.name:
            self.progress.current, self.progress.watched = part.name, Watched()
        if self.first_rank:
            shutil.rmtree(self.context.workdir / "trainer", ignore_errors=True)
        model = fresh_model(
            self.source, self.tokenizer, self.settings, self.context.spec.layout, seed=part.seed
        )
        watch = Watch(
            self.context,
            self.settings,
            part,
            self.progress,
            keep_best=self._keep_best,
            complete=self._complete,
            total_steps=self._total_steps(),
            max_seconds=self._seconds_left(),
            rows=self.row_figures(),
            first_member=self.margins,
        )
        trainer = RewardTrainer(
            model=model,
            args=TrainingArguments(
                **trainer_arguments(self.context, self.settings)
                | {"seed": part.seed, "data_seed": part.seed}
            ),
            train_dataset=[self.data.train[i] for i in part.rows],
            eval_dataset=self.data.held_out[self.validation],
            processing_class=self.tokenizer,
            data_collator=StepCollator(
                self.settings,
                self.tokenizer.pad_token_id,
                Shares.of(self.context.spec.layout),
            ),
            callbacks=[watch],
            settings=self.settings,
            known=self.data.known,
        )
        self.trainer = trainer
        return trainer, watch

    def row_figures(self) -> dict[str, float]:
        """What is known of the pairs before the first step."""
        train, held_out = self.data.train, self.data.held_out[self.validation]
        read = [
            [(p.row.prompt, p.row.chosen, p.row.rejected) for p in of] for of in (train, held_out)
        ]
        lost = self.data.left_out.get("overlong", 0)
        cut = lost + sum(pair.chosen.truncated or pair.rejected.truncated for pair in train)
        return (
            {"data/truncated_share": cut / (lost + len(train))}
            | leaked_share(*read)
            | longer_chosen_share([(pair.row.chosen, pair.row.rejected) for pair in train])
        )

    def _total_steps(self) -> int:
        left = self.parts[len(self.progress.done) :]
        return self.progress.steps + sum(part_steps(len(p.rows), self.settings) for p in left)

    def _seconds_left(self) -> float | None:
        """A part's share of the time that is left."""
        if self.settings.max_seconds is None:
            return None
        left = self.settings.max_seconds - (time.monotonic() - self.started)
        return max(0.0, left) / (len(self.parts) - len(self.progress.done))

    def _score(self, part: Part) -> dict[str, Scores]:
        splits = {"fold": [self.data.train[i] for i in part.held_out]}
        if part.kind != FOLD:
            splits = self.data.splits
        found = {}
        for split, pairs in splits.items():
            if pairs and self.trainer is not None:
                chosen, rejected = self.trainer.score(pairs)
                found[split] = Scores(chosen.tolist(), rejected.tolist())
        return found

    def _result(
        self,
        part: Part,
        reason: str,
        steps: int,
        kept: int,
        loss: float | None,
        scores: dict[str, Scores],
    ) -> Result:
        tokens = None if self.trainer is None else tokens_seen(self.trainer.state)
        return Result(
            part.name,
            part.kind,
            part.seed,
            len(part.rows),
            steps,
            reason,
            kept,
            loss,
            scores,
            tokens,
        )

    # --- checkpoints ---

    @property
    def _best(self) -> Path:
        return self.context.workdir / "best"

    @property
    def _members(self) -> Path:
        return self.context.workdir / "members"

    def _keep_best(self) -> None:
        if self.first_rank:
            shutil.rmtree(self._best, ignore_errors=True)
        self._save_weights(self._best)

    def _save_weights(self, folder: Path) -> None:
        """The present weights as a normal model folder; every rank must call."""
        if self.trainer is None:
            raise RuntimeError("no model is being trained")
        self.trainer.save_model(str(folder))

    def _complete(self, folder: Path) -> None:
        """Adds to a checkpoint what lets a run go on: finished members, the best weights so far,
        and how far it is. Two finished members already make it an ensemble to load."""
        if not self.first_rank:
            return
        self._add_members(folder)
        if self.settings.patience and self.progress.current and self._best.is_dir():
            _link_tree(self._best, state_in(folder) / "best")
        self.progress.write(folder)

    def _add_members(self, folder: Path) -> None:
        members = self.progress.members
        for result in members:
            _link_tree(self._members / result.name, folder / result.name)
        if len(members) > 1:
            ensemble_layout(members, self.validation, self.settings).write(folder)

    def save_ended(self, part: Part, result: Result) -> None:
        """A part is done: its weights, and with the last one the model of the run."""
        self.progress.current = None
        if part.kind == MEMBER:
            self._save_weights(self._members / part.name)
        last = len(self.progress.done) == len(self.parts)
        folder = self.context.workdir / "ended"
        if self.first_rank:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        if not (last and part.kind == MEMBER):  # a finished ensemble is its members
            self._save_weights(folder)
        if not self.first_rank:
            return
        self._complete(folder)
        tags = ["last"]
        if last:
            tags += ["final"] + ["best"] * (part.kind == MODEL and self._is_best(result))
        metrics = {"eval/loss": result.loss} if result.loss is not None else {}
        self.context.save_checkpoint(folder, step=self.progress.steps, tags=tags, metrics=metrics)

    def _is_best(self, result: Result) -> bool:
        """Whether no checkpoint of a lower held-out loss is lying about."""
        lowest = self.progress.watched.lowest
        return bool(self.settings.patience) or lowest is None or result.loss == lowest

    def take_up(self, folder: Path) -> None:
        """Go on from a checkpoint of this run."""
        self.progress = Progress.read(folder)
        planned = [part.name for part in self.parts]
        done = [result.name for result in self.progress.done]
        if done != planned[: len(done)]:
            raise RecipeError(
                "damaged_checkpoint",
                Fault.DATA,
                f"the checkpoint has trained {', '.join(done)}, which this run does not plan",
            )
        self.resume = folder if self.progress.current else None
        if not self.first_rank:
            return
        shutil.rmtree(self._members, ignore_errors=True)
        for result in self.progress.members:
            shutil.copytree(folder / result.name, self._members / result.name)
        if (best := state_of(folder) / "best").is_dir():
            shutil.rmtree(self._best, ignore_errors=True)
            shutil.copytree(best, self._best)


def _link_tree(source: Path, target: Path) -> None:
    """A copy that costs no space where the file system allows it: nobody writes into either."""
    shutil.rmtree(target, ignore_errors=True)
    try:
        shutil.copytree(source, target, copy_function=os.link)
    except (OSError, shutil.Error):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
