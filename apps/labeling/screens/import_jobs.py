"""Imports as they are read: the list, one of them, what was found in its file."""

import json
from collections.abc import Iterator
from typing import Any

from django.db.models import QuerySet

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.labeling.models import ImportJob
from apps.labeling.services.import_files import folder_of, store
from workers.artifacts import ArtifactError

FINDING_COLUMNS = ("level", "row", "field", "message", "kind")


def import_jobs_list(*, project: Project) -> QuerySet[ImportJob]:
    """Newest first."""
    return (
        ImportJob.objects.filter(project=project)
        .select_related("created_by")
        .order_by("-created_at")
    )


def import_job_get(*, project: Project, job: str) -> ImportJob:
    found = (
        ImportJob.objects.filter(project=project, pk=job.replace("\x00", ""))
        .select_related("created_by", "project")
        .first()
    )
    if found is None:
        raise Missing("There is no such import in this project.")
    return found


def findings(job: ImportJob) -> Iterator[dict[str, Any]]:
    """What the last check or import found, errors first; nothing once the files are deleted."""
    try:
        with store().open(f"{folder_of(job)}/findings.jsonl") as file:
            for line in file:
                yield json.loads(line)
    except ArtifactError:
        return
