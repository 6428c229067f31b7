"""The source of rewards a job's configuration names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.context import RunContext
from workers.rewards.ensemble import EnsembleReward
from workers.rewards.layout import is_ensemble
from workers.rewards.model import ModelReward
from workers.rewards.precision import FLOAT32
from workers.rewards.source import RewardSource
from workers.rewards.token_count import TokenCount


def load_reward(
    folder: Path,
    *,
    name: str,
    batch_size: int,
    max_length: int | None = None,
    precision: str = FLOAT32,
) -> ModelReward | EnsembleReward:
    """A reward model's folder, whether it is one model or an ensemble (layout.py)."""
    kind = EnsembleReward if is_ensemble(folder) else ModelReward
    return kind(
        folder, name=name, batch_size=batch_size, max_length=max_length, precision=precision
    )


def build_reward(
    context: RunContext, reward: Mapping[str, Any], *, batch_size: int
) -> RewardSource:
    """`reward` was checked by the settings already; a model comes from the input 'reward'."""
    if reward["type"] == "token_count":
        return TokenCount(reward["token"], cap=reward.get("cap"))
    return load_reward(
        context.input_path("reward"),
        name="reward_model",
        batch_size=batch_size,
        max_length=reward.get("max_length"),
    )


def build_judge(context: RunContext, *, batch_size: int) -> RewardSource | None:
    """The held-out reward model (input 'judge'): it is asked, and never optimised against."""
    if not context.has_input("judge"):
        return None
    return load_reward(context.input_path("judge"), name="judge", batch_size=batch_size)
