"""What the hidden utility says of models, from outside: no run has it among its inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.overoptimization_world.gold import Gold
from benchmarks.overoptimization_world.language import Question
from benchmarks.overoptimization_world.world import answers
from workers.rewards.build import load_reward

DRAWS = 6  # answers to each question


@dataclass(frozen=True, slots=True)
class Wins:
    """rate: how often the policy's answer is of higher utility than the start's to the same
    question, ties counting half; gain: mean difference, points; lengths in words."""

    rate: float
    gain: float
    words: float
    start_words: float


def wins(gold: Gold, asked: Sequence[Question], policy: Path, start: Path, *, seed: int) -> Wins:
    many = [question for question in asked for _ in range(DRAWS)]
    given, other = answers(policy, many, seed=2 * seed), answers(start, many, seed=2 * seed + 1)
    margins = [gold(q, a) - gold(q, b) for q, a, b in zip(many, given, other, strict=True)]
    return Wins(
        fmean(0.5 if m == 0 else float(m > 0) for m in margins),
        fmean(margins),
        fmean(len(text.split()) for text in given),
        fmean(len(text.split()) for text in other),
    )


@dataclass(frozen=True, slots=True)
class RewardQuality:
    """On pairs whose better answer is known. accuracy: share in which the reward model scores it
    higher; log_loss: of σ(difference of scores), nats."""

    accuracy: float
    log_loss: float
    pairs: int


def reward_quality(
    gold: Gold, asked: Sequence[Question], reward: Path, start: Path, *, seed: int
) -> RewardQuality:
    """On pairs of the start's answers to these questions."""
    many = [question for question in asked for _ in range(4 * DRAWS)]
    one, other = answers(start, many, seed=2 * seed), answers(start, many, seed=2 * seed + 1)
    margin = np.array([gold(q, a) - gold(q, b) for q, a, b in zip(many, one, other, strict=True)])
    model = load_reward(reward, name="reward", batch_size=128)
    prompts = [question.messages for question in many]
    scores = [np.array(model.score(prompts, texts).values) for texts in (one, other)]
    told = ((scores[0] - scores[1]) * np.sign(margin))[margin != 0]
    return RewardQuality(
        float(np.mean((told > 0) + 0.5 * (told == 0))),
        float(np.mean(np.logaddexp(0.0, -told))),
        len(told),
    )
