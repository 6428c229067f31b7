"""When a GRPO run stops, evaluates and saves: only between batches of answers.

A batch that is half used cannot be carried over, so there is no checkpoint inside one; a run that
is killed goes back to the last one between two, and continues from there exactly.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from transformers import TrainerControl, TrainerState, TrainingArguments

from workers.artifacts import state_in, state_of
from workers.config.grpo import GRPOSettings
from workers.context import RunContext
from workers.contract.events import Alert, ReviewRequested, Sample, disagreement_reason
from workers.grpo.metrics import Judged
from workers.ppo.evaluation import CANARY_PAIRS, ROLES
from workers.rules.engine import CUT_ANSWERS
from workers.samples import blocked_answers
from workers.trainers.trainer_bridge import Reporter

HELD_OUT, OWN = "eval_held_out_score", "eval_score"
STATE = "grpo_state.json"
PROBED = ("eval/protocol", "eval/reproducibility", CANARY_PAIRS, *ROLES.values())


class Rider(Protocol):
    """Something with a memory that a resumed run must have again."""

    def state(self) -> Any: ...

    def restore(self, state: Any) -> None: ...


class GroupReporter(Reporter):
    """`Reporter` for a run whose best checkpoint has the highest score, by the judge where there
    is one. `on_step` hears of every step that drew answers."""

    settings: GRPOSettings

    def __init__(
        self, context: RunContext, settings: GRPOSettings, on_step: Callable[[int], None]
    ) -> None:
        super().__init__(context, settings)
        self.on_step = on_step
        self.best_score: float | None = None
        self.is_best = False
        self.not_better = 0  # evaluations since the best
        self.mark: dict[str, Any] | None = None  # the baseline, to ride in checkpoints
        self.riders: dict[str, Rider] = {}  # what else rides in checkpoints, by name

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        over = state.global_step >= state.max_steps
        between = state.global_step % self.settings.update_epochs == 0
        if (state.global_step - 1) % self.settings.update_epochs == 0:
            self.on_step(state.global_step)
        if not (between or over):
            self.stop_where_due(control)
            return control
        super().on_step_end(args, state, control, **kwargs)
        if self.stop is not None:
            return control
        if over and self.context.stopped != "cancel":
            control.should_evaluate = control.should_save = True
        if control.should_evaluate or control.should_save:
            control.should_log = True
        return control

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> TrainerControl:
        """A new best evaluation is kept at once."""
        super().on_evaluate(args, state, control, metrics, **kwargs)
        score = headline(metrics or {})
        better = self.best_score is None or score > self.best_score
        self.is_best = better and not self.rules.is_crossed(CUT_ANSWERS)
        if self.is_best:
            self.best_score = score
            self.not_better = 0
            control.should_save = control.should_save or state.global_step > 0
        else:
            self.not_better += 1
        if self.settings.patience and self.not_better >= self.settings.patience:
            control.should_training_stop = control.should_save = True
        self.stop_where_due(control)
        return control

    def takes_best(self, metrics: Mapping[str, float]) -> bool:
        return self.is_best

    def save_checkpoint(
        self, folder: Path, step: int, tags: list[str], metrics: dict[str, float]
    ) -> None:
        super().save_checkpoint(folder, step, tags, of_policy(metrics))

    def finish_folder(self, folder: Path) -> None:
        super().finish_folder(folder)
        if self.context.writer is None:
            return
        kept = {
            "best_score": self.best_score,
            "not_better": self.not_better,
            "baseline": self.mark,
            "riders": {name: rider.state() for name, rider in self.riders.items()},
        }
        (state_in(folder) / STATE).write_text(json.dumps(kept))

    def restore(self, folder: Path) -> None:
        """What the library's own state does not hold; it forgets the evaluation of step 0 too."""
        kept = json.loads((state_of(folder) / STATE).read_text())
        self.best_score, self.not_better = kept["best_score"], kept["not_better"]
        self.mark = kept["baseline"]
        for name, rider in self.riders.items():
            if name in kept.get("riders", {}):
                rider.restore(kept["riders"][name])


def of_policy(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics of an evaluation without those of the protocol and the reward."""
    return {name: value for name, value in metrics.items() if name not in PROBED}


def headline(metrics: Mapping[str, float]) -> float:
    """What checkpoints are compared by: the judge, or the reward where nobody judges."""
    return metrics.get(HELD_OUT, metrics[OWN])


# Answers of a step for people: a few to read, and those a person must see.

SAMPLES_PER_STEP = 3
REVIEWS_PER_STEP = 4


def sample(context: RunContext, judged: Judged, *, step: int) -> None:
    """A few answers of the step's batch, as they were rewarded: the first of so many groups."""
    count = len(judged.texts)
    for i in range(0, count, max(1, count // SAMPLES_PER_STEP))[:SAMPLES_PER_STEP]:
        context.emit(_sampled(judged, i, bucket="random", step=step))


def tell_silence(context: RunContext, *, step: int) -> None:
    """No group of the step had anything to teach."""
    context.emit(
        Alert(
            rule="constant_reward",
            severity="warning",
            step=step,
            message="The rewards within every group of this step are alike: the policy was not "
            "updated.",
            value=1.0,
        )
    )


def ask_people(context: RunContext, judged: Judged, *, threshold: float | None, step: int) -> None:
    """Answers with a blocked phrase, then those that a rule sends to people, then those an ensemble
    disagrees about most; the worst few of a step. Each goes out as a sample too, with its parts
    beside it."""
    blocked = blocked_answers(context, judged.texts)
    reasons = list(blocked.items())
    reasons += [(i, reason) for i, reason in _reasons(judged, threshold) if i not in blocked]
    for i, reason in reasons[:REVIEWS_PER_STEP]:
        context.emit(
            ReviewRequested(
                step=step,
                prompt=list(judged.prompts[i]),
                response=str(judged.texts[i]),
                reason=reason,
            )
        )
        context.emit(_sampled(judged, i, bucket="flagged", step=step))


def _reasons(judged: Judged, threshold: float | None) -> list[tuple[int, str]]:
    named = judged.scores.reviews or [None] * len(judged.texts)
    found = [(i, reason) for i, reason in enumerate(named) if reason]
    spread = judged.scores.disagreement
    if spread is None or threshold is None:
        return found
    over = [i for i, value in enumerate(spread) if value > threshold and not named[i]]
    return found + [
        (i, disagreement_reason(spread[i], threshold))
        for i in sorted(over, key=lambda i: -spread[i])
    ]


def _sampled(judged: Judged, i: int, *, bucket: str, step: int) -> Sample:
    parts = judged.scores.parts_of(i)
    if judged.checked is not None:
        parts |= judged.checked.parts_of(i)
    return Sample(
        step=step,
        bucket=bucket,
        prompt=list(judged.prompts[i]),
        response=str(judged.texts[i]),
        reward=judged.scores.values[i],
        parts=parts,
        tokens=judged.lengths[i],
    )
