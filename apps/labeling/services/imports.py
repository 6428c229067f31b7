"""An import as its owner handles it: upload, choose columns, check, start, cancel.

Nothing here reads a whole file but `import_job_create` and `import_job_configure`, which have a
child process look at its first rows; the rest is a worker's (`services.import_running`).
"""

import contextlib
import hashlib
import secrets
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.db import transaction
from django.db.models import Max, Min
from django.utils import timezone

from apps.accounts.models import Membership, Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Unavailable
from apps.common.json_limits import storable
from apps.common.sandbox import sandboxed, upload_limits, worker_limits
from apps.common.scratch import scratch_folder
from apps.labeling import dispatch
from apps.labeling.formats.layouts import DEFAULTS, OPTIONS, missing_refuse
from apps.labeling.models import ImportJob, LabelingSettings, Task
from apps.labeling.services.eligibility import LABELERS
from apps.labeling.services.projects import day_checked
from workers.artifacts import ArtifactError, Store, StoreUnreachable

# The file of an import: stored with the artifacts, opened with the job's choices, deleted.

_PREVIEW = "apps.labeling.formats.layouts:preview"
_ROWS = "apps.labeling.formats.layouts:rows"


def store() -> Store:
    return Store(settings.ARTIFACTS_URL)


def folder_of(job: ImportJob) -> str:
    return f"imports/{job.pk}"


def file_save(job: ImportJob, chunks: Iterable[bytes]) -> None:
    """Write the upload and set the job's size and hash. Raises DomainError over the limit."""
    limit = settings.IMPORT_MAX_MB * 1_000_000
    digest, size = hashlib.sha256(), 0
    with store().open(f"{folder_of(job)}/upload", "wb") as file:
        for chunk in chunks:
            size += len(chunk)
            if size > limit:
                break
            digest.update(chunk)
            file.write(chunk)
    if size > limit:
        file_delete(job)
        raise DomainError(
            f"The file is larger than {settings.IMPORT_MAX_MB} MB, the limit for uploads. Split "
            "it, or import it with manage.py import_comparisons, which has none.",
            code="file_too_large",
            field="file",
        )
    job.file_size, job.file_sha256 = size, digest.hexdigest()


def file_delete(job: ImportJob) -> None:
    """Delete the upload and what was found in it."""
    store().delete_tree(folder_of(job))
    job.file_deleted_at = timezone.now()


@contextmanager
def file_local(job: ImportJob) -> Iterator[Path]:
    """A path on this machine's disk; a remote store's file is fetched for as long as needed."""
    relative = f"{folder_of(job)}/upload"
    files = store()
    try:
        if (path := files.local_path(relative)) is not None and path.exists():
            yield path
            return
        with scratch_folder("import") as folder, files.open(relative) as remote:
            with (local := folder / "upload").open("wb") as file:
                shutil.copyfileobj(remote, file, 1 << 20)
            yield local
    except StoreUnreachable as error:
        raise Unavailable(f"{error}. The uploaded file is kept; continue later.") from error
    except ArtifactError as error:
        raise Conflict(
            "The uploaded file is no longer kept. Upload it again.", code="file_gone"
        ) from error


_READ_A_SECOND = 10_000_000  # bytes


def file_preview(path: Path, chosen: dict[str, Any]) -> dict[str, Any]:
    """Columns, guesses and first rows, while a person waits. Raises DomainError where the file
    cannot be read."""
    # A first row of a hundred megabytes is read whole.
    seconds = settings.UPLOAD_PARSE_SECONDS + path.stat().st_size / _READ_A_SECOND
    parsing = sandboxed(_PREVIEW, upload_limits(seconds), **_arguments(path, chosen))
    with contextlib.closing(parsing) as values:
        return storable(next(values))


@contextmanager
def file_parsed(path: Path, chosen: dict[str, Any]) -> Iterator[Iterator[dict[str, Any]]]:
    """What was recognised, then every record, converted; the reader ends with the block."""
    parsing = sandboxed(_ROWS, worker_limits(), **_arguments(path, chosen))
    with contextlib.closing(parsing) as values:
        yield values


def _arguments(path: Path, chosen: dict[str, Any]) -> dict[str, Any]:
    return {
        "path": str(path),
        "chosen": chosen,
        "columns": settings.IMPORT_MAX_COLUMNS,
        "decoded": settings.IMPORT_DECODED_MB * 1_000_000,
    }


State, Stage, Makes = ImportJob.State, ImportJob.Stage, ImportJob.Makes
_AT_REST = (State.DRAFT, State.DONE, State.FAILED, State.CANCELLED, State.INTERRUPTED)
_CHOICES: dict[str, tuple[str, ...]] = {
    "identical_answers": ("refuse", "warn"),
    "on_error": ("refuse", "skip"),
    "overlap": ("refuse", "skip"),
    "rest": ("metadata", "drop"),
    "half": ("", "first", "second"),
}
_KNOWN = {*DEFAULTS, *OPTIONS, "on_error", "half"} - {"makes"}


