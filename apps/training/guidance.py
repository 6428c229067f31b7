"""What to do about a run that ended badly: as the playbook has it, and as changes to its
configuration."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.common import playbook
from apps.common.numbers import figure
from apps.training.models import Alert, Run
from workers.config import recipe_config, recipe_fields
from workers.rules.choices import failure_kind, rules_of
from workers.rules.rule import Rule
from workers.rules.words import test_words

PREFLIGHT = "preflight_"


def rule_of(run: Run) -> Rule | None:
    """The guardrail that stopped a run, as it was set there; None where none did."""
    if not run.failure_kind:
        return None
    return next((r for r in rules_in_force(run) if failure_kind(r.name) == run.failure_kind), None)


def rules_in_force(run: Run) -> list[Rule]:
    """The guardrails of the run as they were set there."""
    return [
        rule for rule in rules_of(run.kind, recipe_config(run.kind, run.config)) if rule.actions
    ]


def advised_changes(run: Run) -> dict[str, Any]:
    """{setting: value} that the rule which stopped the run would have set, had it adjusted."""
    rule = rule_of(run)
    if rule is None:
        return {}
    config = recipe_config(run.kind, run.config)
    defaults = {option.name: option.default for option in recipe_fields(run.kind)}
    changes = {}
    for change in rule.adjustment:
        value = config.get(change.setting, defaults.get(change.setting))
        if isinstance(value, int | float) and not isinstance(value, bool):
            changed = change.apply(value)
            if changed != value:
                changes[change.setting] = changed
    return changes


# What a check before the first step found when it blocks. The run's own message has the numbers.
PREFLIGHT_TITLES = {
    "configuration": "The configuration does not fit together",
    "reward": "The reward does not rank real answers over noise",
    "reward_shape": "The scores have no shape to learn from",
    "reward_people": "The reward and people point in opposite directions",
    "critic": "The critic cannot learn a fixed rollout",
    "data": "The data cannot be trained on",
    "lengths": "Too much of the data does not fit the lengths",
    "memory": "The run does not fit on its device",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed run in plain words. measured: what fired, with value, limit and step; safe: what
    may be built on; changes: (setting, now, advised)."""

    title: str
    measured: str
    advice: str
    is_guard: bool
    changes: list[tuple[str, Any, Any]]


def failure_of(run: Run, alerts: Sequence[Alert]) -> Failure | None:
    """Of a run that a guardrail or a preflight check ended; None for every other run."""
    if run.state != Run.State.FAILED:
        return None
    rule = rule_of(run)
    if rule is not None:
        return Failure(
            title=f"{rule.title}.",
            measured=_measured(rule, run, alerts),
            advice=playbook.advice(rule.name),
            is_guard=True,
            changes=_changes(run),
        )
    if run.failure_kind.startswith(PREFLIGHT):
        check = run.failure_kind.removeprefix(PREFLIGHT)
        title = PREFLIGHT_TITLES.get(check, "A check before the first step failed")
        return Failure(
            title=f"{title}.",
            measured="Nothing was trained: the check comes before the first step.",
            advice=playbook.next_step(run.failure_kind),
            is_guard=False,
            changes=[],
        )
    return None


def _measured(rule: Rule, run: Run, alerts: Sequence[Alert]) -> str:
    """ "objective/kl was 12.3 nats per sequence at step 43; the limit is 10 (2 of 3 looks)." """
    fired = [one for one in alerts if one.rule == rule.name]
    if not fired:
        return f"The run ended at step {run.step:,}."
    alert = max(fired, key=lambda one: (one.step, one.pk or 0))
    if rule.test == "finite" or alert.value is None:
        return f"It fired at step {alert.step:,}."
    side = "over" if rule.bound == "above" else "under"
    limit = rule.limit if alert.threshold is None else alert.threshold
    checks = "" if rule.patience[1] == 1 else f" ({rule.patience_words})"
    read = "" if rule.test == "level" else f" ({test_words(rule)})"
    return (
        f"{rule.metric}{read} was {figure(alert.value)} at step {alert.step:,}, "
        f"{side} the limit of {figure(limit)} {rule.unit}{checks}."
    )


def _changes(run: Run) -> list[tuple[str, Any, Any]]:
    config = recipe_config(run.kind, run.config)
    defaults = {option.name: option.default for option in recipe_fields(run.kind)}
    return [
        (name, config.get(name, defaults.get(name)), value)
        for name, value in advised_changes(run).items()
    ]


_WHOSE = {
    "data": "Data problem.",
    "configuration": "Configuration problem.",
    "machine": "Machine problem.",
    "bug": "Bug in Concord.",
    "guard": "A guardrail stopped it on purpose.",
    "user": "Ended by a person.",
}


def next_step(run: Run) -> str:
    """Whose turn it is, and what they do; empty for a run that has not failed."""
    known = playbook.next_step(run.failure_kind, run.fault) if run.failure_kind else ""
    return f"{_WHOSE.get(run.fault, '')} {known}".strip()
