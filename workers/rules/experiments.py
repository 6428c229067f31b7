"""The experiments that tell one cause from another, and their order for each stage.

What each asks and what its outcomes mean stands in the playbook (docs/playbook/next-checks.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Experiment:
    """A short run that changes one variable.

    `check` is the recipe `check`'s own name of it, `minimal` or `one_change`; `changes` is the one
    setting of a fix experiment, as a factor or a value.
    """

    id: str
    title: str
    check: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # inputs of the run that must be there


_ALL = (
    Experiment(
        "reward_plot",
        "Plot the rewards of the last 1,000 answers",
        "reward_plot",
        needs=("rollouts",),
    ),
    Experiment(
        "rescore",
        "Score the kept answers again with the registered reward model",
        "rescore",
        needs=("rollouts", "reward"),
    ),
    Experiment(
        "canaries",
        "Ask the reward model about pairs whose better answer is known",
        "canaries",
        needs=("reward", "canaries"),
    ),
    Experiment(
        "kl_reference",
        "Recompute the divergence from the registered reference",
        "kl_reference",
        needs=("policy", "reference", "prompts"),
    ),
    Experiment(
        "sampler",
        "Draw answers again and compare their surprise with the entropy",
        "sampler",
        needs=("policy", "prompts"),
    ),
    Experiment(
        "critic_fit",
        "Fit the critic alone on one frozen batch",
        "critic_fit",
        needs=("policy", "reward", "prompts"),
    ),
    Experiment(
        "protocol",
        "Repeat the evaluation under the fixed protocol",
        "protocol",
        needs=("policy", "prompts"),
    ),
    Experiment("minimal", "Reproduce it in small", "minimal"),
    Experiment("slower", "Try a tenth of the learning rate", "one_change", {"learning_rate": 0.1}),
    Experiment(
        "fewer_epochs", "Try one pass over each batch", "one_change", {"update_epochs": "1"}
    ),
    Experiment("fewer_passes", "Try one pass over the rows", "one_change", {"epochs": "1"}),
    Experiment("higher_kl", "Try four times the KL penalty", "one_change", {"kl_coef": 4.0}),
    Experiment("more_entropy", "Try a bonus on entropy", "one_change", {"entropy_coef": "0.01"}),
)
EXPERIMENTS: dict[str, Experiment] = {one.id: one for one in _ALL}
_FORMERLY = {"dearer_kl": "higher_kl"}  # in keys of runs and in requests until 1.0


def present_id(name: str) -> str:
    """The id that an experiment has now."""
    return _FORMERLY.get(name, name)


# From the outside in: what to try first when this stage broke first.
NEXT: dict[str, tuple[str, ...]] = {
    "data": ("canaries", "reward_plot", "fewer_passes", "minimal"),
    "evaluation": ("protocol", "reward_plot", "canaries"),
    "reward": ("canaries", "reward_plot", "rescore", "minimal"),
    "policy": ("kl_reference", "slower", "fewer_epochs", "fewer_passes", "higher_kl", "minimal"),
    "critic": ("critic_fit", "reward_plot", "slower"),
    "exploration": ("reward_plot", "more_entropy", "higher_kl"),
    "freshness": ("sampler", "kl_reference", "minimal"),
    "numerics": ("minimal", "slower", "rescore"),
    "resources": ("rescore", "minimal"),
}


def next_experiments(stage: str, *, first: str = "") -> list[Experiment]:
    """In order; `first` is the one that the finding itself asks for."""
    first = present_id(first)
    ids = dict.fromkeys((first, *NEXT[stage])) if first in EXPERIMENTS else NEXT[stage]
    return [EXPERIMENTS[name] for name in ids]
