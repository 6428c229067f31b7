"""What a look at a reward model found: one finding a line, red or green, with its evidence.

Every finding answers one question of "may I optimise against this model?". It is green when the
evidence shows that the answer is yes, red when it shows no or is too thin to show yes where a yes
must be shown, and unmeasured when there was nothing to measure it with, which is never a yes.

Evidence is made of a few kinds of block that a page can draw without knowing the line, and that
survive JSON: `finding_to_json` and `finding_from_json` are inverses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from measures.blocks import Block, block_from_json, plain_json
from measures.estimate import Interval, reason
from measures.intervals import wilson

# What is asked, in the order in which it is read; `apps.evaluation.lines` has the words.
LINES = (
    "accuracy",
    "beats_length",
    "beats_words",
    "overfit",
    "unseen_people",
    "slices",
    "label_noise",
    "calibration",
    "length_taste",
    "length_matched",
    "format_taste",
    "spurious_words",
    "prompt_only",
    "metadata_only",
    "empty_probes",
    "praise_probes",
    "damage_probes",
    "score_shape",
    "policy_range",
    "other_domain",
    "disagreement",
    "best_of_n",
    "precision",
    "people_rank",
    "freshness",
)


class Verdict(StrEnum):
    GREEN = "green"
    RED = "red"
    UNMEASURED = "unmeasured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line. `says` is a sentence with the numbers in it; `figure` the one that decided, where
    there is one; `unit` says how to print it: share or number."""

    line: str  # one of LINES
    verdict: Verdict
    says: str
    figure: Interval | None = None
    unit: str = "share"
    evidence: tuple[Block, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)  # plain numbers for API and tests


def unmeasured(line: str, why: str, *, evidence: Sequence[Block] = ()) -> Finding:
    """`why` says what was missing and what to do about it."""
    return Finding(line=line, verdict=Verdict.UNMEASURED, says=why, evidence=tuple(evidence))


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """Plain JSON types."""
    return plain_json(asdict(finding))


def finding_from_json(data: Mapping[str, Any]) -> Finding:
    """Raises KeyError, TypeError or ValueError when `data` is no finding."""
    figure = data.get("figure")
    return Finding(
        line=str(data["line"]),
        verdict=Verdict(data["verdict"]),
        says=str(data["says"]),
        figure=None if figure is None else Interval(**figure),
        unit=str(data.get("unit", "share")),
        evidence=tuple(block_from_json(block) for block in data.get("evidence", ())),
        facts=dict(data.get("facts", {})),
    )


# A share over rows that hang together, with an interval that survives 0 and 1.


def clustered_share(credit: ArrayLike, clusters: Sequence[object]) -> Interval:
    """Mean of (n,) credits in [0, 1] (ties ½) and Wilson's 95 % interval at the effective size.

    Rows of a cluster are alike, so n rows hold less than n trials: n* = p(1 − p)/V, V the variance
    of the mean over clusters (ratio estimator, with k/(k − 1)), kept between 1 and n. Where
    p is 0 or 1 there is no variance to estimate and every cluster counts as one trial.

    Source: Korn & Graubard, Survey Methodology 24 (1998), with Wilson's interval in place of
    Clopper and Pearson's (Franco et al., J. Survey Statistics and Methodology 7, 2019). The
    bootstrap gives no interval where all rows are alike, which is where probes should end.
    Assumes independent clusters; `n` counts rows and `n_clusters` clusters.
    """
    values = np.asarray(credit, dtype=float)
    if not len(values):
        return Interval(value=None, low=None, high=None, n=0, undefined=reason("no_rows"))
    _, group = np.unique(np.asarray([str(name) for name in clusters]), return_inverse=True)
    if group.shape != values.shape:
        raise ValueError(f"one cluster per row: {len(group)} for {len(values)}")
    n, k = len(values), int(group.max()) + 1
    p = float(values.mean())
    effective = _effective_size(values, group, p, k) if 0 < p < 1 else k
    found = wilson(p * effective, effective)
    return Interval(value=p, low=found.low, high=found.high, n=n, n_clusters=k)


def _effective_size(values: np.ndarray, group: np.ndarray, p: float, k: int) -> float:
    n = len(values)
    if k < 2:
        return 1.0
    totals = np.bincount(group, weights=values - p)
    variance = float((totals**2).sum()) / n**2 * k / (k - 1)
    return float(min(n, max(1.0, p * (1 - p) / variance))) if variance > 0 else float(n)
