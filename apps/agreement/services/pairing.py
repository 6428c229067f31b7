"""Who agrees with whom: the people of the matrix and their cells."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.agreement.selectors.slices import Comparisons
from apps.agreement.selectors.votes import VoteColumns, counted_votes, settings_of, vote_columns
from apps.agreement.services.dimensions import Dimension, dimensions_of
from apps.agreement.services.statistics import Votes, votes_indexed
from measures.agreement import (
    Clustering,
    clustering,
    cohen_kappa,
    krippendorff_alpha,
    percent_agreement,
)
from measures.agreement.pairs import PairCounts
from measures.agreement.slices import Gap, holm, item_agreement, slice_gaps
from measures.estimate import Estimate, Interval
from measures.intervals import wilson
from measures.voting import CHOICES

Ints = NDArray[np.int64]

MOST_PEOPLE = 30  # rows of a matrix that can still be read


def matrix_figures(votes: Votes) -> dict[str, Any]:
    """The people with most comparisons in common, and their cells: [row, column, n, agreeing]."""
    chosen = people_with_most_in_common(votes.of_people, len(votes.people))
    return matrix_of(votes.of_people, votes.people, chosen) | {
        "n_people": len(votes.people),
        "n_pairs": len(votes.of_people.n),
    }


def matrix_of(counts: PairCounts, people: Ints, chosen: Ints) -> dict[str, Any]:
    """People by their agreement with the others shown, highest first; cells below the diagonal."""
    inside = np.isin(counts.first, chosen) & np.isin(counts.second, chosen)
    first, second = counts.first[inside], counts.second[inside]
    n, agreeing = counts.n[inside], counts.agreeing[inside]
    of_all, n_all = np.zeros(len(people)), np.zeros(len(people))
    for side in (first, second):
        np.add.at(of_all, side, agreeing)
        np.add.at(n_all, side, n)
    # drawn a little towards one half, so that one lucky comparison does not come first
    share = (of_all + 2) / (n_all + 4)
    order = chosen[np.argsort(-share[chosen], kind="stable")]
    place = np.full(len(people), -1, dtype=np.int64)
    place[order] = np.arange(len(order))
    row, column = place[first], place[second]
    cells = np.column_stack([np.maximum(row, column), np.minimum(row, column), n, agreeing])
    return {"people": people[order].tolist(), "cells": sorted(cells.tolist())}


def people_with_most_in_common(counts: PairCounts, n_people: int, most: int = MOST_PEOPLE) -> Ints:
    """Indices of up to `most` people, taken one at a time: who shares most with those taken.

    In a crowd of thousands the busiest people may never have met; this finds some who have.
    """
    if n_people <= most or not len(counts.n):
        return np.arange(min(n_people, most))
    taken = np.zeros(n_people, dtype=bool)
    shared = np.zeros(n_people)
    while taken.sum() < most:
        free = np.where(taken, -1.0, shared)
        person = int(free.argmax())
        if free[person] <= 0:  # nobody left shares anything with them: the best pair of the rest
            open_pairs = np.where(taken[counts.first] | taken[counts.second], 0, counts.n)
            best = int(open_pairs.argmax())
            if not open_pairs[best]:
                break
            person = int(counts.first[best])
        taken[person] = True
        for side, other in ((counts.first, counts.second), (counts.second, counts.first)):
            at = np.flatnonzero(side == person)
            np.add.at(shared, other[at], counts.n[at])
    return np.flatnonzero(taken)


def matrix_of_chosen(*, project: Project, people: Sequence[int]) -> dict[str, Any]:
    """The matrix of these people now, on the votes that count for agreement."""
    votes = votes_indexed(_counted_of(project, people))
    place = {person: index for index, person in enumerate(votes.people.tolist())}
    chosen = np.array([place[person] for person in people if person in place], dtype=np.int64)
    shown = matrix_of(votes.of_people, votes.people, chosen)
    shown["people"] += [person for person in people if person not in place]  # nothing in common
    return shown


@dataclass(frozen=True, slots=True)
class TwoPeople:
    """Two people's common comparisons: `table[c][d]` on which the first chose c and the second d
    (places in CHOICES), and `cells` the ids of those, newest first."""

    table: list[list[int]]
    cells: dict[tuple[int, int], list[int]]
    share: Interval
    kappa: Estimate


def two_people(*, project: Project, first: int, second: int) -> TwoPeople:
    columns = _counted_of(project, (first, second))
    order = np.lexsort((columns.annotator != first, columns.comparison))
    ids, choice = columns.comparison[order], columns.choice[order]
    both = np.flatnonzero(ids[1:] == ids[:-1])
    c, d, common = choice[both], choice[both + 1], ids[both]
    cells: dict[tuple[int, int], list[int]] = {}
    for row, column, key in np.column_stack([c, d, common])[::-1].tolist():
        cells.setdefault((row, column), []).append(key)
    table = np.zeros((len(CHOICES), len(CHOICES)), dtype=np.int64)
    np.add.at(table, (c, d), 1)
    return TwoPeople(
        table=table.tolist(),
        cells=cells,
        share=wilson(int(np.trace(table)), int(table.sum())),
        kappa=cohen_kappa(table),
    )


def _counted_of(project: Project, people: Sequence[int]) -> VoteColumns:
    """The votes of these people that count, where two of them have voted."""
    columns = vote_columns(project=project, people=people)
    counted = counted_votes(columns, settings_of(project=project))
    return columns.only(counted.rows & np.isin(columns.annotator, list(people)))


# Agreement in every slice, and which slices are worse than the rest.

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
