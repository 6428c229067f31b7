"""The file of an import: stored with the artifacts, opened with the job's choices, deleted."""

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone

from apps.common.errors import Conflict, DomainError, Unavailable
from apps.labeling.formats import FormatError, Layout, Options, Table, layout_of, table_open
from apps.labeling.models import ImportJob
from workers.artifacts import ArtifactError, Store, StoreUnreachable

# What a job's settings may hold beside the options, with what is meant when it is not there.
DEFAULTS: dict[str, Any] = {
    "container": "",
    "layout": "",
    "split": "",
    "encoding": "",
    "delimiter": "",
    "identical_answers": "refuse",
}
_OPTIONS = {field.name for field in fields(Options)}


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
        with (
            tempfile.NamedTemporaryFile(prefix="concord-import-") as local,
            files.open(relative) as remote,
        ):
            shutil.copyfileobj(remote, local, 1 << 20)
            local.flush()
            yield Path(local.name)
    except StoreUnreachable as error:
        raise Unavailable(f"{error}. The uploaded file is kept; go on later.") from error
    except ArtifactError as error:
        raise Conflict(
            "The uploaded file is no longer kept. Upload it again.", code="file_gone"
        ) from error


def options_of(chosen: dict[str, Any]) -> Options:
    """The choices about rows among a job's settings."""
    return Options(**{name: value for name, value in chosen.items() if name in _OPTIONS})


@contextmanager
def table_of(path: Path, chosen: dict[str, Any]) -> Iterator[tuple[Table, Layout, Options]]:
    """The file as a table, with layout and options. Raises DomainError where it cannot be read."""
    known = DEFAULTS | chosen
    try:
        with table_open(
            path,
            container=known["container"],
            split=known["split"],
            encoding=known["encoding"],
            delimiter=known["delimiter"],
        ) as table:
            yield table, layout_of(table, known["layout"]), options_of(chosen)
    except FormatError as error:
        raise DomainError(str(error), code="file_unreadable", field="file") from error
