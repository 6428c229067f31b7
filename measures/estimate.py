"""The results a statistic can have: a value, an interval, or the reason why there is none.

Two reasons are kept apart. `undefined` says why there is no value; `no_interval` says why a value
stands without bounds, both as `reason` writes them. Exactly the fields that exist are not
None, so a page can print what is there and the reason for what is not. Intervals are 95 %.
"""

from dataclasses import dataclass
from enum import StrEnum


class Statistic(StrEnum):
    """Which agreement statistic an `Estimate` holds; `measures.agreement.reading` reads by it."""

    PERCENT_AGREEMENT = "percent_agreement"
    KRIPPENDORFF_ALPHA = "krippendorff_alpha"
    FLEISS_KAPPA = "fleiss_kappa"
    GWET_AC1 = "gwet_ac1"
    COHEN_KAPPA = "cohen_kappa"
    MEAN_COHEN_KAPPA = "mean_cohen_kappa"


def reason(code: str, **about: float | str) -> str:
    """Why there is no value or no interval: a code with the numbers that belong to it, such as
    `few_groups n=4 least=10`. The words of each code stand in `workers.contract.reasons`."""
    return " ".join([code, *(f"{name}={value}" for name, value in about.items())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An agreement statistic over comparisons.

    `n_items` and `n_votes` count what entered it: comparisons with at least two votes, and the
    votes on them. `value`, `low` and `high` are plain fractions (0.56, not 56).
    """

    statistic: Statistic
    value: float | None
    low: float | None
    high: float | None
    n_items: int
    n_votes: int
    undefined: str | None = None
    no_interval: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean, a share or a difference over rows, with its interval.

    `n` counts rows; `n_clusters` counts the independent units that were resampled (None where
    every row is its own).
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    n_clusters: int | None = None
    undefined: str | None = None
    no_interval: str | None = None


@dataclass(frozen=True, slots=True)
class Quantity:
    """A single number that may be undefined: exactly one of the two fields is not None."""

    value: float | None
    undefined: str | None = None
