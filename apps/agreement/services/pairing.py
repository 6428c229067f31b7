"""Who agrees with whom: the people of the matrix and their cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.agreement.selectors.counted import counted_votes
from apps.agreement.selectors.votes import VoteColumns, settings_of, vote_columns
from apps.agreement.services.statistics import Votes, votes_indexed
from measures.agreement import cohen_kappa
from measures.agreement.pairs import PairCounts
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
