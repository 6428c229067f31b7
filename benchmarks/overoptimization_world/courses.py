"""What is kept of a seed's runs: one small JSON file. No torch."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

VERSION = 1  # of what a stored result means; raise it when the world or its runs change


@dataclass(frozen=True, slots=True)
class Point:
    """A checkpoint: its scores by the proxy, the judge and gold, and its distance in nats."""

    step: int
    proxy: float
    judge: float
    kl: float
    gold: float
    facts: float
    repeats: float
    length: float
    flattery: float
    words: float


@dataclass
class Course:
    """A run: its checkpoints, the alarms in order, why and when it ended, which one it chose."""

    points: list[Point]
    alarms: list[tuple[int, str]]
    ended_at: int
    ended_by: str
    gold_at_end: float
    best: int
    cpu_s: float


@dataclass
class Result:
    seed: int
    facts: dict[str, float]  # how right votes and models were
    courses: dict[str, Course] = field(default_factory=dict)
    version: int = VERSION


def write(result: Result, path: Path) -> None:
    path.write_text(json.dumps(_rounded(asdict(result)), indent=1) + "\n")


def read(path: Path) -> Result:
    data = json.loads(path.read_text())
    courses = {
        arm: Course(
            **course
            | {
                "points": [Point(**point) for point in course["points"]],
                "alarms": [(step, rule) for step, rule in course["alarms"]],
            }
        )
        for arm, course in data["courses"].items()
    }
    return Result(**data | {"courses": courses})


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value
