"""The metrics of other trainers under our names.

What each library calls them stands beside each metric in `workers.contract.metrics`; what is not
there is kept under its own name and drawn.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from workers.contract.metrics import METRICS, metric_of
from workers.diagnosis.reading import Point, Value

POLICIES = ("ppo", "grpo")
_CONVERT: dict[str, Callable[[float], float]] = {
    "": float,
    "one less": lambda value: 1.0 - value,
    "size": abs,  # an entropy over tokens is not negative; some log its negative as a loss
}
# Reward functions of TRL's GRPO, each a component of the reward here.
_COMPONENT = re.compile(r"rewards/(?P<name>[^/]+)(?:/mean)?$")
_KEPT_REWARDS = frozenset({"chosen", "rejected", "margins", "accuracies"})


@dataclass(frozen=True, slots=True)
class Named:
    """`series` under our names where they are known; `taken` says {ours: theirs} of those that
    were renamed."""

    series: dict[str, list[Point]]
    taken: dict[str, str]


def ours(series: Mapping[str, Sequence[Point]], kind: str) -> Named:
    """Rename what is known for a run of `kind`. A name of ours in the file is never overwritten;
    two names for one thing keep the second under its own."""
    plain = {_plain(name): name for name in series}
    found = {plain_name: list(series[theirs]) for plain_name, theirs in plain.items()}
    taken = {new: old for new, old in plain.items() if new != old}
    for metric in METRICS:
        for alias in metric.aliases:
            if kind in alias.kinds and alias.name in plain and metric.name not in found:
                found[metric.name] = _converted(found[alias.name], alias.convert)
                taken[metric.name] = plain[alias.name]
                if metric_of(alias.name) is None:
                    del found[alias.name]
                    taken.pop(alias.name, None)
    for name in [one for one in found if _COMPONENT.match(one)] if kind in POLICIES else ():
        part = _COMPONENT.match(name)
        new = f"reward/component/{part['name']}" if part else ""
        if part and part["name"] not in _KEPT_REWARDS and new not in found:
            found[new] = found.pop(name)
            taken[new] = plain[name]
    return Named(dict(sorted(found.items())), taken)


def _plain(name: str) -> str:
    """Without the prefixes under which trackers file what a trainer logs."""
    if name.startswith("train/") and len(name) > len("train/"):
        return name.removeprefix("train/")
    if name.startswith("eval_"):
        return f"eval/{name.removeprefix('eval_')}"
    return name


def _converted(points: Sequence[Point], convert: str) -> list[Point]:
    return [(step, _applied(value, convert)) for step, value in points] if convert else list(points)


def _applied(value: Value, convert: str) -> Value:
    if isinstance(value, str):
        return value
    number = _CONVERT[convert](value)
    return number if math.isfinite(number) else value
