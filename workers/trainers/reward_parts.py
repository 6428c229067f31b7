"""What one reward run trains, one after another, and how far it has come.

A run is a list of parts: the models of a cross-validation, then the members of an ensemble or the
single model. Each is a training of its own, with its rows and its seed. Every checkpoint tells in
`training.json` which parts are done and what they scored, so a resumed run trains none of them
again.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from workers.config.training import RewardSettings
from workers.contract.events import (
    Fault,
    RecipeError,
)
from workers.data.folds import assign_folds, fold_keys
from workers.data.snapshot import Preference

FILE = "training.json"
FOLD, MEMBER, MODEL = "fold", "member", "model"


@dataclass(frozen=True, slots=True)
class Part:
    """One model to train: indices of its training rows and of those it is tested on alone."""

    name: str
    kind: str
    seed: int
    rows: list[int]
    held_out: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Scores:
    """Raw scores of a split's chosen and rejected answers, in row order."""

    chosen: list[float]
    rejected: list[float]

    @property
    def margins(self) -> list[float]:
        return [a - b for a, b in zip(self.chosen, self.rejected, strict=True)]


@dataclass(frozen=True, slots=True)
class Result:
    """A part that ended: why, on which step the weights kept are from, and what they score."""

    name: str
    kind: str
    seed: int
    rows: int
    steps: int
    reason: str
    kept_step: int
    loss: float | None  # held-out, nats per pair, of the weights kept
    scores: dict[str, Scores]  # by split; a fold's own rows under "fold"


@dataclass
class Watched:
    """What the watch over a part has seen; steps are the part's own."""

    initial: float | None = None  # held-out loss before the first step
    lowest: float | None = None
    lowest_at: int = 0
    without: int = 0  # evaluations since the lowest
    evaluations: int = 0
    warned: bool = False  # of the learning rate


@dataclass
class Progress:
    """How far a run has come. `current` is the part whose trainer state lies in the checkpoint."""

    done: list[Result] = field(default_factory=list)
    current: str | None = None
    watched: Watched = field(default_factory=Watched)
    preflight: dict[str, Any] | None = None

    @property
    def members(self) -> list[Result]:
        return [result for result in self.done if result.kind == MEMBER]

    @property
    def steps(self) -> int:
        """Optimizer steps of the parts that are done."""
        return sum(result.steps for result in self.done)

    def write(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps({"version": 1, **asdict(self)}))

    @classmethod
    def read(cls, folder: Path) -> "Progress":
        """Of a checkpoint; one without the file is of a run with a single part, under way."""
        if not (folder / FILE).is_file():
            return cls(current=MODEL)
        try:
            data = json.loads((folder / FILE).read_text())
            return cls(
                done=[
                    Result(**r | {"scores": {s: Scores(**v) for s, v in r["scores"].items()}})
                    for r in data["done"]
                ],
                current=data["current"],
                watched=Watched(**data["watched"]),
                preflight=data["preflight"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise RecipeError(
                "damaged_checkpoint", Fault.DATA, f"{FILE} cannot be read: {error}"
            ) from error


def plan_parts(settings: RewardSettings, rows: Sequence[Preference], *, seed: int) -> list[Part]:
    """The parts of a run over its training rows. The same rows, settings and seed give the same."""
    everything = list(range(len(rows)))
    parts: list[Part] = []
    if settings.folds:
        of = _folds(rows, settings.folds, seed=seed)
        for fold in range(settings.folds):
            inside = [i for i in everything if of[i] == fold]
            outside = [i for i in everything if of[i] != fold]
            parts.append(Part(f"fold-{fold}", FOLD, seed, outside, inside))
    if settings.members == 1:
        return [*parts, Part(MODEL, MODEL, seed, everything)]
    of = _folds(rows, settings.members, seed=seed + 1)
    for member in range(settings.members):
        own = seed + member
        if settings.member_split == "kfold":
            taken = [i for i in everything if of[i] != member]
        elif settings.member_split == "bootstrap":
            taken = sorted(random.Random(own).choices(everything, k=len(rows)))
        else:
            taken = everything
        parts.append(Part(f"member-{member}", MEMBER, own, taken))
    return parts


def _folds(rows: Sequence[Preference], folds: int, *, seed: int) -> list[int]:
    _, keys = fold_keys(rows, folds)
    return assign_folds(keys, folds, seed=seed)
