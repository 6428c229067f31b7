"""The settings of every recipe: one check for form, API, command line and trainer.

    settings_for("ppo", {"preset": "demo", "kl_coef": 0.1})

`preset` names a set of values to start from (`workers.config.presets`); everything else in the
configuration overrides it. No torch, no Django.
"""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from workers.config.grpo import GRPOSettings
from workers.config.inference import (
    AssessSettings,
    CheckSettings,
    DrillSettings,
    EvaluateSettings,
    GenerateSettings,
    ProbeSettings,
)
from workers.config.parsing import SettingField, SettingsError, read, setting_fields
from workers.config.policy import PPOSettings
from workers.config.presets import PRESETS, PURPOSES
from workers.config.training import DPOSettings, RewardSettings, SFTSettings
from workers.rules.choices import guard_errors

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
    "drill": DrillSettings,
}

__all__ = [
    "SETTINGS",
    "SettingField",
    "SettingsError",
    "preset_purposes",
    "recipe_config",
    "recipe_fields",
    "recipe_presets",
    "settings_for",
]


def settings_for(kind: str, config: Mapping[str, Any]) -> Any:
    """The settings of `kind`, preset applied. Raises `SettingsError` with everything wrong."""
    name = config.get("preset")
    presets = recipe_presets(kind)
    if name is not None and name not in presets:
        known = ", ".join(sorted(presets)) or "(none exist)"
        raise SettingsError([f"preset: '{name}' is none of {known}"])
    chosen = recipe_config(kind, config)
    chosen.pop("preset", None)  # given as None
    settings, errors = read(SETTINGS[kind], chosen)
    guards = chosen.get("guards")
    # Which guardrails there are depends on the kind, which a class of settings does not know.
    if isinstance(guards, Mapping) and any(f.name == "guards" for f in fields(SETTINGS[kind])):
        errors = [*errors, *guard_errors(kind, guards)]
    if errors:
        raise SettingsError(errors)
    return settings


@cache
def _fields(kind: str) -> tuple[SettingField, ...]:
    return tuple(setting_fields(SETTINGS[kind])) if kind in SETTINGS else ()


def recipe_fields(kind: str) -> list[SettingField]:
    """The fields of a kind in the order of its declaration; none for a kind without a recipe."""
    return list(_fields(kind))


def recipe_presets(kind: str) -> Mapping[str, Mapping[str, Any]]:
    """Named sets of values to start from."""
    return PRESETS.get(kind, {})


def preset_purposes(kind: str) -> Mapping[str, str]:
    """What each preset is for, in a sentence; a preset may have none."""
    return PURPOSES.get(kind, {})


def recipe_config(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with its preset written out; defaults are not added.

    A preset this version does not know stays named.
    """
    own = dict(config)
    values = recipe_presets(kind).get(own.get("preset") or "")
    if values is None:
        return own
    del own["preset"]
    return dict(values) | own
