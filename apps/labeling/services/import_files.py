"""The file of an import: stored with the artifacts, opened with the job's choices, deleted."""

import contextlib
import hashlib
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone

from apps.common.errors import Conflict, DomainError, Unavailable
from apps.common.sandbox import sandboxed, upload_limits, worker_limits
from apps.common.scratch import scratch_folder
from apps.common.storable import storable
from apps.labeling.models import ImportJob
from workers.artifacts import ArtifactError, Store, StoreUnreachable

_PREVIEW = "apps.labeling.formats.parsing:preview"
_ROWS = "apps.labeling.formats.parsing:rows"


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
        raise Unavailable(f"{error}. The uploaded file is kept; go on later.") from error
    except ArtifactError as error:
        raise Conflict(
            "The uploaded file is no longer kept. Upload it again.", code="file_gone"
        ) from error


def file_preview(path: Path, chosen: dict[str, Any]) -> dict[str, Any]:
    """Columns, guesses and first rows, while a person waits. Raises DomainError where the file
    cannot be read."""
    parsing = sandboxed(_PREVIEW, upload_limits(), **_arguments(path, chosen))
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
