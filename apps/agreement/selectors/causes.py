"""Reads: what disputes were about, and under which guideline they were ruled on."""

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.models import Project
from apps.agreement.models import Ruling
from apps.labeling.models import Guideline


@dataclass(frozen=True, slots=True)
class CauseCount:
    """n disputes with this cause, ruled in this month while this guideline version was in force
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
