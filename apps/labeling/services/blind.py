"""Blind pairs: people compare two systems' answers, and nothing is decided or learned from it."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import transaction
from django.db.models import Max, Min

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.labeling.models import EvaluationSet, Response, Slot, Task
from apps.labeling.services.bulk import HIGHEST_PRIORITY
from apps.labeling.services.importing import MOST_BLIND_VOTES, comparisons_import
from apps.labeling.services.results import ImportReport


@transaction.atomic
def blind_pairs_queue(
    *,
    project: Project,
    rows: Iterable[Mapping[str, Any]],
    batch: str,
    votes: int,
    most_each: int,
    priority: float,
) -> tuple[EvaluationSet, ImportReport]:
    """Put pairs into the label queue of which nobody answers more than `most_each`.

    rows: as in `comparisons_import`, each with an `id`; response_a is the first system's. `votes`
    people answer each. Raises `DomainError` naming the field, or `RowsRefused`.
    """
    if not 1 <= votes <= MOST_BLIND_VOTES:
        raise DomainError(f"From 1 to {MOST_BLIND_VOTES} votes a pair.", field="votes_each")
    if not 0 <= priority <= HIGHEST_PRIORITY:
        raise DomainError(f"From 0 to {HIGHEST_PRIORITY}.", field="priority")
    if most_each < 1:
        raise DomainError("At least 1.", field="most_each")
    asked = [
        {**row, "overlap": votes, "priority": priority, "origin": Response.Origin.MODEL.value}
        for row in rows
    ]
    report = comparisons_import(project=project, rows=asked, batch=batch, blind=True)
    ids = Task.objects.filter(
        project=project, kind=Task.Kind.BLIND, external_id__in=[row["id"] for row in asked]
    ).aggregate(first=Min("pk"), last=Max("pk"))
    if ids["first"] is None:
        raise DomainError("There is nothing to compare.", code="no_pairs")
    found = EvaluationSet.objects.create(
        project=project, first_task=ids["first"], last_task=ids["last"], most_each=most_each
    )
    return found, report


@transaction.atomic
def blind_pairs_close(*, evaluation_set: EvaluationSet) -> int:
    """Ask nobody any more; how many places for votes are withdrawn. What is in somebody's hands may
    still be answered and counts. Closing again changes nothing."""
    found = EvaluationSet.objects.select_for_update(no_key=True).get(pk=evaluation_set.pk)
    EvaluationSet.objects.filter(pk=found.pk).update(is_open=False)
    free = Slot.objects.filter(
        task__gte=found.first_task, task__lte=found.last_task, state=Slot.State.FREE
    )
    return free.update(state=Slot.State.WITHDRAWN)
