"""Reads: what votes did not settle, in which order to look at it, and what was ruled."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from apps.accounts.models import Project
from apps.agreement.models import Ruling
from apps.common.errors import DomainError, Missing
from apps.labeling.models import Choice, Comparison, Decision, Guideline, Prompt, Skip, Vote
from apps.labeling.texts import excerpt
from measures.ambiguity import vote_entropy

# What a list may show, by the name in the address.
SHOWN = {
    "unsettled": "Not settled",
    "contested": "Contested",
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
        )
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
            Q(external_id=filters.search) | Q(prompt__messages__icontains=filters.search)
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
            prompt=excerpt(found[pk].prompt.messages),
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
        Skip.objects.filter(comparison=comparison).order_by("pk").values_list("reason", flat=True)
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
