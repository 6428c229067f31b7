"""Reads: what votes did not settle, what was ruled, and what a second round changed."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
from django.db import connection
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from numpy.typing import NDArray

from apps.accounts.models import Project, User
from apps.agreement.models import Ruling, VotesShown
from apps.common.errors import DomainError, Missing
from apps.labeling.models import (
    NOBODY_LEFT,
    Choice,
    Comparison,
    Decision,
    Guideline,
    LabelingSettings,
    Prompt,
    Skip,
    Slot,
    Vote,
)
from apps.labeling.selectors import settings_get
from apps.labeling.texts import excerpt
from measures.ambiguity import vote_entropy
from measures.rounds import BeforeAfter, before_after

# What a list may show, by the name in the address.
SHOWN = {
    "unsettled": "Not settled",
    "contested": "Contested",
    "stuck": "Nobody left to vote",
    "review": "Needs review",
    "flagged": "Flagged by an annotator",
    "split": "Accepted, but split",
    "waiting": "Sent again, open",
    "settled": "Settled by a ruling",
}
SERIOUS_FLAGS = ("unsafe", "personal_data")
SPLIT_UNDER = 0.75  # of the votes agree, at most, on an accepted comparison that is called split

_State = Comparison.State
_SHOWN: dict[str, Q] = {
    "unsettled": Q(state__in=(_State.CONTESTED, _State.REVIEW)),
    "contested": Q(state=_State.CONTESTED),
    "stuck": Q(state=_State.CONTESTED, review_reason=NOBODY_LEFT),
    "review": Q(state=_State.REVIEW),
    "split": Q(decision__outcome=Decision.Outcome.ACCEPTED, decision__share__lt=SPLIT_UNDER),
    "settled": Q(decision__outcome__in=(Decision.Outcome.ADJUDICATED, Decision.Outcome.DROPPED)),
}


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list of disputes is narrowed to; empty fields narrow nothing."""

    show: str = "unsettled"
    topic: str = ""
    cause: str = ""
    ruled: str = ""  # yes, no
    search: str = ""


@dataclass(frozen=True)
class Ranked:
    """Comparisons in the order of a list: the most undecided votes first, then more votes, then the
    older one. Those without votes come last."""

    ids: list[int] = field(default_factory=list)
    entropy: dict[int, float] = field(default_factory=dict)

    @cached_property
    def places(self) -> dict[int, int]:
        return {pk: place for place, pk in enumerate(self.ids)}

    def beside(self, comparison: int) -> tuple[int | None, int | None]:
        """(the one before, the one after); for a comparison that has left the list, the first."""
        place = self.places.get(comparison)
        if place is None:
            return None, (self.ids[0] if self.ids else None)
        after = self.ids[place + 1] if place + 1 < len(self.ids) else None
        return (self.ids[place - 1] if place else None), after


def disputes(*, project: Project, filters: Filters) -> Ranked:
    """The disputes that fit, ranked by the entropy of their votes."""
    found = _narrowed(project, filters).order_by("pk")
    rows = list(
        found.values_list(
            "pk", "decision__n_a", "decision__n_b", "decision__n_tie", "decision__n_both_bad"
        )
    )
    if not rows:
        return Ranked()
    counts = np.array([[n or 0 for n in row[1:]] for row in rows], dtype=np.int64)
    bits = vote_entropy(counts)
    order = np.lexsort((-counts.sum(axis=1), -np.nan_to_num(bits, nan=-1.0)))
    return Ranked(
        ids=[rows[place][0] for place in order],
        entropy={rows[place][0]: float(bits[place]) for place in order},
    )


def _narrowed(project: Project, filters: Filters) -> QuerySet[Comparison]:
    found = Comparison.objects.filter(project=project).exclude(stratum=Comparison.Stratum.PRACTICE)
    if filters.show == "flagged":
        flagged = Vote.objects.filter(
            comparison=OuterRef("pk"), is_current=True, flags__overlap=list(SERIOUS_FLAGS)
        ).exclude(slot__kind=Slot.Kind.DISCARD)
        found = found.filter(Exists(flagged)).exclude(state=_State.DROPPED)
        found = found.exclude(decision__outcome=Decision.Outcome.ADJUDICATED)
    elif filters.show == "waiting":
        sent = Ruling.objects.filter(comparison=OuterRef("pk"), action=Ruling.Action.SENT_AGAIN)
        found = found.filter(Exists(sent), state=_State.OPEN)
    else:
        found = found.filter(_SHOWN[filters.show])
    if filters.topic:
        found = found.filter(prompt__topic=filters.topic)
    if filters.search:
        found = found.filter(
            Q(external_id=filters.search) | Q(prompt__brief__icontains=filters.search)
        )
    rulings = Ruling.objects.filter(comparison=OuterRef("pk"))
    if filters.cause:
        found = found.filter(Exists(rulings.filter(cause=filters.cause)))
    if filters.ruled:
        found = found.filter(Exists(rulings) if filters.ruled == "yes" else ~Exists(rulings))
    return found


@dataclass(frozen=True, slots=True)
class DisputeRow:
    """One line of the list."""

    comparison: Comparison
    decision: Decision | None
    prompt: str
    entropy: float | None
    ruling: Ruling | None


