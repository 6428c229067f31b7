"""Several scorers as one: a common scale, one score, how much they disagree, and their folder.

M members, n answers. Raw Bradley–Terry scores have neither origin nor unit, so members are put on a
common scale first: each is standardised by the mean and deviation of its own scores on validation
answers, z = (s − μ_m)/σ_m. The combined score goes back to the average member's scale, so that its
differences are log-odds as before. Normal model folders stand beside one small file:

    ensemble.json   {"version": 1, "members": ["member-0", …], "aggregate": "mean", "lambda": 1.0,
                     "threshold": 0.8 | null, "validation": [{"mean": …, "std": …}, …]}
    member-0/ …     a model folder each, loadable by itself

`validation` holds, per member in order, the mean and deviation of its raw scores on validation
answers; `threshold` is the disagreement over which an answer is not trusted. No torch.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.contract.events import Fault, RecipeError

Floats = NDArray[np.float64]

MEAN, MIN, MEDIAN = "mean", "min", "median"
MEAN_MINUS_VAR, MEAN_MINUS_STD = "mean_minus_lambda_var", "mean_minus_lambda_std"
AGGREGATES = (MEAN, MIN, MEDIAN, MEAN_MINUS_VAR, MEAN_MINUS_STD)

# Members whose validation scores do not vary have no scale to be standardised by.
_NO_SPREAD = 1e-8


@dataclass(frozen=True, slots=True)
class Scale:
    """A member's scores on validation answers: mean and deviation, raw score."""

    mean: float
    std: float


def scale_of(scores: Floats) -> Scale:
    """Mean and sample deviation of (n,) validation scores. A member that says the same of every
    answer gets deviation 1: it adds nothing to the order and is not blown up."""
    values = np.asarray(scores, dtype=float)
    std = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    mean = float(values.mean()) if len(values) else 0.0
    return Scale(mean, std if std > _NO_SPREAD * max(1.0, abs(mean)) else 1.0)


def standardise(scores: Floats, scales: list[Scale] | tuple[Scale, ...]) -> Floats:
    """(M, n) raw scores -> (M, n) validation deviations."""
    means = np.array([scale.mean for scale in scales])[:, None]
    stds = np.array([scale.std for scale in scales])[:, None]
    return (np.asarray(scores, dtype=float) - means) / stds


def disagreement(standardised: Floats) -> Floats:
    """(M, n) -> (n,): population deviation over the members, in validation deviations.

    It grows with M for the same noise (two members with noise of deviation e: 0.56·e on average),
    so a threshold belongs to one ensemble. Source: Coste et al. 2023, "Reward Model Ensembles Help
    Mitigate Overoptimization", section 3.2, which uses the population variance.
    """
    return np.asarray(standardised, dtype=float).std(axis=0)


def combine(standardised: Floats, aggregate: str, *, lam: float) -> Floats:
    """(M, n) -> (n,) in validation deviations.

    `mean`, `min` (worst case), `median`, `mean_minus_lambda_var` (mean − λ·var) and
    `mean_minus_lambda_std` (mean − λ·std); var and std as in `disagreement`.
    Source: Coste et al. 2023, equations 3–5 (mean, worst case, uncertainty-weighted).
    """
    z = np.asarray(standardised, dtype=float)
    if aggregate == MEAN:
        return z.mean(axis=0)
    if aggregate == MIN:
        return z.min(axis=0)
    if aggregate == MEDIAN:
        return np.median(z, axis=0)
    if aggregate == MEAN_MINUS_VAR:
        return z.mean(axis=0) - lam * z.var(axis=0)
    if aggregate == MEAN_MINUS_STD:
        return z.mean(axis=0) - lam * z.std(axis=0)
    raise ValueError(f"aggregate '{aggregate}' is none of {', '.join(AGGREGATES)}")


def to_raw(combined: Floats, scales: list[Scale] | tuple[Scale, ...]) -> Floats:
    """(n,) validation deviations -> (n,) raw scores of the average member: z·mean σ + mean μ."""
    spread = np.mean([scale.std for scale in scales])
    return np.asarray(combined, dtype=float) * spread + np.mean([scale.mean for scale in scales])


def disagreement_threshold(standardised: Floats, *, quantile: float = 0.95) -> float | None:
    """The disagreement that about 1 − `quantile` of validation answers exceed: (M, n) -> scalar.

    One bad member raises everybody's disagreement and with it any quantile of it, so with M ≥ 3
    the threshold is the smallest quantile that is left when one member is taken out, scaled by
    (M−1)/√(M(M−2)) for the deviation of M members rather than M − 1. Of good members that is
    nearly the quantile of all.

    None with fewer than 20 answers, of which no such quantile can be read.
    """
    z = np.asarray(standardised, dtype=float)
    members, answers = z.shape
    if answers < 20:
        return None
    found = [float(np.quantile(disagreement(z), quantile))]
    if members >= 3:
        scale = (members - 1) / np.sqrt(members * (members - 2))
        found += [
            scale * float(np.quantile(disagreement(np.delete(z, member, axis=0)), quantile))
            for member in range(members)
        ]
    return min(found)


# The folder of an ensemble.

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
