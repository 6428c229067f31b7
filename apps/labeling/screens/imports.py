"""What an import's page shows beside its form."""

import json
from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from apps.accounts.models import Membership, Project, User
from apps.common.errors import Missing
from apps.labeling.models import ImportJob, Task
from apps.labeling.selectors import settings_get
from apps.labeling.services import LABELERS, WARNINGS, progress_read
from apps.labeling.services.imports import batch_of, folder_of, store
from workers.artifacts import ArtifactError

State, Stage = ImportJob.State, ImportJob.Stage
TONES = {
    State.DONE: "good",
    State.FAILED: "bad",
    State.INTERRUPTED: "warn",
    State.RUNNING: "live",
    State.QUEUED: "live",
}
# What a file's rows become, and where they are listed.
NOUNS = {"pair": "comparison", "rank": "ranking", "grade": "grading"}
TASK_PAGES = {
    "pair": "labeling:comparisons",
    "rank": "labeling:rating_tasks",
    "grade": "labeling:rating_tasks",
}
_SLOW_TO_START = 20  # seconds after which a queued import is suspicious
_WARNING_WORDS = {
    "duplicate": "the same pair as another row, kept",
    "identical": "with two answers that read alike",
    "model_name": "with an answer that names its model",
    "personal": "with what looks like personal data or a secret",
    "phrase": "with a blocked phrase, held for review",
    "group": "whose prompt is in two groups",
}


def words_of(job: ImportJob) -> str:
    """The job's state in a few words, for the list and the badge."""
    if job.state == State.DRAFT:
        return "needs column mapping"
    if job.state == State.DONE:
        return "imported" if job.stage == Stage.IMPORT else "checked, not imported"
    what = job.get_stage_display()
    return {
        State.QUEUED: f"{what} waiting for a worker",
        State.RUNNING: {"check": "checking", "import": "importing"}.get(job.stage, "undoing"),
        State.FAILED: f"{what} failed",
        State.CANCELLED: "cancelled",
        State.INTERRUPTED: f"{what} was interrupted",
        State.UNDONE: "undone",
    }[State(job.state)]


def lines(jobs: Iterable[ImportJob]) -> list[dict[str, Any]]:
    """Lines of the list; an import is late while pairs of it are open after its day."""
    found = list(jobs)
    past = [job for job in found if job.due_on and job.due_on < timezone.now().date()]
    late = {job.pk for job in past if open_of(job).exists()}
    return [_line(job) | {"late": job.pk in late} for job in found]


def open_of(job: ImportJob) -> QuerySet[Task]:
    """Its tasks that still want answers."""
    return tasks_of(job).filter(state=Task.State.OPEN)


def _line(job: ImportJob) -> dict[str, Any]:
    report = job.result or job.check_report
    return {
        "job": job,
        "words": words_of(job),
        "tone": TONES.get(State(job.state), ""),
        "n_rows": report.get("n_records"),
        "n_created": job.result.get("n_created"),
        "n_refused": report.get("n_refused"),
    }


def progress_of(job: ImportJob) -> dict[str, Any]:
    """{"percent", "step", "left", "title"} of a job at work; percent is None while unknown."""
    known = progress_read(job.pk) if job.state == State.RUNNING else {}
    done, total, seconds = (known.get(name, 0) for name in ("done", "total", "seconds"))
    percent = round(100 * done / total) if total else None
    left = seconds * (total - done) / done if total and done and seconds > 1 else None
    waited = (timezone.now() - job.queued_at).total_seconds() if job.queued_at else 0
    return {
        "step": known.get("step") or words_of(job).capitalize(),
        "done": done,
        "total": total,
        "percent": percent,
        "left": left,
        "is_late": job.state == State.QUEUED and waited > _SLOW_TO_START,
        "cancelling": job.cancel_wanted,
        "title": f"{percent} % · {job.file_name}" if percent is not None else job.file_name,
    }


_DATASET_COLUMNS = {
    "messages": "Conversation",
    "prompt": "Prompt",
    "response": "Answer",
    "completion": "Answer",
    "label": "Desirable",
    "answer": "Known answer",
    "split": "Split",
}


def preview_table(job: ImportJob) -> dict[str, Any] | None:
    """The first rows of a dataset that is no pairs: {"heads", "rows"}; None for pairs."""
    if job.makes in (ImportJob.Makes.COMPARISONS, ImportJob.Makes.PREFERENCES):
        return None
    rows = job.preview["rows"]
    names = [name for name in _DATASET_COLUMNS if any(name in row for row in rows)]
    return {
        "heads": [_DATASET_COLUMNS[name] for name in names],
        "rows": [
            {"row": row["row"], "error": row.get("error"), "cells": [row.get(n, "") for n in names]}
            for row in rows
        ],
    }


def report_shown(report: dict[str, Any]) -> dict[str, Any] | None:
    """A check's or an import's report as the page lists it."""
    if not report:
        return None
    warnings = report.get("warnings", {})
    return report | {
        "warned": [
            {"n": warnings[kind], "words": _WARNING_WORDS[kind], "kind": kind}
            for kind in WARNINGS
            if warnings.get(kind)
        ],
    }


# Imports as they are read: the list, one of them, what was found in its file.

FINDING_COLUMNS = ("level", "row", "field", "message", "kind")


def import_jobs_list(*, project: Project, datasets: bool | None = None) -> QuerySet[ImportJob]:
    """Newest first; those that make datasets, those that make comparisons, or all."""
    found = ImportJob.objects.filter(project=project)
    if datasets is not None:
        of_pairs = Q(makes=ImportJob.Makes.COMPARISONS)
        found = found.exclude(of_pairs) if datasets else found.filter(of_pairs)
    return found.select_related("created_by").prefetch_related("people").order_by("-created_at")


def import_job_get(*, project: Project, job: str) -> ImportJob:
    found = (
        ImportJob.objects.filter(project=project, pk=job.replace("\x00", ""))
        .select_related("created_by", "project")
        .first()
    )
    if found is None:
        raise Missing("There is no such import in this project.")
    return found


def tasks_of(job: ImportJob) -> QuerySet[Task]:
    """The comparisons, gradings or rankings that came with it."""
    return Task.objects.filter(project=job.project_id, batch=batch_of(job))


def people_of(job: ImportJob) -> list[tuple[User, bool]]:
    """(Whoever may label in its project, whether it is theirs to label) by name."""
    chosen = set(job.people.values_list("pk", flat=True))
    members = Membership.objects.filter(
        project=job.project_id, role__in=LABELERS, user__is_imported=False, user__is_active=True
    )
    users = [member.user for member in members.select_related("user")]
    return [(user, user.pk in chosen) for user in sorted(users, key=str)]


def findings(job: ImportJob) -> Iterator[dict[str, Any]]:
    """What the last check or import found, errors first; nothing once the files are deleted."""
    try:
        with store().open(f"{folder_of(job)}/findings.jsonl") as file:
            for line in file:
                yield json.loads(line)
    except ArtifactError:
        return


def due_of(*, project: Project) -> date | None:
    """The next day that something is due in a project: all of it, or an import with open pairs."""
    jobs = ImportJob.objects.filter(project=project, due_on__isnull=False).order_by("due_on")
    soonest = next((job.due_on for job in jobs if open_of(job).exists()), None)
    days = [day for day in (settings_get(project=project).due_on, soonest) if day is not None]
    return min(days, default=None)
