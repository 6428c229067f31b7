"""The run's reward, asked anew: a cache would only repeat what it was told before."""

from collections.abc import Mapping
from typing import Any

from workers.config.inference import AskingSettings
from workers.context import RunContext
from workers.rewards.build import build_reward
from workers.rewards.source import RewardSource

_CACHED = ("model", "http")


def fresh_reward(context: RunContext, settings: AskingSettings) -> RewardSource:
    return build_reward(
        context, without_cache(settings.reward), batch_size=settings.reward_batch_size
    )


def without_cache(reward: Mapping[str, Any]) -> dict[str, Any]:
    """The same reward with every cache in it switched off."""
    found = dict(reward)
    if found.get("type", "model") in _CACHED:
        found["cache"] = False
    if isinstance(found.get("parts"), list):
        found["parts"] = [
            {**part, "source": without_cache(part.get("source") or {})} for part in found["parts"]
        ]
    return found
