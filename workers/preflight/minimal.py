"""The same configuration in small: what goes wrong in a long run often goes wrong in a minute.

Only what decides how long a run takes is made smaller. Everything that can be the cause of problem
stays as it is: step sizes, clips, the KL penalty, the reward, temperature, adapters,
precision, guards. No torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from workers.config import settings_for
from workers.context import RunContext
from workers.layouts.arguments import check_layout

MAX_SECONDS = 60.0

# The most a field may be in small; a field that a recipe does not have is passed over.
MOST: dict[str, float] = {
    "steps": 4,
    "max_steps": 8,
    "max_new_tokens": 32,
    "max_completion_length": 32,
    "sample_max_new_tokens": 32,
    "rollout_chunk": 8,
    "eval_prompts": 8,
    "sample_prompts": 4,
    "baseline_answers": 8,
    "audit_samples": 1,
    "eval_every": 2,
    "save_every": 4,
    "sample_every": 2,
    "log_every": 1,
    "critic_warmup_steps": 1,
    "latency_requests": 0,
    "bootstrap_replicates": 200,
    "members": 1,
}
ROWS = 8  # of a batch
GROUPS = ("group_size", "num_generations")  # answers per prompt: a batch holds whole groups
FOLDS = {"folds": 0}
NOT_MORE_THAN_A_MINUTE = "max_seconds"


@dataclass(frozen=True, slots=True)
class Small:
    """Settings in small, and each changed field with its value before and after."""

    settings: Any
    changed: Mapping[str, tuple[Any, Any]]

    @property
    def message(self) -> str:
        if not self.changed:
            return "This run is small already: nothing was changed."
        told = ", ".join(f"{name} {_word(a)} → {_word(b)}" for name, (a, b) in self.changed.items())
        return f"A minimal reproduction: at most a minute, with {told}; all else as it was."


def in_small(settings: Any) -> Small:
    """`settings` of any training recipe, in small. Raises ValueError where the smaller values
    do not fit together: that is a fault of this module and not of the person's."""
    values = {f.name: getattr(settings, f.name) for f in fields(settings)}
    new: dict[str, Any] = {}
    for name, most in MOST.items():
        value = values.get(name)
        if name == "max_steps" and name in values and value is None:
            new[name] = int(most)
        elif value is not None and value > most:
            new[name] = type(value)(most)
    for name, value in FOLDS.items():
        if values.get(name):
            new[name] = value
    if NOT_MORE_THAN_A_MINUTE in values:
        seconds = values[NOT_MORE_THAN_A_MINUTE]
        new[NOT_MORE_THAN_A_MINUTE] = min(MAX_SECONDS, seconds or MAX_SECONDS)
    new |= _batch(values) | _rounds(values, new)
    changed = {name: (values[name], value) for name, value in new.items() if values[name] != value}
    small = replace(settings, **{name: value for name, (_, value) in changed.items()})
    errors = small.check() if hasattr(small, "check") else []
    if errors:
        raise ValueError("in small: " + "; ".join(errors))
    return Small(small, changed)


def _batch(values: Mapping[str, Any]) -> dict[str, Any]:
    """A smaller batch, cut into as many minibatches and microbatches as before where that goes,
    with whole groups of answers where a recipe draws several to a prompt."""
    rows = values.get("batch_size")
    if rows is None:
        return {}
    group = next((values[name] for name in GROUPS if values.get(name)), 1)
    unit = group if rows % group == 0 else 1  # where a batch counts prompts, any number will do
    small = rows if rows <= ROWS else max(2 * unit if unit > 1 else ROWS, ROWS // unit * unit)
    new = {"batch_size": min(rows, small)}
    for part in ("minibatch_size", "microbatch_size"):
        whole = "batch_size"
        if part == "microbatch_size" and "minibatch_size" in values:
            whole = "minibatch_size"
        size = values.get(part)
        if size is None:
            continue
        before, now = values[whole], new.get(whole, values[whole])
        pieces = min(now, max(1, before // size))
        while now % pieces:
            pieces -= 1
        new[part] = now // pieces
    accumulation = values.get("gradient_accumulation")
    if accumulation and accumulation > new["batch_size"]:
        new["gradient_accumulation"] = new["batch_size"]
    return new


def _rounds(values: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Where a step is one pass over answers that serve several (groups), two batches of answers are
    drawn, and evaluations and checkpoints fall between them."""
    passes = values.get("update_epochs", 1)
    if not any(values.get(name) for name in GROUPS) or passes == 1:
        return {}
    rounds = {
        name: -(-new.get(name, values[name]) // passes) * passes
        for name in ("eval_every", "save_every")
        if name in values
    }
    return rounds | {"steps": min(values["steps"], max(int(MOST["steps"]), 2 * passes))}


def _word(value: Any) -> str:
    return "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


# How every training recipe begins: with its settings, in small where that was asked for.


def settings_of(context: RunContext, kind: str) -> Any:
    """The settings of the run's configuration; of a minimal reproduction those of the same run in
    small, which the log says. Raises `RecipeError` (bad_config) for settings that are none, or that
    the job's layout does not go with."""
    settings = settings_for(kind, context.spec.config)
    check_layout(context.spec, settings)
    if not settings.minimal:
        return settings
    small = in_small(settings)
    context.log(small.message)
    return small.settings
