"""Does a cheaper number format put answers in the same order?"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.blocks import Intervals
from measures.estimate import Interval
from measures.intervals import mean_interval
from measures.trust.findings import Finding, Verdict, unmeasured
from workers.contract.numbers import listed, percent, share

Floats = NDArray[np.float64]

LEAST_AGREEMENT = 0.99  # SPEC D12
LEAST_ANSWERS = 50
_CHUNK = 2_000_000  # pairs held at once


def rank_agreement(reference: ArrayLike, other: ArrayLike) -> Interval:
    """Of the pairs of answers that `reference` tells apart, the share in the same order in `other`.

    reference, other: (n,) scores of the same answers. A tie in `other` counts ½: it no longer says
    who wins. This is (1 + D)/2 with Somers' D of `other` given `reference`; without ties, Kendall's
    tau mapped to [0, 1]. 0.99 means that one pair in a hundred is turned around.

    Interval: a U-statistic of order two, so to first order twice the mean of what each answer
    contributes (Hoeffding 1948); those are resampled. n counts answers. Assumes answers drawn
    independently. Undefined where `reference` tells none apart; scores that are no numbers are a
    ValueError.
    """
    a, b = np.asarray(reference, dtype=float), np.asarray(other, dtype=float)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"two lists of a length, not {a.shape} and {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("a score is no number")
    n = len(a)
    agreed, told = np.zeros(n), np.zeros(n)
    step = max(1, _CHUNK // max(n, 1))
    for start in range(0, n, step):
        rows = slice(start, start + step)
        order = np.sign(a[rows, None] - a[None, :])
        agreed[rows] = (order * np.sign(b[rows, None] - b[None, :])).sum(axis=1)
        told[rows] = np.abs(order).sum(axis=1)
    if not told.sum():
        why = "the reference tells no two answers apart"
        return Interval(value=None, low=None, high=None, n=n, undefined=why)
    value = float((1 + agreed.sum() / told.sum()) / 2)
    # Influence of each answer on the ratio agreed/told, doubled by the order of the statistic.
    influence = (agreed - told * agreed.sum() / told.sum()) / told.mean() / 2
    found = mean_interval(value + 2 * influence)
    if found.low is None or found.high is None:
        same = value if n >= 10 else None
        return Interval(value=value, low=same, high=same, n=n, no_interval=None if same else "few")
    return Interval(value=value, low=max(0.0, found.low), high=min(1.0, found.high), n=n)


def precision_line(
    reference: ArrayLike, by_precision: Mapping[str, ArrayLike], *, served: str | None = None
) -> Finding:
    """Green: the served precision (all that were tried, where none is named) ranks as float32 does
    in at least 0.99, with the lower end there too. Under 50 answers only a fault is shown."""
    if not by_precision:
        return unmeasured("precision", "Only float32 was tried, so there is nothing to compare.")
    found = {name: rank_agreement(reference, scores) for name, scores in by_precision.items()}
    if any(one.value is None for one in found.values()):
        return unmeasured("precision", "In float32 all answers score alike: no order to keep.")
    judged = {served: found[served]} if served in found else found
    failed = [name for name, one in judged.items() if (one.low or 0.0) < LEAST_AGREEMENT]
    worst = min(judged, key=lambda name: judged[name].value or 0.0)
    figure = judged[worst]
    evidence = (
        Intervals(
            title="Pairs of answers in the same order as in float32",
            rows=tuple(found.items()),
            reference=LEAST_AGREEMENT,
            reference_label=f"at least {percent(LEAST_AGREEMENT)}",
            note="Of all pairs of answers that float32 tells apart; ties count one half.",
        ),
    )
    alike = [name for name, one in found.items() if (one.low or 0.0) >= LEAST_AGREEMENT]
    facts = {
        "agreement": {name: one.value for name, one in found.items()},
        "failed": failed,
        "alike": alike if figure.n >= LEAST_ANSWERS else [],
    }
    order = f"{worst} orders {share(figure)} of the pairs of {figure.n:,} answers as float32 does"
    highs = [judged[name].high for name in failed]
    sure = any(high is not None and high < LEAST_AGREEMENT for high in highs)
    if figure.n < LEAST_ANSWERS and not sure:
        why = f"{order}; {LEAST_ANSWERS} answers or more are needed to judge that."
        return unmeasured("precision", why, evidence=evidence)
    if failed:
        verdict = Verdict.RED
        says = f"{order}, and {percent(LEAST_AGREEMENT)} must be shown: do not serve in "
        says += f"{listed(failed)}."
    else:
        verdict = Verdict.GREEN
        says = f"{order}: at least {percent(LEAST_AGREEMENT)}."
        if others := [name for name in found if name not in alike]:
            says += f" Not so {listed(others)}: do not serve in that."
    return Finding(
        line="precision",
        verdict=verdict,
        says=says,
        figure=figure,
        evidence=evidence,
        facts=facts,
    )
