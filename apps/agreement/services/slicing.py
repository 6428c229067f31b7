"""Agreement in every slice, and which slices are worse than the rest."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.agreement.selectors.slices import Comparisons
from apps.agreement.services.dimensions import Dimension, dimensions_of
from apps.agreement.services.statistics import Votes
from measures.agreement import Clustering, clustering, krippendorff_alpha, percent_agreement
from measures.agreement.slices import Gap, holm, item_agreement, slice_gaps
from measures.estimate import Estimate

REPLICATES = 1_000  # a page of eighty intervals; the project's own have twice as many


def slice_figures(votes: Votes, about: Comparisons) -> dict[str, Any]:
    """Each dimension's slices with percent agreement and alpha, and which slices stand out."""
    rows = about.rows_of(votes.ids)
    texts = _Texts(about.group[rows], about.answer_a[rows], about.answer_b[rows])
    dimensions = dimensions_of(votes, about)
    gaps = [_gaps(dimension, texts) for dimension in dimensions]
    settled = iter(holm([gap for part in gaps for gap in part]))
    return {
        "dimensions": [
            {
                "key": dimension.key,
                "unit": dimension.unit,
                "others": dimension.others,
                "slices": [
                    _slice(dimension, number, texts, next(settled))
                    for number in range(len(dimension.labels))
                ],
            }
            for dimension in dimensions
        ],
        "n_tested": sum(gap.p is not None for part in gaps for gap in part),
    }


class _Texts:
    """What comparisons share: their group and their two answers."""

    def __init__(self, group: NDArray, first: NDArray, second: NDArray) -> None:
        _, self.group = np.unique(group, return_inverse=True)  # small numbers are counted faster
        self.first, self.second = first, second

    def of(self, rows: NDArray) -> Clustering:
        return clustering(self.group[rows], (self.first[rows], self.second[rows]))


def _gaps(dimension: Dimension, texts: _Texts) -> list[Gap]:
    n = len(dimension.labels)
    if n < 2:
        return [Gap(None, None, None, None, 0, untested="nothing to compare with")] * n
    inside = dimension.place >= 0
    of = dimension.of[inside]
    found = slice_gaps(
        item_agreement(dimension.counts[inside]),
        dimension.place[inside],
        n_slices=n,
        groups=texts.group[of],
        answers=(texts.first[of], texts.second[of]),
    )
    if dimension.others:
        found[-1] = replace(found[-1], p=None, untested="several values together")
    return found


def _slice(dimension: Dimension, number: int, texts: _Texts, gap: Gap) -> dict[str, Any]:
    here = np.flatnonzero(dimension.place == number)
    counts = dimension.counts[here]
    how = texts.of(dimension.of[here]).how() | {"replicates": REPLICATES}
    percent, alpha = percent_agreement(counts, **how), krippendorff_alpha(counts, **how)
    return {
        "label": dimension.labels[number],
        "n_items": percent.n_items,
        "n_votes": percent.n_votes,
        "percent": _short(percent),
        "alpha": _short(alpha),
        "gap": asdict(gap) | {"is_worse": gap.is_worse},
    }


def _short(estimate: Estimate) -> dict[str, Any]:
    kept = ("value", "low", "high", "undefined", "no_interval")
    return {name: getattr(estimate, name) for name in kept}
