"""A backup: the database first, then the files that it names, its manifest last.

The dump and the counts of its rows are of one transaction's view. Files of the artifact store do
not change once the database names them, so those copied afterwards are the ones that the dump
means; sweeps delete none meanwhile (`FILES_STAY`). Whatever a killed backup leaves has no manifest,
and is not believed.
"""

import hashlib
import hmac
import importlib.metadata
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from apps.accounts.services import audit_record
from apps.common import environment as env
from apps.common.errors import Conflict, Unavailable
from apps.monitoring.selectors.backups import Kind, Reference, reference_problems, references
from apps.monitoring.services.backups.database import (
    connection_of_owner,
    counted,
    dumped,
    one_at_a_time,
    trials_wait,
)
from apps.monitoring.services.backups.reports import error_words, report_write
from apps.monitoring.services.backups.target import (
    DUMP,
    ERASURES,
    FORMAT,
    BackupDamaged,
    ContentChanged,
    Target,
    file_blocks,
    name_time,
    new_name,
)
from workers.artifacts import ArtifactError, ArtifactMissing, Seen, Store
from workers.contract.code_version import code_version

log = logging.getLogger("concord.backups")
AT_ONCE = 4  # files under way
TRIES = 3  # of a file that changes while it is copied
UNFINISHED = timedelta(days=1)  # how long what a killed backup left may lie

Say = Callable[[str], None]


@dataclass(slots=True)
class Made:
    """A finished backup; seconds by part, bytes as they lie in the target."""

    name: str
    seconds: dict[str, float] = field(default_factory=dict)
    database_bytes: int = 0
    artifacts: int = 0
    artifact_bytes: int = 0
    copied: int = 0
    copied_bytes: int = 0
    absent: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)  # earlier backups
    pruned: list[str] = field(default_factory=list)


def backup_make(*, target: Target, keep: int = 0, say: Say = log.info) -> Made:
    """A backup of this site, and what is older than the newest `keep` deleted; 0 keeps all. Raises
    `DomainError`; then nothing that was written counts. Either way a report is kept."""
    started, name = time.perf_counter(), ""
    try:
        with one_at_a_time():
            target.clean()
            name = _free_name(target)
            made = _make(target, name, say)
            if keep:
                made.pruned = backups_prune(target=target, keep=keep, say=say)
    except Exception as error:
        if getattr(error, "code", "") != "backup_under_way":
            report_write(Kind.MADE, target, name, started, error=error_words(error))
        raise
    report_write(Kind.MADE, target, name, started, figures=_figures(made))
    audit_record(action="backup.made", actor=None, subject=name, details={"target": target.words})
    return made


def _free_name(target: Target) -> str:
    taken = {*target.names(), *target.unfinished()}
    now = timezone.now()
    while (name := new_name(now)) in taken:
        now += timedelta(seconds=1)
    return name


def _make(target: Target, name: str, say: Say) -> Made:
    made, begun = Made(name), datetime.now(UTC)
    known = _known(target, made, say)
    with _timed(made, "dump"):
        database, wanted = _dump(target, name)
    made.database_bytes = database["stored"]
    say(f"database: {database['stored']:,} bytes in {made.seconds['dump']:.1f} s")
    with _timed(made, "copy"):
        files = _files_copy(target, made, known)
    say(
        f"artifacts: {made.artifacts:,}, copied {made.copied:,} ({made.copied_bytes:,} bytes)"
        f" in {made.seconds['copy']:.1f} s"
    )
    with _timed(made, "check"):
        made.absent = _absent(wanted, files)
    for line in made.absent:
        say(f"absent: {line}")
    target.manifest_write(
        name,
        {
            "format": FORMAT,
            "name": name,
            "concord": importlib.metadata.version("concord-server"),
            "revision": code_version(),
            "begun_at": begun.isoformat(),
            "finished_at": datetime.now(UTC).isoformat(),
            "database": database,
            "migrations": _migrations(),
            "files": files,
            "absent": made.absent,
            "settings": env.settings_read(),
            "secret_key": secret_key_mark(),
        },
    )
    return made


def _known(target: Target, made: Made, say: Say) -> dict[str, list[Any]]:
    """{path: file} of the newest backup that can be read."""
    for name in reversed(target.names()):
        try:
            return {file[0]: file for file in target.manifest(name)["files"]}
        except BackupDamaged as error:
            made.damaged.append(error.message)
            say(f"an earlier backup is damaged: {error.message}")
    return {}


