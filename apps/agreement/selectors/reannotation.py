"""Reads: comparisons that were sent to re-annotation, before and after, by guideline version."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from django.db import connection
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.agreement.models import Ruling
from apps.labeling.models import (
    Choice,
    Comparison,
    Decision,
    Guideline,
    LabelingSettings,
    Slot,
    Vote,
)
from measures.rounds import BeforeAfter, before_after

Ints = NDArray[np.int64]
_PLACE = {choice: place for place, choice in enumerate(Choice.values)}
_PRIOR_FROM = 20_000  # comparisons, drawn by their shuffle, from which a second look is predicted

# The first votes of the first round, by comparison and choice.
_FIRST_VOTES = """
select comparison_id, choice, count(*) from (
  select v.comparison_id, v.choice,
         row_number() over (partition by v.comparison_id order by v.cast_at, v.id) as place
  from labeling_vote v
  join labeling_slot s on s.id = v.slot_id and s.kind in ('regular', 'former')
  join labeling_comparison c on c.id = v.comparison_id and c.shuffle < %(share)s
  where v.project_id = %(project)s and v.is_current
) votes where place <= %(first)s group by comparison_id, choice
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """What was sent again under one version. n_again: sent again since, under a later one;
    n_settled: decided by the new votes; n_ruled: adjudicated or dropped since; votes of wanted:
    of the new round, so far and asked for; first: how many votes of each round are compared."""

    guideline: Guideline
    n: int
    n_again: int
    n_settled: int
    n_ruled: int
    n_contested: int
    votes: int
    wanted: int
    first: int
    compared: BeforeAfter

    @property
    def n_open(self) -> int:
        return self.n - self.n_again - self.n_settled - self.n_ruled - self.n_contested


@dataclass(slots=True)
class Rounds:
    """One comparison: its rulings that sent it again, in order, and the votes of each round (one
    more than rulings), in the order they were cast."""

    rulings: list[Ruling] = field(default_factory=list)
    votes: list[list[str]] = field(default_factory=list)
    state: str = ""
    overlap: int = 0
    outcome: str = ""


def batches(*, project: Project) -> list[Batch]:
    """Newest version first."""
    rounds = _rounds(project)
    if not rounds:
        return []
    settings = LabelingSettings.objects.filter(project=project).first() or LabelingSettings()
    # Those that are asked for whatever the others say.
    first = 2 if settings.stop_early else max(2, settings.overlap)
    prior = _first_votes(project, first)
    members: dict[int, list[tuple[Rounds, int]]] = {}
    for found in rounds.values():
        for number, ruling in enumerate(found.rulings):
            members.setdefault(ruling.guideline_id or 0, []).append((found, number))
    guidelines = Guideline.objects.filter(pk__in=list(members)).order_by("-version")
    return [_batch(guideline, members[guideline.pk], first, prior) for guideline in guidelines]


def _batch(
    guideline: Guideline, members: list[tuple[Rounds, int]], first: int, prior: Ints
) -> Batch:
    last = [found for found, number in members if number == len(found.rulings) - 1]
    ruled = (Decision.Outcome.ADJUDICATED, Decision.Outcome.DROPPED)
    aside = (Comparison.State.CONTESTED, Comparison.State.REVIEW)
    return Batch(
        guideline=guideline,
        n=len(members),
        n_again=len(members) - len(last),
        n_settled=sum(found.outcome == Decision.Outcome.ACCEPTED for found in last),
        n_ruled=sum(found.outcome in ruled for found in last),
        n_contested=sum(found.state in aside for found in last),
        votes=sum(len(found.votes[-1]) for found in last),
        wanted=sum(found.overlap for found in last if found.outcome not in ruled),
        first=first,
        compared=before_after(
            _rows(found.votes[number][:first] for found, number in members),
            _rows(found.votes[number + 1][:first] for found, number in members),
            seen=_rows(found.votes[number] for found, number in members),
            project=prior,
        ),
    )


def _rounds(project: Project) -> dict[int, Rounds]:
    """{comparison: its rounds} of those that were ever sent again."""
    found: dict[int, Rounds] = {}
    sent = Ruling.objects.filter(project=project, action=Ruling.Action.SENT_AGAIN)
    for ruling in sent.order_by("pk"):
        found.setdefault(ruling.comparison_id, Rounds()).rulings.append(ruling)
    for rounds in found.values():
        rounds.votes = [[] for _ in range(len(rounds.rulings) + 1)]
    votes = (
        Vote.objects.filter(comparison__in=list(found), is_current=True)
        .filter(slot__kind__in=(Slot.Kind.REGULAR, Slot.Kind.GOLD, Slot.Kind.FORMER))
        .order_by("cast_at", "pk")
        .values_list("comparison_id", "choice", "cast_at", "slot__kind")
    )
    for pk, choice, cast_at, kind in votes:
        rounds = found[pk]
        if kind != Slot.Kind.FORMER:
            rounds.votes[-1].append(choice)
            continue
        # An answer that was in hand when the pair was sent comes late, to the round that was over.
        over = [place for place, r in enumerate(rounds.rulings) if cast_at <= r.at]
        rounds.votes[over[0] if over else len(rounds.rulings) - 1].append(choice)
    states = Comparison.objects.filter(pk__in=list(found)).values_list(
        "pk", "state", "overlap", "decision__outcome"
    )
    for pk, state, overlap, outcome in states:
        found[pk].state, found[pk].overlap, found[pk].outcome = state, overlap, outcome or ""
    return found


def _first_votes(project: Project, first: int) -> Ints:
    n = Comparison.objects.filter(project=project, n_votes__gt=0).count()
    share = min(1.0, _PRIOR_FROM / max(n, 1))
    counts: dict[int, list[int]] = {}
    with connection.cursor() as cursor:
        values: dict[str, str | float] = {
            "project": project.pk,
            "first": first,
            "share": share if share < 1 else 2.0,
        }
        cursor.execute(_FIRST_VOTES, values)
        for pk, choice, number in cursor.fetchall():
            counts.setdefault(pk, [0] * len(_PLACE))[_PLACE[choice]] = number
    return np.array(list(counts.values()), dtype=np.int64).reshape(-1, len(_PLACE))


def _rows(votes: Iterable[list[str]]) -> Ints:
    """(n, 4) counts in the order of `Choice`."""
    rows = [[cast.count(choice) for choice in _PLACE] for cast in votes]
    return np.array(rows, dtype=np.int64).reshape(-1, len(_PLACE))
