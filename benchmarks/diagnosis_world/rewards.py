"""Rewards with a fault that no training gives a model by itself: wrappers of the fair one."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import NormalDist

from measures.messages import Messages
from workers.rewards.source import RewardSource, Scores

Change = Callable[[float, Messages, str], float]


class Faulty:
    """A source whose values are changed, text by text; the same text always gets the same."""

    def __init__(self, source: RewardSource, change: Change) -> None:
        self.source, self.change = source, change

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        fair = self.source.score(prompts, responses)
        values = [
            self.change(value, prompt, text)
            for value, prompt, text in zip(fair.values, prompts, responses, strict=True)
        ]
        return replace(fair, values=values, parts={"reward_model": values})


class Slow:
    """A source that answers right, after `seconds`."""

    def __init__(self, source: RewardSource, seconds: float) -> None:
        self.source, self.seconds = source, seconds

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        time.sleep(self.seconds)
        return self.source.score(prompts, responses)


def capped(most: float) -> Change:
    """Everything of some worth is worth the same."""
    return lambda value, prompt, text: min(value, most)


def rare(least: float) -> Change:
    """One for an outstanding answer, nothing for all others."""
    return lambda value, prompt, text: float(value > least)


def outlying(share: float, factor: float) -> Change:
    """`share` of the answers get `factor` times what they are worth."""
    return lambda value, prompt, text: value * (factor if chance(prompt, text) < share else 1.0)


def random(mean: float, deviation: float) -> Change:
    """Nothing of the answer is in its score."""
    curve = NormalDist(mean, deviation)
    return lambda value, prompt, text: curve.inv_cdf(chance(prompt, text))


def chance(prompt: Messages, text: str) -> float:
    """A number between 0 and 1 that hangs on the words alone."""
    words = f"{prompt[-1]['content']}\n{text}".encode()
    return (int.from_bytes(hashlib.sha256(words).digest()[:6], "big") + 0.5) / 2**48
