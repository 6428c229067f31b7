"""What to do about a run that ended badly: in words, and as changes to its configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.common.templatetags.frame import figure
from apps.training.models import Alert, Run
from workers.config import recipe_config, recipe_fields
from workers.contract.guards import TESTS, GuardRule, failure_kind, rules_of

PREFLIGHT = "preflight_"


def rule_of(run: Run) -> GuardRule | None:
    """The guardrail that stopped a run, as it was set there; None where none did."""
    if not run.failure_kind:
        return None
    return next((r for r in rules_in_force(run) if failure_kind(r.name) == run.failure_kind), None)


def rules_in_force(run: Run) -> list[GuardRule]:
    """The guardrails of the run as they were set there."""
    chosen = recipe_config(run.kind, run.config).get("guards")
    try:
        return rules_of(run.kind, chosen if isinstance(chosen, Mapping) else {})
    except (TypeError, ValueError, AttributeError):  # of another version
        return rules_of(run.kind)


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


# What a check before the first step means when it blocks. The run's own message has the numbers.
PREFLIGHT_WORDS: dict[str, tuple[str, str]] = {
    "configuration": (
        "The configuration does not fit together",
        "Clone the run and correct what the message names.",
    ),
    "reward": (
        "The reward does not rank real answers over noise",
        "A policy would learn to please a broken measure. Look at the histogram among the checks, "
        "score a few answers by hand, and mend the reward before anything is trained against it. "
        "With reward_check: warn a run goes on all the same.",
    ),
    "reward_shape": (
        "The scores have no shape to learn from",
        "Where all answers score alike there is no direction. Take easier prompts, a better "
        "starting policy, or a reward with partial credit.",
    ),
    "reward_people": (
        "The reward and people point in opposite directions",
        "The sign is turned or the labels are swapped. Assess the reward model on its own page.",
    ),
    "critic": (
        "The critic cannot learn a fixed rollout",
        "Its head is frozen or detached, or its step size is far off. Try critic: separate, or "
        "another value_learning_rate.",
    ),
    "data": (
        "The data cannot be trained on",
        "Mend what the message names, freeze a new dataset, and clone the run with it.",
    ),
    "lengths": (
        "Too much of the data does not fit the lengths",
        "Raise max_prompt_length or max_new_tokens, or choose shorter prompts.",
    ),
    "memory": (
        "The run does not fit on its device",
        "The memory ledger among the checks says what would fit: take the first measure that does, "
        "or another queue.",
    ),
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
            advice=rule.advice,
            is_guard=True,
            changes=_changes(run),
        )
    if run.failure_kind.startswith(PREFLIGHT):
        check = run.failure_kind.removeprefix(PREFLIGHT)
        title, advice = PREFLIGHT_WORDS.get(check, ("A check before the first step failed", ""))
        return Failure(
            title=f"{title}.",
            measured="Nothing was trained: the check comes before the first step.",
            advice=advice,
            is_guard=False,
            changes=[],
        )
    return None


def _measured(rule: GuardRule, run: Run, alerts: Sequence[Alert]) -> str:
    """ "objective/kl was 12.3 nats per sequence at step 43; the limit is 10 (2 of 3 looks)." """
    fired = [one for one in alerts if one.rule == rule.name]
    if not fired:
        return f"The run ended at step {run.step:,}."
    alert = max(fired, key=lambda one: (one.step, one.pk or 0))
    if rule.test == "finite" or alert.value is None:
        return f"It fired at step {alert.step:,}."
    side = "over" if rule.bound == "above" else "under"
    limit = rule.threshold if alert.threshold is None else alert.threshold
    looks = "" if rule.patience[1] == 1 else f" ({rule.patience_words})"
    read = "" if rule.test == "level" else f" ({TESTS[rule.test]})"
    return (
        f"{rule.metric}{read} was {figure(alert.value)} at step {alert.step:,}, "
        f"{side} the limit of {figure(limit)} {rule.unit}{looks}."
    )


def _changes(run: Run) -> list[tuple[str, Any, Any]]:
    config = recipe_config(run.kind, run.config)
    defaults = {option.name: option.default for option in recipe_fields(run.kind)}
    return [
        (name, config.get(name, defaults.get(name)), value)
        for name, value in advised_changes(run).items()
    ]
