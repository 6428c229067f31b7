"""The table of guardrails in the launch form: a limit, a number of looks and an action per rule.

What is left as it is is not written into the configuration, so a later version's better default
reaches a cloned run too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms

from workers.contract.guards import TESTS, GuardRule, guard_errors, rules_of

PREFIX = "g_"
ACTION_WORDS = {
    "off": "off",
    "warn": "warn",
    "adjust": "adjust and go on",
    "stop": "stop and keep",
}
_WHERE = re.compile(r"guards\.(\w+)(?:\.(\w+))?: (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class GuardRow:
    """One rule with its bound fields; `changed` where this form departs from the default."""

    rule: GuardRule
    test: str
    threshold: forms.BoundField | None
    patience: forms.BoundField | None
    action: forms.BoundField
    changed: bool

    @property
    def errors(self) -> list[str]:
        bound = (self.threshold, self.patience, self.action)
        return [error for field in bound if field is not None for error in field.errors]


def guard_fields(kind: str, chosen: Mapping[str, Any]) -> dict[str, forms.Field]:
    """The fields of every rule of `kind`, filled with what `chosen` (a setting `guards`) says."""
    sound = chosen if isinstance(chosen, Mapping) and not guard_errors(kind, chosen) else {}
    fields: dict[str, forms.Field] = {}
    for rule in rules_of(kind, sound):
        fields[f"{PREFIX}{rule.name}_action"] = forms.ChoiceField(
            label=f"What happens: {rule.title}",
            choices=[(action, ACTION_WORDS.get(action, action)) for action in rule.actions],
            initial=rule.action,
            required=False,
        )
        if not rule.has_limit:  # nothing of it can be chosen but the action
            continue
        fields[f"{PREFIX}{rule.name}_threshold"] = forms.FloatField(
            label=f"Limit: {rule.title}",
            initial=rule.threshold,
            required=False,
            widget=forms.NumberInput({"step": "any"}),
        )
        fields[f"{PREFIX}{rule.name}_patience"] = forms.IntegerField(
            label=f"Looks: {rule.title}",
            initial=rule.patience[0],
            required=False,
            min_value=1,
            max_value=100,
        )
    return fields


def guard_rows(form: forms.Form, kind: str) -> list[GuardRow]:
    rows = []
    for default in rules_of(kind):
        name = f"{PREFIX}{default.name}"
        action = form[f"{name}_action"]
        has_limit = f"{name}_threshold" in form.fields
        threshold = form[f"{name}_threshold"] if has_limit else None
        patience = form[f"{name}_patience"] if has_limit else None
        changed = str(action.value() or default.action) != default.action or any(
            field is not None and not _same(field.value(), value)
            for field, value in ((threshold, default.threshold), (patience, default.patience[0]))
        )
        rows.append(GuardRow(default, TESTS[default.test], threshold, patience, action, changed))
    return rows


def _same(shown: Any, value: float) -> bool:
    """Whether what stands in a field is `value`; an empty field means the default."""
    try:
        return shown in (None, "") or float(shown) == value
    except ValueError:
        return False


def guards_chosen(kind: str, cleaned: Mapping[str, Any]) -> dict[str, Any]:
    """The setting `guards`: of each rule what differs from its default. A field left empty, or one
    that has an error, is as it is."""
    chosen: dict[str, Any] = {}
    for rule in rules_of(kind):
        name = f"{PREFIX}{rule.name}"
        given = {
            "threshold": cleaned.get(f"{name}_threshold"),
            "patience": cleaned.get(f"{name}_patience"),
            "action": cleaned.get(f"{name}_action") or None,
        }
        as_is = {
            "threshold": rule.threshold,
            "patience": rule.patience[0],
            "action": rule.action,
        }
        own = {key: value for key, value in given.items() if value not in (None, as_is[key])}
        if own:
            chosen[rule.name] = own["action"] if set(own) == {"action"} else own
    return chosen


def guard_complaint(error: str) -> tuple[str, str]:
    """(form field, what is wrong with it) of an error of the setting `guards`."""
    parts = _WHERE.fullmatch(error)
    rule, part, words = parts.groups() if parts else ("", None, error)
    return f"{PREFIX}{rule}_{part or 'action'}", words
