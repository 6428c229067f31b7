"""Pairs that models made, put into the label queue together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, OuterRef

from apps.accounts.models import Project
from apps.common.errors import Conflict, DomainError
from apps.labeling.models import Comparison, LabelingSettings, PairSelection, Slot
from apps.labeling.selectors import settings_get
from apps.labeling.selectors.batches import selection_of
from apps.labeling.services import bulk_statements as sql
from apps.labeling.services.bulk import HIGHEST_PRIORITY
from apps.labeling.services.importing import comparisons_import
from apps.labeling.services.projects import labeling_set_up
from apps.labeling.services.results import ImportReport
from measures.splits import unit_hash


def batch_queue(
    *,
    project: Project,
    rows: Iterable[Mapping[str, Any]],
    batch: str,
    votes: int | None,
    priority: float,
) -> ImportReport:
    """`comparisons_import` of rows that each get so many votes (None: as many as the project asks
    for) and this priority; a row that cannot be compared is left out. Raises `DomainError`, and
    `Conflict` (`pairs_selected`) of a batch from which pairs were chosen."""
    with transaction.atomic():
        _lock(project)
        if selection_of(project_id=project.pk, batch=batch) is not None:
            raise Conflict(
                "Only some of these pairs were chosen to be labeled. Take them back to send all.",
                code="pairs_selected",
            )
        most = settings_get(project=project).max_overlap
        if votes is not None:
            _votes_check(votes, most, "votes")
        wanted = [{**row, "overlap": votes} for row in rows]
        return _queue(project, wanted, batch, priority)


def _votes_check(votes: int, most: int, field: str) -> None:
    if not 1 <= votes <= most:
        raise DomainError(
            f"A whole number from 1 to {most}, the most votes that a comparison may get here.",
            code="bad_votes",
            field=field,
        )


def _queue(
    project: Project, rows: Iterable[Mapping[str, Any]], batch: str, priority: float
) -> ImportReport:
    if not 0 <= priority <= HIGHEST_PRIORITY:
        raise DomainError(
            f"A number from 0 to {HIGHEST_PRIORITY:,.0f}.", code="bad_priority", field="priority"
        )
    return comparisons_import(
        project=project,
        rows=[{**row, "priority": priority} for row in rows],
        batch=batch,
        on_error="skip",
        identical_answers="warn",
    )


def batch_comparable(*, project: Project, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Places of the rows that could be compared here. Nothing is written."""
    report = comparisons_import(
        project=project, rows=rows, on_error="skip", identical_answers="warn", dry_run=True
    )
    bad = {problem.row for problem in report.problems}
    return [place for place in range(len(rows)) if place + 1 not in bad]


@dataclass(frozen=True, slots=True)
class SliceRows:
    """Rows with ids that become pairs of one slice, with so many votes each. inclusion_probability:
    with which each was drawn into it; None of those that a model chose. votes_field: what the
    number of votes is called in a refusal."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    votes: int
    inclusion_probability: float | None
    votes_field: str = "votes"

    @property
    def stratum(self) -> str:
        """Agreement sees what measures, and nothing that has one vote or was chosen."""
        measures = self.name == Comparison.Slice.MEASURING
        return (Comparison.Stratum.RANDOM if measures else Comparison.Stratum.PRIORITY).value


@transaction.atomic
def batch_select(
    *,
    project: Project,
    batch: str,
    slices: Sequence[SliceRows],
    plan: Mapping[str, Any],
    report: Mapping[str, Any],
    priority: float,
) -> tuple[PairSelection, bool]:
    """Queue the chosen pairs of a batch with their slices, all or none, and keep the plan; whether
    this call did. A second one with the same plan changes nothing.

    Errors: `Conflict` (`pairs_queued`) where pairs of the batch are in the queue by another plan or
    by none; `DomainError` as of `batch_queue`.
    """
    _lock(project)
    if known := selection_known(project=project, batch=batch, plan=plan):
        return known, False
    most = settings_get(project=project).max_overlap
    for one in slices:
        if one.rows:
            _votes_check(one.votes, most, one.votes_field)
    wanted = [
        {**row, "stratum": one.stratum, "overlap": one.votes} for one in slices for row in one.rows
    ]
    _queue(project, wanted, batch, priority)
    queued = Comparison.objects.filter(project=project, batch=batch)
    for one in slices:
        queued.filter(external_id__in=[row["id"] for row in one.rows]).update(
            slice=one.name, inclusion_probability=one.inclusion_probability
        )
    made = PairSelection.objects.create(
        project=project, batch=batch, plan=dict(plan), report=dict(report)
    )
    return made, True


def selection_known(
    *, project: Project, batch: str, plan: Mapping[str, Any]
) -> PairSelection | None:
    """The selection of a batch, where it was made by this plan; None where nothing of it is in the
    queue. Raises `Conflict` (`pairs_queued`) otherwise."""
    found = selection_of(project_id=project.pk, batch=batch)
    if found is not None and found.plan == dict(plan):
        return found
    if found is not None or Comparison.objects.filter(project=project, batch=batch).exists():
        how = "by another plan" if found else "all of them"
        raise Conflict(
            f"Pairs of this run are in the label queue already, {how}. Take them back first.",
            code="pairs_queued",
        )
    return None


def _lock(project: Project) -> None:
    """This row serialises what comes into a project's queue, imports included."""
    labeling_set_up(project=project)
    LabelingSettings.objects.select_for_update(no_key=True).get(project=project)


@transaction.atomic
def pairs_order(
    *,
    project: Project,
    priorities: Mapping[int, float],
    measuring: float,
    salt: str,
    again: bool = False,
) -> tuple[int, int]:
    """Put open pairs without a vote ahead of others by a model's word: (moved, left to measure).

    priorities: of each pair, at least 0. A share `measuring` of them, drawn by the hash of their id
    and the salt, becomes the slice that measures and keeps its place; the others are of the slice
    `selected`, which trains and measures nothing. Pairs that have a vote, a slice or a leased place
    by now are left as they are; `again`: but those that a model's word has moved already.
    """
    places = Slot.objects.select_for_update(no_key=True).filter(task__in=list(priorities))
    list(places.order_by("pk").values_list("pk"))
    leased = Slot.objects.filter(task=OuterRef("pk"), state=Slot.State.LEASED)
    slices = ["", Comparison.Slice.SELECTED] if again else [""]
    rows = (
        Comparison.objects.select_for_update(no_key=True, of=("self",))
        .filter(project=project, pk__in=list(priorities), slice__in=slices, n_votes=0)
        .filter(~Exists(leased), state=Comparison.State.OPEN, gold="")
        .order_by("pk")
    )
    found = list(rows.values_list("pk", flat=True))
    kept = [pk for pk in found if unit_hash(str(pk), salt) < measuring]
    moved = sorted(set(found) - set(kept))
    Comparison.objects.filter(pk__in=kept).update(
        slice=Comparison.Slice.MEASURING, inclusion_probability=measuring
    )
    Comparison.objects.filter(pk__in=moved).update(
        slice=Comparison.Slice.SELECTED, stratum=Comparison.Stratum.PRIORITY
    )
    with connection.cursor() as cursor:
        values = [float(priorities[pk]) for pk in moved]
        cursor.execute(sql.PRIORITIES_SET, {"ids": moved, "values": values})
        cursor.execute(sql.PAIRS_PRIORITIES_SET, {"ids": moved, "values": values})
    return len(moved), len(kept)
