"""Several scorers as one: a common scale, one score, and how much they disagree.

M members, n answers. Raw Bradley–Terry scores have neither origin nor unit, so members are put on a
common scale first: each is standardised by the mean and deviation of its own scores on validation
answers, z = (s − μ_m)/σ_m. The combined score goes back to the average member's scale, so that its
differences are log-odds as before.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
