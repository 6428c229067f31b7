"""Answers of a step for people: a few to read, and those a person must see."""

from workers.context import RunContext
from workers.contract.events import Alert, ReviewRequested, Sample
from workers.grpo.rewards import Judged

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
    """Answers that a rule sends to people, then those an ensemble disagrees about most; the worst
    few of a step. Each goes out as a sample too, with its parts beside it."""
    reasons = _reasons(judged, threshold)
    for i, reason in reasons[:REVIEWS_PER_STEP]:
        context.emit(
            ReviewRequested(
                step=step,
                prompt=list(judged.prompts[i]),
                response=judged.texts[i],
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
        (
            i,
            f"the members of the reward model disagree about this answer: {spread[i]:.2f}, "
            f"over {threshold:.2f}",
        )
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
        response=judged.texts[i],
        reward=judged.scores.values[i],
        parts=parts,
        tokens=judged.lengths[i],
    )
