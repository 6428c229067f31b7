"""Reads: comparisons that were sent to re-annotation, before and after, by guideline version."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.agreement.models import Ruling
from apps.labeling.models import Choice, Comparison, Decision, Guideline
from measures.rounds import BeforeAfter, before_after

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """What was sent again under one version. n_again: sent again since, under a later one;
    n_settled: decided by the new votes; n_ruled: adjudicated or dropped since; votes of wanted:
    of the new round, so far and asked for."""

    guideline: Guideline
    n: int
    n_again: int
    n_settled: int
    n_ruled: int
    n_contested: int
    votes: int
    wanted: int
    compared: BeforeAfter

    @property
    def n_open(self) -> int:
        return self.n - self.n_again - self.n_settled - self.n_ruled - self.n_contested


def batches(*, project: Project) -> list[Batch]:
    """Newest version first."""
    rounds: dict[int, list[Ruling]] = {}  # comparison → its rulings that sent it again, in order
    sent = Ruling.objects.filter(project=project, action=Ruling.Action.SENT_AGAIN)
    for ruling in sent.order_by("pk"):
        rounds.setdefault(ruling.comparison_id, []).append(ruling)
    if not rounds:
        return []
    stored = _stored(project)
    states = {
        pk: (state, overlap, outcome)
        for pk, state, overlap, outcome in Comparison.objects.filter(
            pk__in=list(rounds)
        ).values_list("pk", "state", "overlap", "decision__outcome")
    }
    first_rounds = _rows(
        rounds[pk][0].votes_before if pk in rounds else votes for pk, votes in stored.items()
    )
    members: dict[int, list[tuple[int, Ruling, Ruling | None]]] = {}
    for pk, history in rounds.items():
        for ruling, later in zip(history, [*history[1:], None], strict=True):
            members.setdefault(ruling.guideline_id or 0, []).append((pk, ruling, later))
    guidelines = Guideline.objects.filter(pk__in=list(members)).order_by("-version")
    return [
        _batch(guideline, members[guideline.pk], stored, states, first_rounds)
        for guideline in guidelines
    ]


def _batch(
    guideline: Guideline,
    members: list[tuple[int, Ruling, Ruling | None]],
    stored: dict[int, dict[str, int]],
    states: dict[int, tuple[str, int, str | None]],
    first_rounds: Ints,
) -> Batch:
    before = _rows(ruling.votes_before for _, ruling, _ in members)
    after = _rows(later.votes_before if later else stored.get(pk, {}) for pk, _, later in members)
    still = [states[pk] for pk, _, later in members if later is None]
    ruled = (Decision.Outcome.ADJUDICATED, Decision.Outcome.DROPPED)
    n_ruled = sum(outcome in ruled for _, _, outcome in still)
    return Batch(
        guideline=guideline,
        n=len(members),
        n_again=len(members) - len(still),
        n_settled=sum(outcome == Decision.Outcome.ACCEPTED for _, _, outcome in still),
        n_ruled=n_ruled,
        n_contested=sum(
            state in (Comparison.State.CONTESTED, Comparison.State.REVIEW)
            for state, _, outcome in still
        ),
        votes=sum(sum(stored.get(pk, {}).values()) for pk, _, later in members if later is None),
        wanted=sum(overlap for _, overlap, outcome in still if outcome not in ruled),
        compared=before_after(before, after, project=first_rounds),
    )


def _stored(project: Project) -> dict[int, dict[str, int]]:
    """{comparison: {choice: current deciding votes}} of every comparison with a decision."""
    rows = Decision.objects.filter(project=project).values_list(
        "comparison_id", "n_a", "n_b", "n_tie", "n_both_bad"
    )
    return {pk: dict(zip(Choice.values, counts, strict=True)) for pk, *counts in rows}


def _rows(votes: Iterable[dict[str, int]]) -> Ints:
    """(n, 4) in the order of `Choice`."""
    rows = [[int(counts.get(choice, 0)) for choice in Choice.values] for counts in votes]
    return np.array(rows, dtype=np.int64).reshape(-1, len(Choice.values))
