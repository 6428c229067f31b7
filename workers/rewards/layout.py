"""The folder of an ensemble: normal model folders beside one small file.

    ensemble.json   {"version": 1, "members": ["member-0", …], "aggregate": "mean", "lambda": 1.0,
                     "threshold": 0.8 | null, "validation": [{"mean": …, "std": …}, …]}
    member-0/ …     a model folder each, loadable by itself

`validation` holds, per member in order, the mean and deviation of its raw scores on validation
answers (see measures.ensembles); `threshold` is the disagreement over which an answer is not
trusted. No torch.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from measures.ensembles import (
    AGGREGATES,
    MEAN,
    Scale,
    disagreement_threshold,
    scale_of,
    standardise,
)
from workers.contract.events import Fault, RecipeError

FILE = "ensemble.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class EnsembleLayout:
    """What ensemble.json says."""

    members: tuple[str, ...]
    scales: tuple[Scale, ...]
    aggregate: str = MEAN
    lam: float = 1.0
    threshold: float | None = None

    @classmethod
    def fitted(
        cls,
        members: Sequence[str],
        validation: Sequence[Sequence[float]],
        *,
        aggregate: str = MEAN,
        lam: float = 1.0,
        quantile: float = 0.95,
    ) -> "EnsembleLayout":
        """Scales and threshold from the members' raw scores on the same validation answers."""
        scores = np.asarray(validation, dtype=float)
        scales = tuple(scale_of(row) for row in scores)
        threshold = disagreement_threshold(standardise(scores, scales), quantile=quantile)
        return cls(tuple(members), scales, aggregate, lam, threshold)

    def write(self, folder: Path) -> None:
        data = {
            "version": VERSION,
            "members": list(self.members),
            "aggregate": self.aggregate,
            "lambda": self.lam,
            "threshold": self.threshold,
            "validation": [{"mean": scale.mean, "std": scale.std} for scale in self.scales],
        }
        (folder / FILE).write_text(json.dumps(data, indent=1), "utf-8")


def is_ensemble(folder: Path) -> bool:
    return (folder / FILE).is_file()


def read_layout(folder: Path) -> EnsembleLayout:
    """`RecipeError` (bad_ensemble) naming the field where the file does not fit."""
    try:
        data: Any = json.loads((folder / FILE).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _bad(f"cannot be read: {error}") from error
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise _bad(f"version must be {VERSION}")
    members = data.get("members")
    if not isinstance(members, list) or len(members) < 2:
        raise _bad("members: must name at least two folders")
    for name in members:
        inside = isinstance(name, str) and Path(name).name == name and name not in ("", "..")
        if not inside or not (folder / name).is_dir():
            raise _bad(f"members: {name!r} is no folder beside the file")
    scales = data.get("validation")
    if not isinstance(scales, list) or len(scales) != len(members):
        raise _bad("validation: must hold one mean and std per member")
    aggregate = data.get("aggregate", MEAN)
    if aggregate not in AGGREGATES:
        raise _bad(f"aggregate: {aggregate!r} is none of {', '.join(AGGREGATES)}")
    threshold = data.get("threshold")
    return EnsembleLayout(
        tuple(members),
        tuple(_scale(entry, index) for index, entry in enumerate(scales)),
        aggregate,
        _number(data.get("lambda", 1.0), "lambda"),
        None if threshold is None else _number(threshold, "threshold"),
    )


def _scale(entry: Any, index: int) -> Scale:
    if not isinstance(entry, dict):
        raise _bad(f"validation[{index}]: is no object")
    std = _number(entry.get("std"), f"validation[{index}].std")
    if std <= 0:
        raise _bad(f"validation[{index}].std: must be over 0")
    return Scale(_number(entry.get("mean"), f"validation[{index}].mean"), std)


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
        raise _bad(f"{where}: must be a number, not {value!r}")
    return float(value)


def _bad(what: str) -> RecipeError:
    return RecipeError("bad_ensemble", Fault.DATA, f"{FILE}: {what}")
