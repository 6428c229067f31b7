"""A worker's part of an import: claim the job, check the file or bring it in, say how it ended.

Comparisons go in by one transaction that also ends the attempt when there are no votes: a worker
that is killed leaves none of them. Past votes follow in transactions of 500; an import that ends
among them is `interrupted` and goes on from there when it is started again, since rows that are
there already change nothing. While it works, the worker's connection holds an advisory lock; when
the process dies, the database lets go of it and `import_jobs_sweep` sees a running job that nobody
runs.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from apps.accounts.services import audit_record
from apps.common.errors import DomainError
from apps.common.storable import storable
from apps.labeling import dispatch
from apps.labeling.models import ImportJob
from apps.labeling.selectors import settings_get
from apps.labeling.services.import_files import (
    file_delete,
    file_local,
    file_parsed,
    folder_of,
    store,
)
from apps.labeling.services.import_progress import Progress, Stopped
from apps.labeling.services.import_rows import FileRows, file_rows, report_of, votes_result
from apps.labeling.services.importing import comparisons_import
from apps.labeling.services.replay import votes_import
from apps.labeling.services.results import ImportReport, RowProblem, RowsRefused

log = logging.getLogger(__name__)
RESEND_AFTER = timedelta(seconds=20)  # a queued job that nobody has taken is offered again
KEEP_FILE = timedelta(days=7)  # of an import that was not finished; a finished one's goes at once
State, Stage = ImportJob.State, ImportJob.Stage


def import_job_run(*, job: str) -> str:
    """Do what the job is queued for; returns its state afterwards. Harmless to call twice."""
    found = ImportJob.objects.select_related("project", "created_by").get(pk=job)
    with _alone(found.number) as free:
        if not free or not _claim(found):
            return ImportJob.objects.values_list("state", flat=True).get(pk=job)
        progress = Progress(found.pk, found.attempt)
        try:
            _work(found, progress)
        except Stopped as stop:
            if stop.cancelled:
                _end(found, State.CANCELLED)
        except DomainError as error:
            _end(found, State.FAILED, error=storable(error.message))
        except Exception as error:
            log.exception("import %s", job)
            words = f"An error of Concord's own stopped it ({type(error).__name__}); it is logged."
            _end(found, State.FAILED, error=words)
        finally:
            progress.forget()
    return ImportJob.objects.values_list("state", flat=True).get(pk=job)


@contextmanager
def _alone(number: int) -> Iterator[bool]:
    """Holds the job's lock, if nobody else does, for as long as the block lasts."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_try_advisory_lock(%s)", [number])
        free = cursor.fetchone()[0]
    try:
        yield free
    finally:
        if free:
            with connection.cursor() as cursor:
                cursor.execute("select pg_advisory_unlock(%s)", [number])


def is_running(number: int) -> bool:
    """Whether some worker's connection holds the job's lock."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("select pg_try_advisory_xact_lock(%s)", [number])
        return not cursor.fetchone()[0]


def _claim(job: ImportJob) -> bool:
    """Queued becomes running, with the next attempt's number; False where it is not queued."""
    taken = ImportJob.objects.filter(pk=job.pk, state=State.QUEUED, attempt=job.attempt).update(
        state=State.RUNNING,
        attempt=job.attempt + 1,
        started_at=timezone.now(),
        ended_at=None,
        error="",
    )
    job.attempt += 1
    job.refresh_from_db(fields=["stage", "settings", "cancel_wanted"])
    return bool(taken)


def _work(job: ImportJob, progress: Progress) -> None:
    with file_local(job) as path, file_parsed(path, job.settings) as values:
        progress.tell("Reading the file")
        found = file_rows(values, progress=lambda n: progress.tell("Reading the file", n))
    if job.stage == Stage.CHECK:
        _check(job, found, progress)
    else:
        _import(job, found, progress)


def _check(job: ImportJob, found: FileRows, progress: Progress) -> None:
    report = _comparisons(job, found, progress, dry_run=True)
    most = settings_get(project=job.project).max_overlap
    _findings_write(job, found, report, [])
    _end(job, State.DONE, check_report=report_of(found, report, max_overlap=most))


