"""Is a change in the model, or in how it was asked? The first model and this one, asked alike."""

import numpy as np

from measures.blocks import Curve, Intervals, Series
from measures.estimate import Interval
from measures.intervals import paired_difference
from workers.checks.asking import (
    BATCH,
    Speaker,
    ask,
    evaluation_sampling,
    fixed_prompts,
    fresh_reward,
    speaker,
)
from workers.checks.found import CONFIRMS, REFUTES, UNDECIDED, Found, Pace, interval
from workers.config.inference import CheckSettings
from workers.context import RunContext
from workers.contract.numbers import number, plain, signed
from workers.data.snapshot import prompt_key
from workers.ppo.setup import Prompts
from workers.rewards.source import RewardSource

EXACT = 1e-3
ERRORS = 3.0
LEAST = 8


def look(context: RunContext, settings: CheckSettings, pace: Pace) -> Found:
    policy, first = speaker(context, "policy"), speaker(context, "sft")
    prompts = fixed_prompts(context, settings, policy.tokenizer)
    reward = fresh_reward(context, settings)
    then = scores_of(context, settings, pace, first, prompts, reward, "answering as at the start")
    now = scores_of(context, settings, pace, policy, prompts, reward, "answering as at this step")
    n = min(len(then), len(now))
    keys = [prompt_key(messages) for messages in prompts.messages[:n]]
    change = paired_difference(now[:n], then[:n], clusters=keys, seed=context.spec.seed)
    gaps = np.subtract(now[:n], then[:n])
    error = float(gaps.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0
    outcome, words = judge(change, error, settings.reported)
    return Found(
        outcome=outcome,
        words=words + pace.remark,
        n=n,
        figures={
            "change": interval(change),
            "first": float(np.mean(then[:n])),
            "now": float(np.mean(now[:n])),
            "reported": settings.reported,
        },
        details={
            "step": settings.step,
            "rows": [
                {"prompt": messages[-1]["content"], "first": a, "now": b}
                for messages, a, b in zip(prompts.messages, then[:n], now[:n], strict=False)
            ],
        },
        evidence=(
            Intervals(
                title="Change of the mean score since the start",
                rows=(("asked the same way", change), *_reported(settings.reported)),
                unit="number",
                reference=0.0,
                reference_label="no change",
            ),
            Curve(
                title="Each prompt, answered by the first model and by this one",
                series=(Series(label="prompts", x=tuple(then[:n]), y=tuple(now[:n]), points=True),),
                x_label="score at the start",
                y_label="score now",
                diagonal=True,
            ),
        ),
    )


def _reported(value: float | None) -> tuple[tuple[str, Interval], ...]:
    if value is None:
        return ()
    told = Interval(value=value, low=None, high=None, n=0, no_interval="as the run reported it")
    return (("reported by the run", told),)


def scores_of(
    context: RunContext,
    settings: CheckSettings,
    pace: Pace,
    by: Speaker,
    prompts: Prompts,
    reward: RewardSource,
    doing: str,
) -> list[float]:
    """Raw scores of one model's answers to the fixed prompts, drawn as the run's evaluations do."""
    found: list[float] = []
    parts = pace.parts(len(prompts), BATCH, doing)
    for part in ask(by, prompts.ids, evaluation_sampling(context, settings), parts):
        found += reward.score(prompts.messages[part.rows], part.responses.texts).values
    return found


def judge(change: Interval, error: float, reported: float | None) -> tuple[str, str]:
    """(outcome, words). Chance is that of both measurements, the run's and this one."""
    asked = f"Asked the same way, the score changed by {number(change)} (n = {change.n})"
    if change.value is None:
        return UNDECIDED, "No prompt could be answered."
    if reported is None:
        return UNDECIDED, f"{asked}. The run reported no change at this step to compare it with."
    against = f"{asked}; the run reported {signed(reported)}"
    gap = abs(change.value - reported)
    if gap <= EXACT * max(1.0, abs(reported)):
        return REFUTES, f"{against}: the same, so the change is the model's."
    chance = ERRORS * float(np.sqrt(2)) * error
    if change.n < LEAST:
        return UNDECIDED, f"{against}; {change.n} prompts are too few to tell these apart."
    if gap > chance:
        return CONFIRMS, (
            f"{against}: more apart than chance explains ({plain(chance)}), so the run asked in "
            "another way at the end than at the start."
        )
    if abs(reported) <= chance and abs(reported) > 0 and gap > 0.5 * abs(reported):
        return UNDECIDED, f"{against}; the change is too small to tell from chance."
    return REFUTES, f"{against}: no further apart than chance explains, so the model changed."
