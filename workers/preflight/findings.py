"""What a preflight found: one finding a check, and the report they make. No torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.contract.events import Fault

VERSION = 1
OK, UNKNOWN, WARN, BLOCK = "ok", "unknown", "warn", "block"
LEVELS = (OK, UNKNOWN, WARN, BLOCK)  # the gravest last
MARKS = {OK: "ok", UNKNOWN: "not checked", WARN: "warning", BLOCK: "blocked"}

TITLES = {
    "configuration": "Configuration",
    "reward": "Reward against chance",
    "reward_shape": "Shape of the scores",
    "reward_people": "Scores and people",
    "kl_price": "Price of divergence",
    "critic": "Critic on a fixed rollout",
    "eval_overlap": "Training and evaluation prompts",
    "sft_overlap": "Prompts and demonstrations",
    "data": "Data",
    "lengths": "Lengths",
    "memory": "Memory",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check. `message` says what was found, with its numbers, and what to do where something
    is to be done; `unknown` is a check that could not be made, and the message says why.

    `evidence` holds blocks that a page can draw (measures.trust.findings), as plain JSON.
    """

    level: str  # ok | unknown | warn | block
    check: str  # a key of TITLES
    message: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    evidence: tuple[Mapping[str, Any], ...] = ()
    fault: Fault = Fault.CONFIGURATION  # whose turn it is where it blocks

    @property
    def line(self) -> str:
        """One line of the log."""
        return f"Preflight, {TITLES[self.check].lower()}: {MARKS[self.level]}. {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings of one run, in the order of TITLES."""

    kind: str
    findings: tuple[Finding, ...]
    seconds: float = 0.0
    memory: Mapping[str, Any] | None = None  # the ledger (docs/memory.md)
    changed: Mapping[str, Sequence[Any]] | None = None  # of a minimal reproduction: before, after

    @property
    def level(self) -> str:
        return max((f.level for f in self.findings), key=LEVELS.index, default=OK)

    @property
    def blocked(self) -> list[Finding]:
        return [f for f in self.findings if f.level == BLOCK]

    def of(self, check: str) -> Finding | None:
        return next((f for f in self.findings if f.check == check), None)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; the shape is described in docs/preflight.md."""
        return plain_json(
            {
                "version": VERSION,
                "kind": self.kind,
                "level": self.level,
                "blocked": [f.check for f in self.blocked],
                "seconds": round(self.seconds, 2),
                "findings": [
                    {
                        "check": f.check,
                        "title": TITLES[f.check],
                        "level": f.level,
                        "message": f.message,
                        "figures": f.figures,
                        "evidence": list(f.evidence),
                    }
                    for f in self.findings
                ],
                "memory": self.memory,
                "changed": self.changed,
            }
        )

    def summary(self) -> dict[str, Any]:
        """For the run's summary: how each check ended."""
        return {
            "level": self.level,
            "checks": {f.check: f.level for f in self.findings},
        }


def plain_json(value: Any) -> Any:
    """Plain JSON types; what is no finite number becomes null."""
    if isinstance(value, Mapping):
        return {str(name): plain_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "item"):  # numpy's and torch's scalars
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