@contextmanager
def _timed(made: Made, part: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    made.seconds[part] = round(time.perf_counter() - started, 3)


def _dump(target: Target, name: str) -> tuple[dict[str, Any], list[Reference]]:
    """The dump, with the rows that it has and the files that it names: all of one view."""
    if connection.in_atomic_block:
        raise Conflict("A backup cannot be made inside a transaction.", code="in_transaction")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("set transaction isolation level repeatable read")
        cursor.execute("set local idle_in_transaction_session_timeout = 0")
        cursor.execute("set local statement_timeout = 0")
        cursor.execute("select pg_export_snapshot(), current_setting('server_version')")
        snapshot, server = cursor.fetchone()

        def ask(text: str) -> list[Any]:
            cursor.execute(text)
            return cursor.fetchall()

        rows, wanted = counted(ask), list(references())
        path = f"backups/{name}/{DUMP}"
        stored = target.write(path, dumped(connection_of_owner(), snapshot=snapshot))
    about = {
        "sha256": stored.sha256,
        "size": stored.size,
        "stored": target.size_there(stored.size),
        "server": server,
        "rows": rows,
    }
    return about, wanted


def _migrations() -> list[str]:
    applied = MigrationRecorder(connection).applied_migrations()
    return sorted(f"{app}.{name}" for app, name in applied)


# Files of the artifact store: [path, sha256, size, stamp], each content once in the target.


def _files_copy(target: Target, made: Made, known: Mapping[str, list[Any]]) -> list[list[Any]]:
    source, held = Store(settings.ARTIFACTS_URL), target.blobs()
    try:
        listed = source.files()
    except (ArtifactError, OSError) as error:
        raise Unavailable(f"The artifact store cannot be read: {error}.") from error
    with ThreadPoolExecutor(AT_ONCE, "backup") as pool:
        pending = [
            pool.submit(_file_copy, source, target, path, seen, known.get(path), held)
            for path, seen in sorted(listed.items())
        ]
        try:
            done = [one.result() for one in pending]
        finally:
            for one in pending:
                one.cancel()
    found = [one for one in done if one is not None]
    for (_, _, size, _), copied in found:
        made.artifacts, made.artifact_bytes = made.artifacts + 1, made.artifact_bytes + size
        made.copied, made.copied_bytes = made.copied + copied, made.copied_bytes + size * copied
    erasures_copy(target)
    return [file for file, _ in found]


def erasures_copy(target: Target) -> int:
    """Take to the target what its list of erasures lacks; returns how many."""
    source, held = Store(settings.ARTIFACTS_URL), {*target.files(ERASURES)}
    try:
        lacking = sorted({*source.files(ERASURES)} - held)
        for path in lacking:
            target.write(path, iter([source.read_bytes(path)]))
    except (ArtifactError, OSError) as error:
        raise Unavailable(f"The artifact store cannot be read: {error}.") from error
    return len(lacking)


def _file_copy(
    source: Store,
    target: Target,
    path: str,
    seen: Seen,
    known: list[Any] | None,
    held: Mapping[str, int],
) -> tuple[list[Any], bool] | None:
    """A file as the manifest has it, and whether it had to be copied; None where it was deleted."""
    unchanged = known and seen.stamp and known[2:] == [seen.size, seen.stamp]
    if known and unchanged and held.get(target.blob(known[1])) == target.size_there(seen.size):
        return known, False
    for _ in range(TRIES):
        try:
            sha256, size = _hashed(source, path)
            blob = target.blob(sha256)
            if held.get(blob) == target.size_there(size):
                return [path, sha256, size, seen.stamp], False
            target.write(blob, _of_source(source, path), sha256=sha256)
            return [path, sha256, size, seen.stamp], True
        except ContentChanged:  # in between, as the event log of a live run does
            continue
        except ArtifactMissing:
            return None
        except ArtifactError as error:
            raise Unavailable(f"{error}.", code="store_unreachable") from error
    raise Unavailable(f"{path} changes faster than it can be copied.", code="file_changes")


def _hashed(source: Store, path: str) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    for block in _of_source(source, path):
        digest.update(block)
        size += len(block)
    return digest.hexdigest(), size


def _of_source(source: Store, path: str) -> Iterator[bytes]:
    try:
        with source.open(path) as file:
            yield from file_blocks(file)
    except FileNotFoundError as error:
        raise ArtifactMissing(f"artifact '{path}' is missing") from error


def _absent(wanted: list[Reference], files: list[list[Any]]) -> list[str]:
    """Files that the dump names and the store had not: in words, by what needs them."""
    source, hashes = Store(settings.ARTIFACTS_URL), {path: sha for path, sha, _, _ in files}
    problems = reference_problems(iter(wanted), hashes, source.read_bytes)
    return sorted({f"{one.what}: {how}" for one, how in problems if not one.may_miss})


def secret_key_mark() -> str:
    """By which a restore sees whether the site has the SECRET_KEY of the backup."""
    return hmac.new(settings.SECRET_KEY.encode(), b"concord backup", "sha256").hexdigest()[:16]


# What is older than the newest few.


def backups_prune(*, target: Target, keep: int, say: Say = log.info) -> list[str]:
    """Delete all but the newest `keep` backups, then contents that no backup names, and what killed
    backups left a day ago. The list of erasures stays. Nothing while a restore is being tried."""
    with trials_wait() as free:
        if not free:
            say("a restore is being tried: old backups stay until the next time")
            return []
        return _prune(target, keep, say)


def _prune(target: Target, keep: int, say: Say) -> list[str]:
    names = target.names()
    gone = names[:-keep] if keep else []
    for name in gone:
        target.delete_backup(name)
    for name in target.unfinished():
        if _is_old(name):
            target.delete_backup(name)
    if gone:
        say(f"deleted: {', '.join(gone)}")
        try:
            needed = {
                target.blob(file[1])
                for name in target.names()
                for file in target.manifest(name)["files"]
            }
        except BackupDamaged as error:  # nobody knows what that one needs
            say(f"all contents stay: {error.message}")
            return gone
        for blob in target.blobs():
            if blob not in needed:
                target.delete(blob)
    return gone


def _is_old(name: str) -> bool:
    try:
        return timezone.now() - name_time(name) > UNFINISHED
    except ValueError:  # no folder of ours
        return False


def _figures(made: Made) -> dict[str, Any]:
    return {
        "seconds": made.seconds,
        "database_bytes": made.database_bytes,
        "artifacts": made.artifacts,
        "artifact_bytes": made.artifact_bytes,
        "copied": made.copied,
        "copied_bytes": made.copied_bytes,
        "absent": made.absent[:50],
        "damaged": made.damaged[:50],
    }
