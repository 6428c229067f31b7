"""An import as its owner handles it: upload, choose columns, check, start, cancel.

Nothing here reads a whole file but `import_job_create` and `import_job_configure`, which have a
child process look at its first rows; the rest is a worker's (`services.import_running`).
"""

import secrets
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.common.storable import storable
from apps.labeling import dispatch
from apps.labeling.formats.parsing import DEFAULTS
from apps.labeling.models import ImportJob
from apps.labeling.services.import_files import (
    file_delete,
    file_local,
    file_preview,
    file_save,
)

State, Stage = ImportJob.State, ImportJob.Stage
_AT_REST = (State.DRAFT, State.DONE, State.FAILED, State.CANCELLED, State.INTERRUPTED)
_CHOICES: dict[str, tuple[str, ...]] = {
    "identical_answers": ("refuse", "warn"),
    "on_error": ("refuse", "skip"),
    "rest": ("metadata", "drop"),
}
_KNOWN = {
    *DEFAULTS, "on_error", "mapping", "constants", "pairing", "preference", "votes", "rest", "seed",
}  # fmt: skip


def import_job_create(
    *, project: Project, by: User, file_name: str, chunks: Iterable[bytes]
) -> ImportJob:
    """Keep an uploaded file, find its container and layout, read its first rows.

    Raises DomainError (field "file") for a file that is too large or cannot be read; then nothing
    is kept.
    """
    job = ImportJob(
        project=project,
        created_by=by,
        number=secrets.randbits(62),
        file_name=storable(PurePath(file_name.replace("\\", "/")).name)[:255] or "upload",
    )
    file_save(job, chunks)
    try:
        job.preview = _preview(job)
        with transaction.atomic():
            job.save()
            audit_record(
                action="import.uploaded",
                actor=by,
                project=project,
                subject=job.pk,
                details={"file": job.file_name, "bytes": job.file_size, "sha256": job.file_sha256},
            )
    except BaseException:
        file_delete(job)
        raise
    return job


def import_job_configure(*, job: ImportJob, **settings: Any) -> ImportJob:
    """Set how the file is read, and read its first rows anew; an earlier check counts no more.

    settings: container, layout, split, encoding, delimiter, mapping, constants, pairing,
    preference, votes, rest, seed, identical_answers. What is not named goes back to its default,
    or is recognised. Raises DomainError naming the field; then nothing changes.
    """
    for name, value in settings.items():
        if name not in _KNOWN:
            raise DomainError(f"There is no setting called {name!r}.", field=name)
        if name in _CHOICES and value not in _CHOICES[name]:
            raise DomainError(f"One of {', '.join(_CHOICES[name])} is expected.", field=name)
        if storable(value) != value:
            raise DomainError(
                "A NUL character, half a character or a number without a value cannot be stored.",
                code="not_storable",
                field=name,
            )
    before, job.settings = job.settings, settings
    try:
        preview = _preview(job)
    finally:
        job.settings = before
    changed = _move(
        job,
        of=_AT_REST,
        settings=settings,
        preview=preview,
        state=State.DRAFT,
        stage=Stage.CHECK,
        check_report={},
        error="",
    )
    if not changed:
        raise Conflict("It is at work just now; cancel it first.", code="import_busy")
    return job


def _preview(job: ImportJob) -> dict[str, Any]:
    with file_local(job) as path:
        return file_preview(path, job.settings)


def import_job_check(*, job: ImportJob) -> bool:
    """Have the whole file checked, writing nothing. False: Redis is away and it starts later."""
    missing = [name for name in job.preview["required"] if name not in job.preview["mapping"]]
    if missing:
        raise DomainError("Choose the column that holds this.", field=missing[0])
    return _queue(job, Stage.CHECK)


def import_job_start(*, job: ImportJob, on_error: str = "refuse") -> bool:
    """Bring the checked file in; also starts an interrupted or failed import again.

    on_error: "skip" leaves out the rows that cannot be imported. Raises Conflict when the file was
    not checked with these settings. False: Redis is away and it starts later.
    """
    if on_error not in _CHOICES["on_error"]:
        raise DomainError("One of refuse, skip is expected.", field="on_error")
    if not job.check_report:
        raise Conflict("Check the file first.", code="import_unchecked")
    job.settings = job.settings | {"on_error": on_error}
    return _queue(job, Stage.IMPORT)


def _queue(job: ImportJob, stage: str) -> bool:
    if job.stage == Stage.IMPORT and job.state == State.DONE:
        raise Conflict("This file is in already.", code="import_done")
    changed = _move(
        job,
        of=_AT_REST,
        stage=stage,
        state=State.QUEUED,
        settings=job.settings,
        queued_at=timezone.now(),
        cancel_wanted=False,
        error="",
    )
    if not changed:
        raise Conflict("It is at work already.", code="import_busy")
    return dispatch.import_send(job.pk)


def import_job_cancel(*, job: ImportJob, by: User) -> None:
    """End an import that is not done: at once where it waits, at its next step where it runs.

    What a running import has written of its comparisons is taken back with its transaction; past
    votes that are in stay.
    """
    if _move(job, of=(State.RUNNING,), cancel_wanted=True):
        return
    open_states = (State.DRAFT, State.QUEUED, State.FAILED, State.INTERRUPTED, State.DONE)
    if job.stage == Stage.IMPORT and job.state == State.DONE:
        raise Conflict("This file is in already; its comparisons can be dropped.", code="too_late")
    if _move(job, of=open_states, state=State.CANCELLED, ended_at=timezone.now()):
        file_delete(job)
        ImportJob.objects.filter(pk=job.pk).update(file_deleted_at=job.file_deleted_at)
        audit_record(action="import.cancelled", actor=by, project=job.project, subject=job.pk)


def _move(job: ImportJob, *, of: tuple[str, ...], **changes: Any) -> bool:
    """Change the row if its state is still one of `of`."""
    changed = ImportJob.objects.filter(pk=job.pk, state__in=of).update(
        updated_at=timezone.now(), **changes
    )
    if changed:
        for name, value in changes.items():
            setattr(job, name, value)
    return bool(changed)
