"""The inbox: flagged answers that wait for a verdict by a person."""

from dataclasses import dataclass

from django.db.models import Count, QuerySet
from django.utils import timezone

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.evaluation.models import FlaggedAnswer, SheetItem
from apps.training.models import Run

State = FlaggedAnswer.State
MOST_COUNTED = 1_000


@dataclass(frozen=True, slots=True)
class InboxFilters:
    """What the inbox is narrowed to; empty fields narrow nothing."""

    run: str = ""
    kind: str = ""

    def rows(self, project: Project, state: str = State.WAITING) -> QuerySet[FlaggedAnswer]:
        """Newest first; those of `state`."""
        found = FlaggedAnswer.objects.filter(project=project, state=state)
        if self.run:
            found = found.filter(run=self.run)
        if self.kind:
            found = found.filter(kind=self.kind)
        return found.select_related("run", "sample", "claimed_by").order_by("-pk")


def inbox_count(project: Project) -> int:
    """How many answers wait; counted up to `MOST_COUNTED` + 1."""
    rows = FlaggedAnswer.objects.filter(project=project, state=State.WAITING)
    return rows.values("pk")[: MOST_COUNTED + 1].count()


def inbox_runs(project: Project) -> list[tuple[Run, int]]:
    """Runs of which answers wait, newest first, each with how many."""
    rows = FlaggedAnswer.objects.filter(project=project, state=State.WAITING)
    counts = dict(rows.values("run").annotate(n=Count("pk")).values_list("run", "n"))
    runs = Run.objects.filter(pk__in=counts).order_by("-created_at")
    return [(run, counts[run.pk]) for run in runs]


def inbox_kinds(project: Project) -> list[tuple[str, str, int]]:
    """(reason's kind, its words, how many wait), of those there are."""
    rows = FlaggedAnswer.objects.filter(project=project, state=State.WAITING)
    counts = dict(rows.values("kind").annotate(n=Count("pk")).values_list("kind", "n"))
    return [
        (kind, label, counts[kind]) for kind, label in FlaggedAnswer.Kind.choices if kind in counts
    ]


def flagged_get(*, project: Project, flagged_id: int) -> FlaggedAnswer:
    """Raises `Missing`."""
    rows = FlaggedAnswer.objects.select_related("run", "sample", "claimed_by")
    found = rows.filter(project=project, pk=flagged_id).first()
    if found is None:
        raise Missing("There is no such answer in the inbox of this project.", field="answer")
    return found


def neighbours(
    rows: QuerySet[FlaggedAnswer], flagged_id: int
) -> tuple[FlaggedAnswer | None, FlaggedAnswer | None]:
    """(the one before, the one after) in a list that is newest first."""
    before = rows.filter(pk__gt=flagged_id).order_by("pk").first()
    return before, rows.filter(pk__lt=flagged_id).first()


def open_by(row: FlaggedAnswer | SheetItem) -> str:
    """The name of whoever has it open at this moment; "" where nobody has."""
    until = row.claimed_until
    if row.claimed_by is None or until is None or until <= timezone.now():
        return ""
    return str(row.claimed_by)