def dispute_rows(*, ids: list[int], entropy: dict[int, float]) -> list[DisputeRow]:
    """The lines of these comparisons, in the order given."""
    found = Comparison.objects.select_related("prompt", "decision").in_bulk(ids)
    newest: dict[int, Ruling] = {}
    for ruling in Ruling.objects.filter(comparison__in=ids).order_by("pk"):
        newest[ruling.comparison_id] = ruling
    return [
        DisputeRow(
            comparison=found[pk],
            decision=getattr(found[pk], "decision", None),
            prompt=excerpt(found[pk].prompt.brief),
            entropy=None if np.isnan(entropy[pk]) else entropy[pk],
            ruling=newest.get(pk),
        )
        for pk in ids
        if pk in found
    ]


def shown_counts(*, project: Project) -> dict[str, int]:
    """How many comparisons each list has, for those that one count can say."""
    return (
        Comparison.objects.filter(project=project)
        .exclude(stratum=Comparison.Stratum.PRACTICE)
        .aggregate(**{name: Count("pk", filter=where) for name, where in _SHOWN.items()})
    )


def topics_disputed(*, project: Project) -> list[str]:
    found = Prompt.objects.filter(project=project).exclude(topic="").order_by("topic")
    return list(found.values_list("topic", flat=True).distinct()[:200])


def comparison_of(*, project: Project, comparison: int) -> Comparison:
    """One comparison with its texts, or `Missing`; qualification pairs are nobody's dispute."""
    found = (
        Comparison.objects.filter(project=project, pk=comparison)
        .exclude(stratum=Comparison.Stratum.PRACTICE)
        .select_related("project", "prompt", "response_a", "response_b", "decision")
        .first()
    )
    if found is None:
        raise Missing("There is no such comparison in this project.")
    return found


def rulings_of(*, comparison: Comparison) -> list[Ruling]:
    """Newest first."""
    return list(
        Ruling.objects.filter(comparison=comparison)
        .select_related("by", "guideline")
        .order_by("-pk")
    )


def ruling_newest(*, comparison: Comparison) -> Ruling | None:
    found = Ruling.objects.filter(comparison=comparison).select_related("by")
    return found.order_by("-pk").first()


def skips_of(*, comparison: Comparison) -> list[str]:
    return list(
        Skip.objects.filter(task=comparison).order_by("pk").values_list("reason", flat=True)
    )


def guideline_of(*, project: Project, version: int) -> Guideline:
    found = Guideline.objects.filter(project=project, version=version).first()
    if found is None:
        raise DomainError(f"There is no version {version} of the guidelines.", field="version")
    return found


def rulings_all(*, project: Project) -> QuerySet[Ruling, Mapping[str, Any]]:
    """Every ruling of the project, oldest first, as a table prints it."""
    return (
        Ruling.objects.filter(project=project)
        .order_by("pk")
        .values(
            "comparison_id",
            "comparison__external_id",
            "action",
            "cause",
            "choice",
            "note",
            "guideline__version",
            "votes_before",
            "at",
        )
    )


CHOICES = tuple(Choice.values)


# Reads: what disputes were about, and under which guideline they were ruled on.


@dataclass(frozen=True, slots=True)
class CauseCount:
    """n disputes with this cause, ruled in this month while this guideline version was current
    (0: before the first)."""

    cause: str
    guideline: int
    month: str  # 2026-11
    n: int


def cause_counts(*, project: Project) -> list[CauseCount]:
    """Each dispute once, by its newest ruling that names a cause, in order of time."""
    versions = list(
        Guideline.objects.filter(project=project)
        .order_by("created_at")
        .values_list("created_at", "version")
    )
    starts = [start for start, _ in versions]
    newest: dict[int, tuple[str, datetime]] = {}
    rulings = Ruling.objects.filter(project=project).exclude(cause="").order_by("pk")
    for comparison, cause, at in rulings.values_list("comparison_id", "cause", "at"):
        newest[comparison] = (cause, at)
    counted: dict[tuple[str, int, str], int] = {}
    for cause, at in newest.values():
        place = bisect_right(starts, at)
        version = versions[place - 1][1] if place else 0
        key = (f"{at:%Y-%m}", version, cause)
        counted[key] = counted.get(key, 0) + 1
    return [
        CauseCount(cause=cause, guideline=version, month=month, n=n)
        for (month, version, cause), n in sorted(counted.items())
    ]


# Reads: comparisons that were sent to re-annotation, before and after, by guideline version.

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


def votes_hidden(*, comparison: Comparison, user: User) -> bool:
    """Whether this reviewer rules before seeing votes, model, labels and earlier rulings: where the
    project wants it so, until they have ruled, had the votes shown, or it is settled."""
    if not settings_get(project=comparison.project).judge_first:
        return False
    decision = Decision.objects.filter(comparison=comparison).first()
    if comparison.state == Comparison.State.DROPPED or (
        decision is not None and decision.outcome == Decision.Outcome.ADJUDICATED
    ):
        return False
    return not (
        VotesShown.objects.filter(comparison=comparison, user=user).exists()
        or Ruling.objects.filter(comparison=comparison, by=user).exists()
    )