def import_job_create(
    *,
    project: Project,
    by: User,
    file_name: str,
    chunks: Iterable[bytes],
    makes: str = Makes.COMPARISONS,
) -> ImportJob:
    """Keep an uploaded file, find its container and layout, read its first rows. `makes` says
    whether it becomes comparisons or a dataset.

    Raises DomainError (field "file") for a file that is too large or cannot be read; then nothing
    is kept.
    """
    if makes not in Makes:
        raise DomainError(f"One of {', '.join(Makes.values)} is expected.", field="makes")
    job = ImportJob(
        project=project,
        makes=makes,
        created_by=by,
        number=secrets.randbits(62),
        file_name=storable(PurePath(file_name.replace("\\", "/")).name)[:255] or "upload",
    )
    job.settings = _of_project(job)
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


def _of_project(job: ImportJob) -> dict[str, Any]:
    """How a file is read where nobody says: as what the project is for; answers for a dataset of
    preferences by their scores."""
    if job.makes != Makes.COMPARISONS:
        return {"pairing": "best_worst"} if job.makes == Makes.PREFERENCES else {}
    return answers_become(job.project)


def answers_become(project: Project) -> dict[str, Any]:
    """What several answers to a prompt become in this project, with the scale of its gradings; {}
    for pairs."""
    own = LabelingSettings.objects.filter(project=project).first()
    if own is None or own.task_kind == Task.Kind.PAIR:
        return {}
    scale = ("grade_low", "grade_high", "grade_low_label", "grade_high_label")
    return {"pairing": own.task_kind} | {name: getattr(own, name) for name in scale}


def import_job_configure(*, job: ImportJob, **settings: Any) -> ImportJob:
    """Set how the file is read, and read its first rows again; an earlier check counts no more.

    settings: container, layout, split, encoding, delimiter, identical_answers, and the fields of
    `formats.Options`. What is not named goes back to what the project is for, to its default, or is
    recognised. Raises DomainError naming the field; then nothing changes.
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
    settings = _of_project(job) | settings
    before, job.settings = job.settings, settings
    try:
        preview = _preview(job)
    finally:
        job.settings = before
    changed = move(
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
        return file_preview(path, read_as(job))


def read_as(job: ImportJob) -> dict[str, Any]:
    """What the reader of its file is told."""
    return job.settings | {"makes": job.makes}


def import_job_check(*, job: ImportJob) -> bool:
    """Have the whole file checked, writing nothing. False: Redis is away and it starts later."""
    missing_refuse(job.preview.get("missing", []))
    return _queue(job, Stage.CHECK)


def import_job_start(
    *, job: ImportJob, on_error: str = "refuse", overlap: str = "refuse", name: str = ""
) -> bool:
    """Bring the checked file in; also starts an interrupted or failed import again.

    on_error: "skip" leaves out the rows that cannot be imported. overlap: "skip" leaves training
    rows out of a dataset whose prompts another dataset holds out; name: of the dataset. Raises
    Conflict when the file was not checked with these settings. False: Redis is away and it starts
    later.
    """
    for field, value in (("on_error", on_error), ("overlap", overlap)):
        if value not in _CHOICES[field]:
            raise DomainError("One of refuse, skip is expected.", field=field)
    if not job.check_report:
        raise Conflict("Check the file first.", code="import_unchecked")
    if not brings_anything(job.check_report):
        raise Conflict("No row of this file can be imported.", code="import_nothing")
    if shared := job.check_report.get("overlap") if overlap == "refuse" else None:
        names = ", ".join(f"'{one['name']}'" for one in shared)
        raise Conflict(
            f"{sum(one['rows'] for one in shared):,} training rows ask what {names} "
            "holds out, or nearly. Leave those rows out.",
            code="held_out_elsewhere",
            field="overlap",
        )
    given = {"on_error": on_error, "overlap": overlap, "name": storable(name.strip())[:120]}
    job.settings = job.settings | given
    return _queue(job, Stage.IMPORT)


def brings_anything(report: dict[str, Any]) -> bool:
    """Whether an import could add something, by what its check found."""
    again = report["n_unchanged"] and "snapshot_kind" not in report
    return bool(report["n_created"] or again or report.get("votes"))


def _queue(job: ImportJob, stage: str) -> bool:
    done = job.stage == Stage.IMPORT and job.state in (State.DONE, State.UNDONE)
    if done or job.stage == Stage.UNDO:
        raise Conflict("This file is in already.", code="import_done")
    changed = move(
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
    votes that are in stay. An undo that is cancelled leaves the import as it was.
    """
    if move(job, of=(State.RUNNING,), cancel_wanted=True):
        return
    if job.stage == Stage.UNDO:
        move(job, of=(State.QUEUED, State.INTERRUPTED), **kept(job))
        return
    open_states = (State.DRAFT, State.QUEUED, State.FAILED, State.INTERRUPTED, State.DONE)
    if job.stage == Stage.IMPORT and job.state == State.DONE:
        raise Conflict("This file is in already; its comparisons can be dropped.", code="too_late")
    if move(job, of=open_states, state=State.CANCELLED, ended_at=timezone.now()):
        file_delete(job)
        ImportJob.objects.filter(pk=job.pk).update(file_deleted_at=job.file_deleted_at)
        audit_record(action="import.cancelled", actor=by, project=job.project, subject=job.pk)


