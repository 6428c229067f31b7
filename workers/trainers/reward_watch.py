"""Watches a reward model learn: stops it when held-out loss rises, and says when it never fell."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerControl, TrainerState, TrainingArguments

from workers.config.training import RewardSettings
from workers.context import RunContext
from workers.contract.events import Alert
from workers.trainers.reward_parts import MODEL, Part, Progress
from workers.trainers.trainer_bridge import Reporter

# Evaluations after which a held-out loss that has not fallen by so much is told.
FIRST_EVALUATIONS = 3
LEAST_FALL = 0.002  # nats per pair
# A training loss of so many nats over the held-out loss of the start has jumped: ln 2 is a coin.
JUMP = 0.5


class Watch(Reporter):
    """Reports a part's training and decides when it ends.

    Where training ends by itself nothing is saved here: the recipe saves the weights that are kept.
    A wish from outside saves all that is needed to go on.
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
    ) -> None:
        """`keep_best` keeps the present weights; `complete` adds to a checkpoint's folder what the
        library's trainer does not know of."""
        super().__init__(
            context,
            settings,
            offset=progress.steps,
            total_steps=total_steps,
            max_seconds=max_seconds,
        )
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
        elif self.timed_out or state.global_step >= state.max_steps:
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
        return control

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

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        tags = ["last"]
        figures = self.evaluated if self.evaluated_at == state.global_step else {}
        single = self.part.kind == MODEL
        if single and figures.get("eval/loss", float("inf")) < self.best:
            self.best = figures["eval/loss"]
            tags.append("best")
        if control.should_training_stop and self.context.stopped == "stop":
            tags.append("final")
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self.finish_folder(folder)
        step = self.offset + state.global_step
        self.context.save_checkpoint(folder, step=step, tags=tags, metrics=figures)
