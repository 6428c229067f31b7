"""What is kept of a run: one small JSON file. No torch."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

VERSION = 2  # of what a stored run means; raise it when the world, its runs or the metrics change
DIGITS = 6

Point = tuple[int, float | str | None]


@dataclass
class Record:
    """`curves`, `evidence`, `alerts` and `failure` (step, kind, message) are what the run emitted:
    all that a detector may see, with `config`. `fault`, `link` and `hidden` are the answers."""

    fault: str
    link: str
    contract: bool
    since: int
    shape: str
    seed: int
    config: dict[str, Any]
    curves: dict[str, list[Point]] = field(default_factory=dict)
    evidence: list[dict[str, Any]] = field(default_factory=list)
    alerts: list[dict[str, Any]] = field(default_factory=list)
    failure: tuple[int, str, str] | None = None
    hidden: dict[str, Any] = field(default_factory=dict)  # gold by step, and of the world
    cpu_s: float = 0.0
    wall_s: float = 0.0
    version: int = VERSION
    kind: str = "ppo"
    steps: int = 50  # planned

    @property
    def name(self) -> str:
        kind = "" if self.kind == "ppo" else f"{self.kind}-"
        return f"{kind}{self.fault}-{self.shape}-{self.seed}"

    @property
    def last_step(self) -> int:
        ends = [self.failure[0]] if self.failure else []
        return max([*ends, *(points[-1][0] for points in self.curves.values())], default=0)

    @property
    def gold_gain(self) -> float | None:
        gold = self.hidden.get("gold", {})
        return gold["end"] - gold["start"] if gold else None


def write(record: Record, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.name}.json"
    half = path.with_suffix(".part")
    half.write_text(json.dumps(_rounded(asdict(record)), separators=(",", ":")) + "\n")
    half.replace(path)


def read(path: Path) -> Record:
    data = json.loads(path.read_text())
    data["curves"] = {
        name: [(step, value) for step, value in points] for name, points in data["curves"].items()
    }
    data["failure"] = tuple(data["failure"]) if data["failure"] else None
    return Record(**data)


def stored(folder: Path, name: str) -> Record | None:
    """The run of that name, if it was made by these very rules."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    data = json.loads(path.read_text())
    return read(path) if data["version"] == VERSION else None


def read_all(folder: Path) -> Iterator[Record]:
    for path in sorted(folder.glob("*.json")):
        record = read(path)
        if record.version == VERSION:
            yield record


def _rounded(value: Any) -> Any:
    if isinstance(value, float) and not value.is_integer():
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value
