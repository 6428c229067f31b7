"""Guardrails of a kind of run: which there are, what an engineer may choose, what applies.

Standard library only, so that pages show the same thresholds, actions and advice the workers use.
A configuration chooses by name:

    guards = {"reference_kl": {"threshold": 8, "action": "stop"}, "entropy_floor": "off"}
"""

import difflib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workers.contract.guard_rules import ACTIONS, ADJUST, LINKS, RULES, TESTS, Adjustment, GuardRule

__all__ = [
    "ACTIONS",
    "LINKS",
    "RULES",
    "TESTS",
    "Adjustment",
    "GuardRule",
    "failure_kind",
    "guard_errors",
    "rules_of",
]

# Settings that can be changed while a run of the kind trains.
ADJUSTABLE: Mapping[str, frozenset[str]] = {
    "ppo": frozenset({"learning_rate", "kl_coef", "update_epochs", "entropy_coef"}),
    "grpo": frozenset({"learning_rate"}),
    "dpo": frozenset({"learning_rate"}),
    "reward": frozenset({"learning_rate"}),
    "sft": frozenset({"learning_rate"}),
}
FIELDS = ("threshold", "action", "patience")


def rules_of(kind: str, overrides: Mapping[str, Any] | None = None) -> list[GuardRule]:
    """The rules of a kind with what `overrides` chooses; its `action` is the one that applies.

    Only what a run of the kind can do is left among the actions. `overrides` must be without
    errors (`guard_errors`).
    """
    return [_chosen(_fitted(rule, kind), overrides or {}) for rule in RULES if kind in rule.kinds]


def guard_errors(kind: str, overrides: Mapping[str, Any]) -> list[str]:
    """What is wrong with the setting `guards` of a run of `kind`; every error, in words."""
    rules = {rule.name: rule for rule in rules_of(kind)}
    errors = []
    for name, choice in overrides.items():
        rule = rules.get(name)
        if rule is None:
            errors.append(_unknown(name, kind, rules))
        elif isinstance(choice, Mapping):
            errors += _choice_errors(rule, choice)
        else:
            errors += _action_errors(rule, choice)
    return errors


def failure_kind(rule: str) -> str:
    """The stable code with which a run fails that this rule stopped."""
    return rule if rule == "non_finite" else f"guard_{rule}"


def _fitted(rule: GuardRule, kind: str) -> GuardRule:
    possible = tuple(
        change for change in rule.adjustment if change.setting in ADJUSTABLE.get(kind, ())
    )
    actions = rule.actions if possible else tuple(a for a in rule.actions if a != ADJUST)
    return replace(rule, adjustment=possible, actions=actions)


def _chosen(rule: GuardRule, overrides: Mapping[str, Any]) -> GuardRule:
    choice = overrides.get(rule.name)
    if choice is None:
        return rule
    if not isinstance(choice, Mapping):
        return replace(rule, action=choice)
    changes = {name: choice[name] for name in ("threshold", "action") if name in choice}
    if "patience" in choice:
        k = choice["patience"]
        changes["patience"] = (k, max(k, rule.patience[1]) if k > 1 else 1)
    return replace(rule, **changes)


def _choice_errors(rule: GuardRule, choice: Mapping[str, Any]) -> list[str]:
    where = f"guards.{rule.name}"
    errors = [
        f"{where}.{name}: is none of {', '.join(FIELDS)}" for name in choice if name not in FIELDS
    ]
    threshold = choice.get("threshold", rule.threshold)
    if (
        isinstance(threshold, bool)
        or not isinstance(threshold, int | float)
        or not math.isfinite(threshold)
    ):
        errors.append(f"{where}.threshold: must be a number ({rule.unit})")
    elif "threshold" in choice and not rule.has_limit:
        errors.append(f"{where}.threshold: cannot be changed")
    patience = choice.get("patience", 1)
    if isinstance(patience, bool) or not isinstance(patience, int) or not 1 <= patience <= 100:
        errors.append(f"{where}.patience: must be a whole number of checks from 1 to 100")
    elif "patience" in choice and not rule.has_limit:
        errors.append(f"{where}.patience: cannot be changed")
    return errors + (_action_errors(rule, choice["action"]) if "action" in choice else [])


def _action_errors(rule: GuardRule, action: Any) -> list[str]:
    if action in rule.actions and isinstance(action, str):
        return []
    return [f"guards.{rule.name}: the action {action!r} is none of {', '.join(rule.actions)}"]


def _unknown(name: str, kind: str, rules: Mapping[str, GuardRule]) -> str:
    close = difflib.get_close_matches(name, rules, n=1)
    hint = f" (is '{close[0]}' meant?)" if close else ""
    return f"guards.{name}: is no guardrail of {kind}{hint}"
