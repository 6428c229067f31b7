"""Faults of code, planted by replacing one function of the recipe in this process for one run.

Each returns a context manager. Nothing here is told to the run or to its detectors.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.diagnosis_world import rewards
from benchmarks.diagnosis_world.rewards import Change
from benchmarks.diagnosis_world.world import World
from workers.ppo import setup, trainer
from workers.ppo import update as updating
from workers.recipes import ppo as recipe
from workers.rollouts import drawing

Plant = Callable[[World], AbstractContextManager[object]]


def reward(change: Callable[[World], Change]) -> Plant:
    def plant(world: World) -> AbstractContextManager[object]:
        real, chosen = trainer.build_reward, change(world)
        return patch.object(
            trainer, "build_reward", lambda *a, **k: rewards.Faulty(real(*a, **k), chosen)
        )

    return plant


def slow_reward(seconds: float) -> Plant:
    def plant(world: World) -> AbstractContextManager[object]:
        real = trainer.build_reward
        return patch.object(
            trainer, "build_reward", lambda *a, **k: rewards.Slow(real(*a, **k), seconds)
        )

    return plant


def aliased_reference(world: World) -> AbstractContextManager[object]:
    """The second load returns what the first one did."""
    real, kept = setup.load_causal, []

    def load(*args: Any, **kwargs: Any) -> Any:
        if not kept:
            kept.append(real(*args, **kwargs))
        return kept[0]

    return patch.object(setup, "load_causal", load)


def padding_in_the_loss(world: World) -> AbstractContextManager[object]:
    """The mask covers the padding after an answer too."""
    real = drawing.generate

    def generate(*args: Any, **kwargs: Any) -> Any:
        drawn = real(*args, **kwargs)
        return replace(drawn, response_mask=torch.ones_like(drawn.response_mask))

    return patch.object(drawing, "generate", generate)


def no_done(world: World) -> AbstractContextManager[object]:
    """The end of an answer is not taken for the end of its episode: its value continues."""
    real = recipe.gae

    def gae(given: Any, values: Any, mask: Any, **kwargs: Any) -> Any:
        rows, last = torch.arange(len(mask)), mask.sum(1) - 1
        beyond = given.clone()
        beyond[rows, last] += values[rows, last]
        return real(beyond, values, mask, **kwargs)

    return patch.object(recipe, "gae", gae)


def sampler(**changes: Callable[[Any], Any]) -> Plant:
    """Answers are drawn by other rules than the trainer believes: {field: old value -> new}."""

    def plant(world: World) -> AbstractContextManager[object]:
        real = drawing.generate

        def generate(model: Any, names: Any, ids: Any, sampling: Any, **kwargs: Any) -> Any:
            new = {name: change(getattr(sampling, name)) for name, change in changes.items()}
            return real(model, names, ids, replace(sampling, **new), **kwargs)

        return patch.object(drawing, "generate", generate)

    return plant


def stale(updates: int, *, relabelled: bool) -> Plant:
    """What is learned from was drawn `updates` updates ago; `relabelled` says it was not."""

    def plant(world: World) -> AbstractContextManager[object]:
        real, waiting = recipe.PPOTrainer.roll_out, deque()

        def roll_out(self: Any, step: int, times: Any) -> Any:
            waiting.append(real(self, step, times))
            old = waiting.popleft() if len(waiting) > updates else waiting[0]
            if relabelled:
                old = replace(old, policy_version=self.state.policy_version)
            return old

        return patch.object(recipe.PPOTrainer, "roll_out", roll_out)

    return plant


def dead_critic(world: World) -> AbstractContextManager[object]:
    """The value head is left out of training and stays at nought."""
    real = trainer.make_optimizer

    def make(*args: Any, **kwargs: Any) -> Any:
        optimizer = real(*args, **kwargs)
        optimizer.param_groups[1]["base_lr"] = 0.0
        return optimizer

    return patch.object(trainer, "make_optimizer", make)


def half_precision_overflow(*, from_step: int) -> Plant:
    """From a step on the loss is scaled in half precision until it is no number."""

    @contextmanager
    def plant(world: World) -> Iterator[None]:
        real_loss, real_learn, at = updating.policy_loss, recipe.PPOTrainer.learn, [0]

        def learn(self: Any, *args: Any, **kwargs: Any) -> Any:
            at[0] = self.state.step + 1
            return real_learn(self, *args, **kwargs)

        def loss(*args: Any, **kwargs: Any) -> Any:
            value = real_loss(*args, **kwargs)
            if at[0] < from_step:
                return value
            return (value.half() * 2.0**16).float() / 2.0**16

        with (
            patch.object(recipe.PPOTrainer, "learn", learn),
            patch.object(updating, "policy_loss", loss),
        ):
            yield

    return plant


def other_protocol(*, from_step: int) -> Plant:
    """From a step on, evaluations are made at a lower temperature or on other prompts."""

    def plant(world: World) -> AbstractContextManager[object]:
        real = recipe.PPOTrainer.evaluate

        def evaluate(self: Any) -> Any:
            if self.state.step < from_step:
                return real(self)
            if world.seed % 2:
                changed = {"settings": replace(self.settings, temperature=0.3)}
            else:
                messages, ids = self.prompts.at(list(range(len(self.eval_prompts))))
                changed = {"eval_prompts": replace(self.eval_prompts, messages=messages, ids=ids)}
            before = {name: getattr(self, name) for name in changed}
            vars(self).update(changed)
            try:
                return real(self)
            finally:
                vars(self).update(before)

        return patch.object(recipe.PPOTrainer, "evaluate", evaluate)

    return plant
