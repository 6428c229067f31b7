"""The rules of a run: which there are, what an engineer may choose, what applies.

A configuration chooses by name:

    guards = {"reference_kl": {"threshold": 8, "action": "stop"}, "entropy_floor": "off"}
"""

import difflib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workers.rules.rule import ADJUST, Rule
from workers.rules.table import RULES

# Settings that can be changed while a run of the kind trains.
ADJUSTABLE: Mapping[str, frozenset[str]] = {
    "ppo": frozenset({"learning_rate", "kl_coef", "update_epochs", "entropy_coef"}),
    "grpo": frozenset({"learning_rate"}),
    "dpo": frozenset({"learning_rate"}),
    "kto": frozenset({"learning_rate"}),
    "reward": frozenset({"learning_rate"}),
    "process_reward": frozenset({"learning_rate"}),
    "sft": frozenset({"learning_rate"}),
}
FIELDS = ("threshold", "action", "patience")
BY_NAME: Mapping[str, Rule] = {name: rule for rule in reversed(RULES) for name in rule.names}
# What diagnosing rules read where it is there.
_BESIDE = frozenset({"eval/reward_data_accuracy", "eval/canary_pairs", "epoch"})


def guardrails_of(kind: str, overrides: Mapping[str, Any] | None = None) -> list[Rule]:
    """The rules of a kind that act, with what `overrides` chooses; `action` is what applies.

    Only what a run of the kind can do is left among the actions. `overrides` must be without
    errors (`guard_errors`).
    """
    return [
        _chosen(_fitted(rule, kind), overrides or {})
        for rule in RULES
        if rule.actions and kind in rule.kinds
    ]


def diagnosing_rules(kind: str, config: Mapping[str, Any] | None = None) -> list[Rule]:
    """The rules of a kind that say which stage broke. A rule may well give most answers one score:
    where `config` names another reward than a model, what only models do wrong is not looked for.
    """
    return [rule for rule in rules_of(kind, config) if rule.diagnoses]


def rules_of(kind: str, config: Mapping[str, Any] | None = None) -> list[Rule]:
    """All rules of a run with this configuration, outermost stage first. Choices that are wrong,
    as those of another version are, count for nothing."""
    config = config or {}
    chosen = config.get("guards")
    sound = isinstance(chosen, Mapping) and not guard_errors(kind, chosen)
    reward = config.get("reward")
    by_model = not isinstance(reward, Mapping) or reward.get("type", "model") == "model"
    return [
        _chosen(_fitted(rule, kind), chosen if isinstance(chosen, Mapping) and sound else {})
        for rule in RULES
        if kind in rule.kinds and (by_model or not rule.of_models)
    ]


def needed_metrics(kind: str) -> list[str]:
    """Every metric that a diagnosis of this kind of run reads."""
    return sorted(_BESIDE.union(*(rule.metrics for rule in diagnosing_rules(kind))))


def compared_metrics(kind: str) -> list[str]:
    """The metrics that are compared with healthy runs: all that a baseline needs."""
    found = [rule for rule in rules_of(kind) if rule.test == "unusual" or "healthy" in rule.given]
    return sorted({rule.metric for rule in found})


def title_of(rule: str) -> str:
    """In words; of a rule that is none of ours, its name."""
    known = BY_NAME.get(rule)
    return known.title if known is not None else rule.replace("_", " ").capitalize()


def names_of(rule: str) -> tuple[str, ...]:
    """A rule's name with those that it had before."""
    known = BY_NAME.get(rule)
    return known.names if known is not None else (rule,)


def failure_kind(rule: str) -> str:
    """The stable code with which a run fails that this rule stopped."""
    return rule if rule == "non_finite" else f"guard_{rule}"


def guard_errors(kind: str, overrides: Mapping[str, Any]) -> list[str]:
    """What is wrong with the setting `guards` of a run of `kind`; every error, in words."""
    rules = {rule.name: rule for rule in guardrails_of(kind)}
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


def _fitted(rule: Rule, kind: str) -> Rule:
    possible = tuple(
        change for change in rule.adjustment if change.setting in ADJUSTABLE.get(kind, ())
    )
    actions = rule.actions if possible else tuple(a for a in rule.actions if a != ADJUST)
    return replace(rule, adjustment=possible, actions=actions)


def _chosen(rule: Rule, overrides: Mapping[str, Any]) -> Rule:
    choice = overrides.get(rule.name)
    if choice is None:
        return rule
    if not isinstance(choice, Mapping):
        return replace(rule, action=choice)
    changes: dict[str, Any] = {}
    if "threshold" in choice:
        changes["limit"] = choice["threshold"]
    if "action" in choice:
        changes["action"] = choice["action"]
    if "patience" in choice:
        k = choice["patience"]
        changes["patience"] = (k, max(k, rule.patience[1]) if k > 1 else 1)
    return replace(rule, **changes)


def _choice_errors(rule: Rule, choice: Mapping[str, Any]) -> list[str]:
    where = f"guards.{rule.name}"
    errors = [
        f"{where}.{name}: is none of {', '.join(FIELDS)}" for name in choice if name not in FIELDS
    ]
    threshold = choice.get("threshold", rule.limit)
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


def _action_errors(rule: Rule, action: Any) -> list[str]:
    if action in rule.actions and isinstance(action, str):
        return []
    return [f"guards.{rule.name}: the action {action!r} is none of {', '.join(rule.actions)}"]


def _unknown(name: str, kind: str, rules: Mapping[str, Rule]) -> str:
    close = difflib.get_close_matches(name, rules, n=1)
    hint = f" (is '{close[0]}' meant?)" if close else ""
    return f"guards.{name}: is no guardrail of {kind}{hint}"