def _import(job: ImportJob, found: FileRows, progress: Progress) -> None:
    refuse = job.settings.get("on_error", "refuse") == "refuse"
    if refuse and found.problems:  # the check has written them all down
        raise RowsRefused(found.problems, n_rows=found.n_records)
    with transaction.atomic():
        report = _comparisons(job, found, progress, dry_run=False)
        most = settings_get(project=job.project).max_overlap
        result = report_of(found, report, max_overlap=most)
        if not found.votes:
            _finish(job, result)
    vote_problems: list[RowProblem] = []
    if found.votes:
        vote_problems = _votes(job, found, progress, result)
        with transaction.atomic():
            _finish(job, result)
    _findings_write(job, found, report, vote_problems)
    file_delete_upload(job)


def _comparisons(
    job: ImportJob, found: FileRows, progress: Progress, *, dry_run: bool
) -> ImportReport:
    total = len(found.comparisons)

    def tell(n: int) -> None:
        step = "Checking the rows" if n < total else "Writing the rows"
        progress.tell(step, n, total)

    progress.tell("Checking the rows", 0, total)
    return comparisons_import(
        project=job.project,
        rows=found.comparisons,
        numbers=found.numbers,
        batch=f"import {job.pk}",
        seed=int(job.settings.get("seed", 0)),
        on_error=job.settings.get("on_error", "refuse"),
        identical_answers=job.settings.get("identical_answers", "refuse"),
        dry_run=dry_run,
        progress=tell,
    )


def _votes(
    job: ImportJob, found: FileRows, progress: Progress, result: dict[str, Any]
) -> list[RowProblem]:
    """Past votes, those that cannot be imported left out and reported by their row in the file."""
    report = votes_import(
        project=job.project,
        rows=found.votes,
        on_error="skip",
        progress=lambda done, total: progress.tell("Writing past votes", done, total),
    )
    result["votes"] = votes_result(report)
    return [
        RowProblem(found.vote_numbers[p.row - 1], f"vote {p.field}", p.message)
        for p in report.problems
    ]


def _finish(job: ImportJob, result: dict[str, Any]) -> None:
    """Inside the import's own transaction: what is written and that it was, together or not."""
    if not _end(job, State.DONE, result=result):
        raise Stopped(cancelled=False)
    audit_record(
        action="comparisons.imported",
        actor=job.created_by,
        project=job.project,
        subject=job.pk,
        details={"file": job.file_name, "sha256": job.file_sha256}
        | {k: result[k] for k in ("n_created", "n_unchanged", "n_refused", "n_review")},
    )


def _end(job: ImportJob, state: str, **more: Any) -> bool:
    """The attempt's outcome; False when another attempt has taken its place."""
    return bool(
        ImportJob.objects.filter(pk=job.pk, attempt=job.attempt, state=State.RUNNING).update(
            state=state, ended_at=timezone.now(), updated_at=timezone.now(), **more
        )
    )


def _findings_write(
    job: ImportJob, found: FileRows, report: ImportReport, votes: list[RowProblem]
) -> None:
    """Everything that was found, a JSON line each, errors first."""
    errors = sorted(found.problems + report.problems + votes, key=lambda p: p.row)
    lines = [{"level": "error"} | p.as_dict() for p in errors]
    lines += [{"level": "warning", "kind": p.kind} | p.as_dict() for p in report.warnings]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    store().write_bytes(f"{folder_of(job)}/findings.jsonl", text.encode())


def file_delete_upload(job: ImportJob) -> None:
    """The upload goes once its rows are in; what was found in it stays for KEEP_FILE."""
    store().delete_tree(f"{folder_of(job)}/upload")
    ImportJob.objects.filter(pk=job.pk).update(file_deleted_at=timezone.now())


def import_jobs_sweep() -> int:
    """Every few seconds: name what was cut off, offer again what nobody took, delete old files.

    Returns how many jobs it touched.
    """
    now, touched = timezone.now(), 0
    for job in ImportJob.objects.filter(state=State.RUNNING):
        if not is_running(job.number):
            touched += _end(job, State.CANCELLED if job.cancel_wanted else State.INTERRUPTED)
    for job in ImportJob.objects.filter(state=State.QUEUED, queued_at__lt=now - RESEND_AFTER):
        ImportJob.objects.filter(pk=job.pk, state=State.QUEUED).update(queued_at=now)
        touched += dispatch.import_send(job.pk)
    old = ImportJob.objects.filter(updated_at__lt=now - KEEP_FILE, file_deleted_at__isnull=True)
    for job in old.exclude(state__in=(State.QUEUED, State.RUNNING)):
        file_delete(job)
        ImportJob.objects.filter(pk=job.pk).update(file_deleted_at=now)
        touched += 1
    return touched
