"""What a detector is: figures, a test of them, and how often it must hold before it speaks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workers.diagnosis.evidence import TREND

POLICIES = ("ppo", "grpo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """One way of seeing one trouble.

    `metrics` are the figures it needs at a look; a step without one of them is no look. `test` (a
    key of `workers.diagnosis.looks.TESTS`) with `given` says whether a look is off. It speaks when
    k of its last n looks were off (`patience`), not before `grace` looks, then is silent until ten
    looks in a row lay well inside and twenty have passed. Its onset is the first look that was off;
    the true one may lie `slack` steps later.
    """

    rule: str
    link: str
    title: str
    metrics: tuple[str, ...]
    test: str
    unit: str
    given: Mapping[str, Any] = field(default_factory=dict)
    kinds: tuple[str, ...] = POLICIES
    evidence_class: str = TREND
    patience: tuple[int, int] = (3, 5)
    grace: int = 0
    slack: int = 0
    suspects: tuple[str, ...] = ()
    experiment: str = ""
    of_models: bool = False  # says something of reward models only, not of rules and verifiers
    why: str  # what the figure means when it is off, for people