@transaction.atomic
def import_due_set(*, job: ImportJob, due_on: Any, by: User) -> ImportJob:
    """Say until which day its comparisons are to be voted on; nothing takes it away."""
    before, after = job.due_on, day_checked(due_on)
    if before != after:
        ImportJob.objects.filter(pk=job.pk).update(due_on=after, updated_at=timezone.now())
        audit_record(
            action="import.due_set",
            actor=by,
            project=job.project,
            subject=job.pk,
            details={"file": job.file_name, "due_on": str(after or "no day")},
        )
    job.due_on = after
    return job


@transaction.atomic
def import_people_set(*, job: ImportJob, people: Collection[int], by: User) -> ImportJob:
    """Say who labels its comparisons: these people alone, by their ids; nobody named: everybody.

    Whoever holds a pair of it keeps it. Errors: `DomainError` on `people` for somebody who does not
    label in the project; `Conflict` (`import_not_done`) before it is in.
    """
    found = ImportJob.objects.select_for_update().get(pk=job.pk)
    if (found.stage, found.state) != (Stage.IMPORT, State.DONE):
        raise Conflict("Only for a finished import.", code="import_not_done")
    wanted = set(people)
    labelers = Membership.objects.filter(project=found.project, role__in=LABELERS)
    if unknown := wanted - set(labelers.values_list("user_id", flat=True)):
        raise DomainError(
            f"Nobody who labels in this project has the id {min(unknown)}.", field="people"
        )
    if wanted == set(found.people.values_list("pk", flat=True)):
        return job
    found.people.set(wanted)
    close(found, not_for_all=bool(wanted))
    audit_record(
        action="import.people_set",
        actor=by,
        project=found.project,
        subject=found.pk,
        details={"file": found.file_name, "people": [*found.people.order_by("pk")] or "everybody"},
    )
    job.refresh_from_db()
    return job


def close(job: ImportJob, *, not_for_all: bool) -> None:
    """Note the ids of its comparisons where not everybody labels them (`models.CLOSED_IDS`)."""
    ids: dict[str, int | None] = {"first": None, "last": None}
    if not_for_all:
        rows = Task.objects.filter(project=job.project_id, batch=batch_of(job))
        ids = rows.aggregate(first=Min("pk"), last=Max("pk"))
    ImportJob.objects.filter(pk=job.pk).update(
        first_comparison=ids["first"], last_comparison=ids["last"]
    )


def batch_of(job: ImportJob) -> str:
    """What its comparisons are marked with."""
    return f"import {job.pk}"


def kept(job: ImportJob) -> dict[str, Any]:
    """What its row says again once undoing it has ended without success."""
    changes: dict[str, Any] = {"stage": Stage.IMPORT, "state": State.DONE}
    if not job.people.exists():
        changes |= {"first_comparison": None, "last_comparison": None}
    return changes


def move(job: ImportJob, *, of: tuple[str, ...], **changes: Any) -> bool:
    """Change the row if its state is still one of `of`."""
    changed = ImportJob.objects.filter(pk=job.pk, state__in=of).update(
        updated_at=timezone.now(), **changes
    )
    if changed:
        for name, value in changes.items():
            setattr(job, name, value)
    return bool(changed)


# How far a running import is, for its page; and the ways it is told to stop.

_EVERY = 0.5  # seconds between two notifications
_KEPT = 120  # seconds after the last one


class Stopped(Exception):
    """The import is to end without a trace: it was cancelled, or another attempt has its place."""

    def __init__(self, *, cancelled: bool) -> None:
        super().__init__("cancelled" if cancelled else "superseded")
        self.cancelled = cancelled


def progress_key(job: str) -> str:
    return f"labeling:import:{job}"


def progress_read(job: str) -> dict[str, Any]:
    """{"step", "done", "total", "seconds"} as last told; empty when nothing is known."""
    return cache.get(progress_key(job)) or {}


class Progress:
    """Told by the running import, at most twice a second; raises Stopped when it is to end.

    The cache carries the figures, since the transaction of the import hides its own writes; the
    request to cancel is read from the job's row, which others commit.
    """

    def __init__(self, job: str, attempt: int) -> None:
        self.job, self.attempt = job, attempt
        self._due = 0.0
        self._step, self._since = "", time.monotonic()

    def tell(self, step: str, done: int = 0, total: int = 0) -> None:
        """step: what is being done, in words; total is 0 while it is unknown."""
        now = time.monotonic()
        if step != self._step:
            self._step, self._since, self._due = step, now, 0.0
        if now < self._due:
            return
        self._due = now + _EVERY
        state = {"step": step, "done": done, "total": total, "seconds": now - self._since}
        cache.set(progress_key(self.job), state, _KEPT)
        row = ImportJob.objects.filter(pk=self.job).values_list("cancel_wanted", "attempt").first()
        if row is None or row[1] != self.attempt:
            raise Stopped(cancelled=False)
        if row[0]:
            raise Stopped(cancelled=True)

    def forget(self) -> None:
        cache.delete(progress_key(self.job))
