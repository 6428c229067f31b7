"""The configuration of every recipe, checked without torch.

    settings_for("ppo", {"preset": "demo", "kl_coef": 0.1})

`preset` names a set of values to start from (`workers.config.presets`); everything else in the
job's configuration overrides it.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from workers.config.assessment import AssessSettings
from workers.config.checks import CheckSettings, ProbeSettings
from workers.config.grpo import GRPOSettings
from workers.config.parsing import describe, read
from workers.config.policy import PPOSettings
from workers.config.preference import DPOSettings, RewardSettings
from workers.config.presets import PRESETS
from workers.config.sampling import EvaluateSettings, GenerateSettings
from workers.config.supervised import SFTSettings
from workers.context import RecipeError
from workers.contract.events import Fault
from workers.contract.guards import guard_errors

SETTINGS: dict[str, type] = {
    "sft": SFTSettings,
    "reward": RewardSettings,
    "dpo": DPOSettings,
    "ppo": PPOSettings,
    "grpo": GRPOSettings,
    "generate": GenerateSettings,
    "evaluate": EvaluateSettings,
    "assess": AssessSettings,
    "check": CheckSettings,
    "probe": ProbeSettings,
}

__all__ = ["SETTINGS", "describe", "settings_for"]


def settings_for(kind: str, values: Mapping[str, Any]) -> Any:
    """The settings of `kind`, preset applied. Raises `RecipeError` (bad_config)."""
    own = dict(values)
    name = own.pop("preset", None)
    presets = PRESETS.get(kind, {})
    if name is not None and name not in presets:
        raise RecipeError(
            "bad_config",
            Fault.CONFIGURATION,
            f"preset: '{name}' is none of {', '.join(sorted(presets)) or '(none exist)'}",
        )
    chosen = presets.get(name, {}) | own
    config, errors = read(SETTINGS[kind], chosen)
    errors = sorted({*errors, *_guard_errors(kind, chosen)})
    if errors:
        raise RecipeError("bad_config", Fault.CONFIGURATION, "; ".join(errors))
    return config


def _guard_errors(kind: str, values: Mapping[str, Any]) -> list[str]:
    """Which guardrails there are depends on the kind, which a class of settings does not know."""
    guards = values.get("guards")
    known = any(f.name == "guards" for f in fields(SETTINGS[kind]))
    return guard_errors(kind, guards) if known and isinstance(guards, Mapping) else []
