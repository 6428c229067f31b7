"""What is kept of a seed: one small JSON file. No torch, no Django."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

VERSION = 1  # of what a stored result means; raise it when the world or its runs change


@dataclass(slots=True)
class RoundFigures:
    """One round. flips, ties, left: of its votes (`people.Measured`); accepted: pairs so far;
    reward_*: on pairs of the start's answers to held-out questions, against the hidden utility;
    gold: win rate of the policy over the start by that utility; gain in points; length_ratio: of
    words; judge: win rate by the judge, with the lower end of its interval; kl: nats an answer;
    objections: `circle.Objections`."""

    votes: int
    flips: float
    ties: float
    left: float
    accepted: int
    reward_accuracy: float
    reward_log_loss: float
    gold: float | None = None
    gain: float | None = None
    length_ratio: float | None = None
    judge: float | None = None
    judge_low: float | None = None
    kl: float | None = None
    objections: dict[str, Any] = field(default_factory=dict)

    @property
    def stopped_by(self) -> list[str]:
        """The rules that ended its run, and the red lines of the gates, missing ones left out."""
        if not self.objections:
            return []
        ended = self.objections["stopped"]
        found = [f"run ended by {ended}"] if ended else []
        for stage, lines in self.objections["gates"].items():
            found += [f"gate of {stage}: {line}" for line in lines]
        return found


@dataclass
class Result:
    """rounds: of people; selected: their first round with chosen pairs; length: of people who love
    length."""

    seed: int
    rounds: list[RoundFigures]
    selected: RoundFigures
    length: RoundFigures
    seconds: float
    version: int = VERSION


def write(result: Result, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(result), indent=1) + "\n")


def read(path: Path) -> Result | None:
    """None where nothing was stored, or by another version."""
    if not path.is_file():
        return None
    data = json.loads(path.read_text())
    if data["version"] != VERSION:
        return None
    made = {name: RoundFigures(**data[name]) for name in ("selected", "length")}
    return Result(**data | made | {"rounds": [RoundFigures(**one) for one in data["rounds"]]})
