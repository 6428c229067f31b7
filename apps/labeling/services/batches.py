"""Pairs that models made, put into the label queue together."""

from collections.abc import Iterable, Mapping
from typing import Any

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.labeling.selectors import settings_get
from apps.labeling.services.bulk import HIGHEST_PRIORITY
from apps.labeling.services.importing import comparisons_import
from apps.labeling.services.results import ImportReport


def batch_queue(
    *,
    project: Project,
    rows: Iterable[Mapping[str, Any]],
    batch: str,
    votes: int | None,
    priority: float,
) -> ImportReport:
    """`comparisons_import` of rows that each get so many votes (None: as many as the project asks
    for) and this priority; a row that cannot be compared is left out. Raises `DomainError`."""
    most = settings_get(project=project).max_overlap
    if votes is not None and not 1 <= votes <= most:
        raise DomainError(
            f"A whole number from 1 to {most}, the most votes that a comparison may get here.",
            code="bad_votes",
            field="votes",
        )
    if not 0 <= priority <= HIGHEST_PRIORITY:
        raise DomainError(
            f"A number from 0 to {HIGHEST_PRIORITY:,.0f}.", code="bad_priority", field="priority"
        )
    return comparisons_import(
        project=project,
        rows=[{**row, "overlap": votes, "priority": priority} for row in rows],
        batch=batch,
        on_error="skip",
        identical_answers="warn",
    )
