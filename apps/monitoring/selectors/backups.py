"""What a backup must have, and what is known of the backups of this site."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError
from django.db.models import Max, QuerySet
from django.utils import timezone

from apps.labeling.models import ImportJob
from apps.monitoring.models import BackupReport
from apps.snapshots.models import Snapshot
from apps.snapshots.storage import private_folder_of
from apps.training.models import Artifact, Checkpoint, Run
from workers.artifacts import MANIFEST, RESUME

Kind = BackupReport.Kind


@dataclass(frozen=True, slots=True)
class Reference:
    """Something in the artifact store that the database names.

    tree: `path` is a folder, and `sha256` that of its manifest; without_state: the trainer's state
    may have been removed from it; may_miss: its files may go while the row stays, such as those of
    a checkpoint between others of a live run.
    """

    path: str
    sha256: str
    what: str
    tree: bool = False
    without_state: bool = False
    may_miss: bool = False


def references() -> Iterator[Reference]:
    """Everything that the database names by a hash."""
    frozen = Snapshot.objects.exclude(sha256="").exclude(uri="")
    for pk, uri, sha256, private in frozen.values_list("pk", "uri", "sha256", "private_sha256"):
        yield Reference(uri, sha256, f"dataset {pk}", tree=True)
        if private:
            yield Reference(
                private_folder_of(pk), private, f"private splits of dataset {pk}", tree=True
            )
    kept = Checkpoint.objects.filter(files_removed_at__isnull=True).exclude(uri="")
    for row in kept.select_related("run").iterator(chunk_size=2000):
        yield Reference(
            row.uri,
            row.sha256,
            f"model {row.pk} of run {row.run_id}",
            tree=True,
            without_state=row.state_removed_at is not None,
            # Its trainer deletes it as it goes, and its supervisor tells later.
            may_miss=not row.tags or row.run.state in Run.LIVE_STATES,
        )
    files = Artifact.objects.exclude(uri="").select_related("run")
    for file in files.iterator(chunk_size=2000):
        yield Reference(file.uri, file.sha256, f"{file.name} of run {file.run_id}")
    uploads = ImportJob.objects.filter(file_deleted_at__isnull=True).exclude(file_sha256="")
    for pk, sha256 in uploads.values_list("pk", "file_sha256"):
        yield Reference(f"imports/{pk}/upload", sha256, f"file of import {pk}", may_miss=True)


def reference_problems(
    wanted: Iterator[Reference], hashes: Mapping[str, str], read: Callable[[str], bytes]
) -> Iterator[tuple[Reference, str]]:
    """What of these is not among files with these hashes, and how it fails; `read` gives a file."""
    for one in wanted:
        for path, sha256 in _files_of(one, hashes, read):
            there = hashes.get(path)
            if there is None:
                yield one, f"{path} is missing"
            elif there != sha256:
                yield one, f"{path} is not the content it is named by"


def _files_of(
    one: Reference, hashes: Mapping[str, str], read: Callable[[str], bytes]
) -> Iterator[tuple[str, str]]:
    if not one.tree:
        yield one.path, one.sha256
        return
    listing = f"{one.path}/{MANIFEST}"
    yield listing, one.sha256
    if hashes.get(listing) != one.sha256:
        return
    text = read(listing)
    if hashlib.sha256(text).hexdigest() != one.sha256:
        return  # the listing itself is reported as changed, with the other files
    for name, sha256 in json.loads(text).items():
        path = f"{one.path}/{name}"
        if one.without_state and name.startswith(f"{RESUME}/") and path not in hashes:
            continue
        yield path, sha256


# Reports of backups and of restores that were tried.


def last_report(kind: str) -> BackupReport | None:
    """The newest that went well."""
    return BackupReport.objects.filter(kind=kind, error="").order_by("-finished_at").first()


def reports() -> QuerySet[BackupReport]:
    """All of them, newest first."""
    return BackupReport.objects.order_by("-finished_at", "-pk")


def health_remark() -> str | None:
    """For `/healthz`, where the scheduler makes backups."""
    if not settings.BACKUP_TARGET:
        return None
    try:
        return " ".join(backup_warnings()) or None
    except DatabaseError:
        return None  # said by the checks


def last_times() -> dict[str, datetime]:
    """{kind: when the newest that went well was finished}, in one query."""
    good = BackupReport.objects.filter(error="").order_by().values_list("kind")
    return dict(good.annotate(Max("finished_at")))


def backup_due(*, now: datetime | None = None) -> bool:
    """Whether the scheduler has to make one; a failed try is made again after an hour."""
    return bool(settings.BACKUP_TARGET) and _due(
        Kind.MADE, timedelta(hours=settings.BACKUP_EVERY_HOURS), now
    )


def proof_due(*, now: datetime | None = None) -> bool:
    return (
        bool(settings.BACKUP_TARGET)
        and last_report(Kind.MADE) is not None
        and _due(Kind.PROVEN, timedelta(days=settings.BACKUP_CHECK_DAYS), now)
    )


AGAIN = timedelta(hours=1)


def _due(kind: str, every: timedelta, now: datetime | None) -> bool:
    now = now or timezone.now()
    tried = BackupReport.objects.filter(kind=kind).order_by("-finished_at").first()
    if tried and tried.error and now - tried.finished_at < AGAIN:
        return False
    good = last_report(kind)
    return good is None or now - good.finished_at >= every


def backup_warnings(*, now: datetime | None = None) -> list[str]:
    """What an administrator should know; nothing where all is well."""
    now = now or timezone.now()
    made, proven = last_report(Kind.MADE), last_report(Kind.PROVEN)
    said = [*_too_old(made, proven, now)]
    newest = reports().first()
    if newest and newest.error:
        said.append(f"The last {newest.get_kind_display()} failed: {newest.error}")
    if made and (absent := made.figures.get("absent")):
        said.append(
            f"{len(absent):,} files that the database names were not in the artifact store: "
            + "; ".join(absent[:3])
        )
    if made and (damaged := made.figures.get("damaged")):
        said.append(f"Earlier backups are damaged: {'; '.join(damaged[:3])}")
    return said


def _too_old(
    made: BackupReport | None, proven: BackupReport | None, now: datetime
) -> Iterator[str]:
    if not made:
        yield (
            "No backup has been made yet."
            if settings.BACKUP_TARGET
            else "This site has no backups: set BACKUP_TARGET."
        )
        return
    if now - made.finished_at > 2 * timedelta(hours=settings.BACKUP_EVERY_HOURS):
        yield f"The last backup is of {made.finished_at:%d %B %Y, %H:%M} UTC."
    if not proven:
        yield "No backup has been restored to see whether it can be."
    elif now - proven.finished_at > timedelta(days=settings.BACKUP_CHECK_DAYS + 7):
        yield f"The last restore that was tried is of {proven.finished_at:%d %B %Y}."
