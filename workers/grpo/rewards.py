"""What a step's answers are worth: the function that TRL asks, and what it remembers of them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from measures.groups import silent_groups
from workers.config.grpo import GRPOSettings
from workers.contract.events import (
    Fault,
    RecipeError,
)
from workers.data.snapshot import Messages
from workers.models.invariants import check_finite
from workers.ppo.first import by_first
from workers.rewards.ensemble import threshold_of
from workers.rewards.source import RewardSource, Scores


@dataclass(frozen=True, slots=True)
class Judged:
    """N answers in groups, as they were drawn: G answers to a prompt, then G to the next.

    `rewards` are the scores less the penalty for no end; `counts` says which answers teach;
    `checked` are the scores of the source that is only asked, where it was.
    """

    prompts: list[Messages]
    texts: list[str]
    token_ids: list[list[int]]
    ended: list[bool]
    scores: Scores
    rewards: list[float]
    counts: list[bool]
    checked: Scores | None

    @property
    def lengths(self) -> list[int]:
        """Tokens per answer, the end token included."""
        return [len(ids) for ids in self.token_ids]

    def grouped(self, values: Sequence[float] | Sequence[bool], size: int) -> np.ndarray:
        """(P, G): one row a prompt."""
        return np.asarray(values).reshape(-1, size)

    def silent(self, size: int) -> np.ndarray:
        """(P,): groups whose rewards are alike but for rounding."""
        return silent_groups(self.grouped(self.rewards, size), self.grouped(self.counts, size))


class GroupReward:
    """Called by TRL with a step's answers; `last` holds what it was told and what it said.

    An answer that an ensemble disagrees about too much, or that breaks a hard constraint without a
    penalty, gets no reward (None): TRL leaves it out of its group's mean and gives it no advantage.
    """

    __name__ = "reward"  # TRL names its columns by it

    def __init__(
        self,
        source: RewardSource,
        tokenizer: PreTrainedTokenizerBase,
        settings: GRPOSettings,
        *,
        stop: Sequence[int],
        check: RewardSource | None = None,
        check_is_model: bool = False,
    ) -> None:
        self.source = source
        self.check = check
        self.tokenizer = tokenizer
        self.settings = settings
        self.stop = set(stop)
        self.check_is_model = check_is_model  # asked only now and then: it costs as the reward does
        self.ask_check = True
        self.seconds = 0.0
        self.last: Judged | None = None

    @property
    def threshold(self) -> float | None:
        """The disagreement over which an answer teaches nothing; None without an ensemble."""
        return threshold_of(self.source)

    def __call__(
        self, prompts: list[Messages], completion_ids: list[list[int]], **_: Any
    ) -> list[float | None]:
        started = time.monotonic()
        texts = [self.tokenizer.decode(ids, skip_special_tokens=True) for ids in completion_ids]
        scores = _asked(self.source, prompts, texts, "the reward")
        ended = [ids[-1] in self.stop for ids in completion_ids]
        rewards = [
            score - (0.0 if end else self.settings.missing_eos_penalty)
            for score, end in zip(scores.values, ended, strict=True)
        ]
        counts = self._counts(scores)
        checked = None
        if self.check is not None and self.ask_check:
            checked = _asked(self.check, prompts, texts, "the verifier")
        self.last = Judged(
            list(prompts), texts, completion_ids, ended, scores, rewards, counts, checked
        )
        self.seconds = time.monotonic() - started
        return [reward if kept else None for reward, kept in zip(rewards, counts, strict=True)]

    def _counts(self, scores: Scores) -> list[bool]:
        """Which answers may teach: those an ensemble agrees about and no constraint withholds."""
        counts = [True] * len(scores.values)
        if scores.disagreement is not None and self.threshold is not None:
            counts = [spread <= self.threshold for spread in scores.disagreement]
        withheld = scores.withheld or [False] * len(counts)
        return [kept and not held for kept, held in zip(counts, withheld, strict=True)]


def _asked(
    source: RewardSource, prompts: Sequence[Messages], texts: Sequence[str], name: str
) -> Scores:
    """The scores, one finite number an answer; anything else ends the run, for TRL would train on
    what is left. The first rank asks: a service need not answer alike twice."""
    try:
        scores = by_first(lambda: source.score(prompts, texts))
    except (RecipeError, MemoryError, torch.OutOfMemoryError):
        raise  # they have names of their own
    except Exception as error:
        raise RecipeError(
            "reward_failed",
            Fault.BUG,
            f"{name} failed on a batch of {len(texts)} answers: {type(error).__name__}: {error}",
        ) from error
    values = scores.values
    if len(values) != len(texts) or any(value is None for value in values):
        told = sum(value is not None for value in values)
        raise RecipeError(
            "reward_failed",
            Fault.BUG,
            f"{name} gave {told} numbers for {len(texts)} answers",
        )
    check_finite(name, torch.tensor(values))
    return scores
