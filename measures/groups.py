"""Groups of answers to one prompt: what their rewards tell apart, and whether they do so rightly.

Group-relative methods learn from differences within a group alone (Shao et al. 2024,
"DeepSeekMath", section 4.1.1), so these figures say how much there was to learn from, and how much
of it was true.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Rewards closer than this, relative to their size, are one: float32 has seven digits.
_SAME = 1e-6


@dataclass(frozen=True, slots=True)
class Spread:
    """within: mean over groups of the rewards' standard deviation (n − 1); between: standard
    deviation of the groups' means; silent: share of groups whose rewards are all alike, which
    teach nothing. All in the rewards' unit but the last. None where no group, or for `between`
    only one, has two answers that count."""

    within: float | None
    between: float | None
    silent: float | None
    groups: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """value: of the pairs of answers within a group that the reference tells apart, the share in
    the same order by the other, ties ½. None where the reference tells no pair apart."""

    value: float | None
    pairs: int
    groups: int  # with at least one such pair


def spread_of(rewards: ArrayLike, counts: ArrayLike | None = None) -> Spread:
    """How rewards (P, G) of P groups of G answers differ within and between the groups.

    counts: (P, G) bools, the answers that count; all of them if None. Groups left with fewer than
    two answers are not counted. Rewards that are not finite are a ValueError.
    """
    values, kept = _checked(rewards, counts)
    groups = [row[mask] for row, mask in zip(values, kept, strict=True) if mask.sum() > 1]
    if not groups:
        return Spread(None, None, None, 0)
    means = [float(own.mean()) for own in groups]
    return Spread(
        within=float(np.mean([own.std(ddof=1) for own in groups])),
        between=float(np.std(means, ddof=1)) if len(means) > 1 else None,
        silent=sum(_alike(own) for own in groups) / len(groups),
        groups=len(groups),
    )


def silent_groups(rewards: ArrayLike, counts: ArrayLike | None = None) -> Bools:
    """(P,): groups that teach nothing, because their rewards (P, G) are alike but for rounding, or
    because fewer than two of their answers count."""
    values, kept = _checked(rewards, counts)
    return np.array([_alike(row[mask]) for row, mask in zip(values, kept, strict=True)])


def _alike(own: Floats) -> bool:
    return len(own) < 2 or bool(np.ptp(own) <= _SAME * max(1.0, float(np.abs(own).max())))


def agreement_within(
    reference: ArrayLike, other: ArrayLike, counts: ArrayLike | None = None
) -> Agreement:
    """Whether `other` orders the answers of each group as `reference` does; both (P, G).

    Every pair within a group that `reference` tells apart counts once, over all groups, so groups
    with more such pairs weigh more. A tie in `other` counts ½. This is (1 + D)/2 with Somers' D of
    `other` given `reference` (Somers 1962): 1 the same order, ½ no relation, 0 turned around. Pairs
    of different groups are never compared: a source that merely knows easy prompts from hard ones
    scores ½. Values that are not finite are a ValueError.
    """
    a, kept = _checked(reference, counts)
    b, _ = _checked(other, counts)
    if a.shape != b.shape:
        raise ValueError(f"groups of one shape, not {a.shape} and {b.shape}")
    order = np.sign(a[:, :, None] - a[:, None, :])
    order *= kept[:, :, None] & kept[:, None, :]
    told = np.abs(order).sum(axis=(1, 2))
    if not told.sum():
        return Agreement(None, 0, 0)
    agreed = float((order * np.sign(b[:, :, None] - b[:, None, :])).sum())
    return Agreement(
        value=(1 + agreed / float(told.sum())) / 2,
        pairs=int(told.sum()) // 2,
        groups=int((told > 0).sum()),
    )


def _checked(values: ArrayLike, counts: ArrayLike | None) -> tuple[Floats, Bools]:
    found = np.asarray(values, dtype=float)
    if found.ndim != 2:
        raise ValueError(f"groups by answers, not an array of {found.ndim} dimensions")
    kept = np.ones(found.shape, dtype=bool) if counts is None else np.asarray(counts, dtype=bool)
    if kept.shape != found.shape:
        raise ValueError(f"{found.shape} values, but {kept.shape} say which of them count")
    if not np.isfinite(found[kept]).all():
        raise ValueError("a value is no number")
    return np.where(kept, found, 0.0), kept
