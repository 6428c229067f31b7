"""What to do about a run that ended badly: in words, and as changes to its configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.common.numbers import figure
from apps.training import display
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
        "score a few answers by hand, and fix the reward before you train against it. "
        "With reward_check: warn the run continues anyway.",
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
        "Fix what the message names, freeze a new dataset, and clone the run with it.",
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
    checks = "" if rule.patience[1] == 1 else f" ({rule.patience_words})"
    read = "" if rule.test == "level" else f" ({TESTS[rule.test]})"
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


# What to do about a run that failed, by its kind of failure; docs/jobs.md has the same kinds.
#
# What happened stands in the run's own message, with its numbers. Guardrails and checks before the
# first step say more (`apps.training.guidance`).

_AGAIN = "All automatic retries are used up: resume it when"
_FREEZE = "Freeze a better dataset, and clone the run with it."
_REPORT = "Please report it with the run's id; the log holds the traceback."
_OTHER_CHECKPOINT = "Clone the run with another checkpoint, or train that one again."
_ENSEMBLE = "Choose another checkpoint, or train the ensemble again."
_NEW_VERSION = "Upgrade the web side and its workers together, then resume."
_OTHER_CLASS = "Clone the run for another machine class"

NEXT_STEPS: dict[str, str] = {
    # the configuration
    "bad_config": "Clone the run and correct the fields that the message names.",
    "missing_input": "Clone the run and give it the input that the message names.",
    "wrong_input": "Clone the run with an input of the sort that the message asks for.",
    "model_not_allowed": "Name a model of a hub in a clone, or have whoever runs the worker put "
    "the folder below one of MODEL_FOLDERS.",
    "model_unavailable": "Correct the model's name in a clone, or have whoever runs the worker "
    "allow the hub (HF_HUB_OFFLINE).",
    "host_not_allowed": "Whoever runs the worker adds the host to REWARD_HOSTS or INFERENCE_HOSTS; "
    "then resume.",
    "slow_expression": "Clone the run with an expression that has no repeat inside a repeat.",
    "soft_labels": "Set the reward run's labels to soft, or freeze a dataset without ties.",
    "time_limit": "It saved first: resume it to go on, or clone it with fewer steps.",
    "too_slow": "Clone the probe with a longer max_seconds, or fewer prompts (eval_prompts).",
    "unknown_kind": _NEW_VERSION,
    "unknown_launcher": "Clone the run with one of the launchers that the message lists.",
    "upstream_failed": "Resume the run that it waited for, then this one.",
    # the data
    "bad_answer": _FREEZE,
    "bad_data": _FREEZE,
    "bad_ensemble": _ENSEMBLE,
    "damaged_checkpoint": "Resume after removing that checkpoint, or clone the run to start "
    "from scratch.",
    "damaged_input": "Verify the dataset or checkpoint that the message names on its page; freeze "
    "or train it again if it is broken, and clone the run with the new one.",
    "no_answer": "Freeze prompts with answers, or set without_answer in a clone.",
    "no_held_out_rows": "Freeze a dataset with a hold-out, and clone the run with it.",
    "no_rows": "Raise the lengths in a clone, or freeze a dataset with more in it.",
    "non_finite_score": _OTHER_CHECKPOINT,
    "non_finite_scores": _OTHER_CHECKPOINT,
    "non_finite_weights": _OTHER_CHECKPOINT,
    "overlong": "Raise max_length in a clone, or let on_overlong cut or drop such pairs.",
    # services that are asked for scores
    "no_token": "Whoever runs the worker sets the variable that the message names; then resume.",
    "reward_service": "Resume when the service is back.",
    "reward_service_answer": "Fix the service as the message says, then resume.",
    "reward_service_limit": "Clone the run with a lower max_new_tokens, or shorter prompts.",
    "reward_service_refused": "Correct the address in a clone, or the token on the worker.",
    "reward_service_version": "Clone the run: it starts again with the version of the service "
    "that answers now.",
    "reward_failed": _REPORT,
    # services that answer
    "inference_server": f"{_AGAIN} the server answers; only what is missing is asked for.",
    "inference_server_answer": "Look at the rows that the message names: shorten them, raise the "
    "server's limits, or fix its settings. Then resume: only the missing answers are requested.",
    "inference_server_changed": "Have the server serve one model only, then clone the run: answers "
    "of two models are not mixed.",
    "inference_server_refused": "Correct the server's address or model in a clone, or have whoever "
    "runs the worker correct the token.",
    "inference_server_weights": "Have whoever runs the server look at how it was started and "
    "reached, as docs/servers.md says; then resume: the weights are sent again.",
    # machines
    "actor_lost": "Look at the memory of the machine whose actors died. Clone the run with smaller "
    "chunks (rollout_chunk) or fewer actors; raise worker_timeout if they were only slow.",
    "bad_setting": "Whoever runs the worker corrects the environment variable that the message "
    "names and starts the worker again; then resume.",
    "crashed": "Read the end of the log. A crash at the same step each time is a bug or bad "
    "hardware: report it. Else resume.",
    "disk_full": "Make room on the worker's disk, then resume.",
    "exited": "Read the end of the log, which holds the trainer's last output; then resume.",
    "interrupted": f"{_AGAIN} a worker is there.",
    "killed": f"{_AGAIN} you know who killed it, or that it was by accident.",
    "lease_lost": "Check Redis and the network between it and the worker, then resume.",
    "lost": f"{_AGAIN} the machine is back, or another one is there (see Machines).",
    "missing_package": "Whoever runs the worker installs the package or extra that the message "
    f"names; then resume. {_OTHER_CLASS} if its machines have it (see Machines).",
    "out_of_memory": "Clone the run with what the message advises: smaller micro-batches first, "
    "then shorter sequences, then a layout over several GPUs (tab Checks, which layout fits).",
    "rank_lost": f"{_AGAIN} the machine is healthy: it continues from its checkpoint. A rank "
    "that is "
    "lost at the same step each time points to memory or to one bad GPU.",
    "ray_unavailable": "Start the cluster that RAY_ADDRESS names, or give it the processors and "
    "GPUs that the message counts; then resume. Or clone the run with fewer actors.",
    "store_unreachable": f"{_AGAIN} the artifact store answers. Nothing is damaged.",
    "superseded": "Nothing: a later attempt has taken over.",
    "terminated": f"{_AGAIN} the machine is up.",
    "too_few_gpus": f"{_OTHER_CLASS} or with fewer processes; 0 takes every GPU there is.",
    # people and guardrails
    "stop_forced": "Its last checkpoint is kept: resume the run, or start another from it.",
    "non_finite": "Look at the samples and charts of that step, lower the learning rate in a "
    "clone, or roll back to the last healthy checkpoint.",
    # our side
    "bug": _REPORT,
    "contract_violation": _REPORT,
    "uri_outside_run": "Look at the worker that ran it: its trainer is broken or missing. Then "
    "clone the run.",
    "unreadable_job": _NEW_VERSION,
    "worker_error": _REPORT,
}
_WHOSE = {
    "data": "Data problem.",
    "configuration": "Configuration problem.",
    "machine": "Machine problem.",
    "bug": "Bug in Concord.",
}
_CONTRACT = (
    "An invariant of policy training was violated: read the diagnosis, and "
    "report it with the run's id."
)


def next_step(run: Run) -> str:
    """Whose turn it is, and what they do; empty for a run that has not failed."""
    kind = run.failure_kind
    known = NEXT_STEPS.get(kind) or (_CONTRACT if kind.startswith("contract_") else "")
    if not known:
        return display.TURNS.get(run.fault, "")
    return f"{_WHOSE.get(run.fault, '')} {known}".strip()
