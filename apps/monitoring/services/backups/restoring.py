"""A backup becomes a site: only an empty one, and only after every byte was compared.

The order: what the backup says of itself, whether this version knows its migrations, whether the
site is empty, every hash, the files, the database in one transaction, the migrations that came
since, and the erasures of everybody who was erased after the backup was made. Redis is not part of
it: sweeps queue again what was under way.
"""

import hashlib
import importlib
import importlib.util
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from apps.accounts.services import audit_record
from apps.common.errors import Conflict
from apps.common.health import own_labels
from apps.common.scratch import scratch_folder
from apps.monitoring.selectors.backups import Kind
from apps.monitoring.services.backups.database import (
    connection_of_owner,
    dump_restore,
    rows_counted,
    tables_drop,
)
from apps.monitoring.services.backups.making import AT_ONCE, secret_key_mark
from apps.monitoring.services.backups.reports import report_write
from apps.monitoring.services.backups.target import (
    DUMP,
    ERASURES,
    BackupDamaged,
    Target,
    chosen,
    disk_full,
)
from workers.artifacts import Store

log = logging.getLogger("concord.backups")
Say = Callable[[str], None]
# Rows that `migrate` writes into an empty database.
OF_MIGRATE = {
    "django_migrations",
    "django_content_type",
    "auth_permission",
    "django_site",
    "accounts_auditevent",  # of a failed sign-in or a command, before anybody has an account
    "accounts_auditlink",
    "django_session",
    "monitoring_backupreport",
}
SHOWN = 5


@dataclass(slots=True)
class Restored:
    """What was restored; seconds by part, remarks for whoever did it."""

    name: str
    rows: int = 0
    artifacts: int = 0
    erasures: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def backup_restore(*, target: Target, name: str = "", say: Say = log.info) -> Restored:
    """Make this empty site the one of a backup, the newest unless `name` says another. Raises
    `DomainError`; until every hash was compared nothing is changed."""
    name = chosen(target, name)
    backup = target.manifest(name)
    migrations_known(backup)
    refuse_unless_empty(backup)
    done, begun = Restored(name), time.perf_counter()
    started = begun
    with scratch_folder("restore") as folder:
        dump = folder / DUMP
        say(f"{name}: comparing {len(backup['files']):,} files and the dump with their hashes")
        dump_fetch(target, backup, dump)
        files_check(target, backup)
        done.seconds["check"] = _since(started)
        say("every hash is right; copying files")
        started = time.perf_counter()
        done.artifacts = _files_restore(target, backup)
        done.erasures = _erasures_restore(target)
        done.seconds["files"] = _since(started)
        started = time.perf_counter()
        say("restoring the database")
        reach = connection_of_owner()
        connection.close()
        refuse_unless_empty(backup)  # comparing took a while
        connection.close()
        tables_drop(reach)
        dump_restore(reach, dump)
    found = rows_counted(reach)
    if wrong := rows_differ(backup, found):
        raise BackupDamaged(f"The restored database is not what was backed up: {wrong}.")
    done.rows = sum(found.values())
    done.seconds["database"] = _since(started)
    connection.close()
    call_command("migrate", interactive=False, verbosity=0)
    erasures_replay()
    if backup["secret_key"] != secret_key_mark():
        done.remarks.append(
            "SECRET_KEY is another one than when the backup was made: people sign in again, and"
            " links that were sent no longer work, authenticator apps and the secrets of webhooks"
            " cannot be read. Set the former one in SECRET_KEY_FALLBACKS."
        )
    done.remarks += [f"was absent when the backup was made: {one}" for one in backup["absent"]]
    audit_record(
        action="backup.restored", actor=None, subject=name, details={"target": target.words}
    )
    figures = {"seconds": done.seconds, "rows": done.rows, "artifacts": done.artifacts}
    report_write(Kind.RESTORED, target, name, begun, figures=figures)
    return done


def migrations_known(backup: dict[str, Any]) -> None:
    """A backup of a newer version is refused with the version that can read it."""
    disk = MigrationLoader(None).disk_migrations
    own = own_labels()
    unknown = [
        label
        for label in backup["migrations"]
        if label.partition(".")[0] in own and tuple(label.split(".", 1)) not in disk
    ]
    if unknown:
        raise Conflict(
            f"The backup was made by Concord {backup['concord']} ({backup['revision']}), which has"
            f" migrations that this version does not know: {', '.join(unknown[:3])}. Restore it"
            f" with {backup['concord']} or a newer version. Nothing was changed.",
            code="newer_backup",
        )


def refuse_unless_empty(backup: dict[str, Any]) -> None:
    """Names what stands in the database or the artifact store."""
    rows = {table: n for table, n in rows_counted(connection_of_owner()).items() if n}
    data = {table: n for table, n in rows.items() if table not in OF_MIGRATE}
    if data:
        most = sorted(data.items(), key=lambda one: -one[1])[:SHOWN]
        raise Conflict(
            "This site is not empty, and a restore would replace it. Its database has "
            + ", ".join(f"{n:,} rows in {table}" for table, n in most)
            + f"{' and more' if len(data) > SHOWN else ''}. Restore into an empty database:"
            " another DATABASE_URL, or another VAR_DIR.",
            code="not_empty",
        )
    sizes = {path: size for path, _, size, _ in backup["files"]}
    foreign = [
        path
        for path, seen in Store(settings.ARTIFACTS_URL).files().items()
        if sizes.get(path) != seen.size and not path.startswith(("audit/heads/", f"{ERASURES}/"))
    ]
    if foreign:
        raise Conflict(
            f"The artifact store of this site is not empty: {', '.join(foreign[:SHOWN])}"
            f"{' and more' if len(foreign) > SHOWN else ''}. Restore into another ARTIFACTS_URL.",
            code="not_empty",
        )


def dump_fetch(target: Target, backup: dict[str, Any], dump: Path) -> None:
    """The dump on this machine, decrypted and compared with its hash."""
    about = backup["database"]
    path = f"backups/{backup['name']}/{DUMP}"
    try:
        with dump.open("wb") as file:
            for block in target.checked(path, about["sha256"], about["size"]):
                file.write(block)
    except OSError as error:
        raise disk_full(str(dump.parent)) from error


def files_check(target: Target, backup: dict[str, Any]) -> int:
    """Read every content that the backup names; returns how many bytes. Raises `BackupDamaged`."""
    contents = {sha256: (path, size) for path, sha256, size, _ in backup["files"]}

    def check(sha256: str) -> int:
        path, size = contents[sha256]
        for _ in target.checked(target.blob(sha256), sha256, size, called=path):
            pass
        return size

    with ThreadPoolExecutor(AT_ONCE, "restore") as pool:
        try:
            return sum(pool.map(check, sorted(contents)))
        except BackupDamaged as error:
            pool.shutdown(cancel_futures=True)
            raise named(error, target, contents) from error


def named(
    error: BackupDamaged, target: Target, contents: dict[str, tuple[str, int]]
) -> BackupDamaged:
    """The same error by the name that the file had in the artifact store."""
    for sha256, (path, _) in contents.items():
        if error.details == target.blob(sha256) and path not in error.message:
            return BackupDamaged(f"{path}: {error.message}", details=error.details)
    return error


def _files_restore(target: Target, backup: dict[str, Any]) -> int:
    store = Store(settings.ARTIFACTS_URL)
    there = {path: seen.size for path, seen in store.files().items()}

    def restore(file: list[Any]) -> None:
        path, sha256, size, _ = file
        if there.get(path) == size and _same(store, path, sha256):
            return  # an earlier try came so far
        try:
            with store.written_whole(path) as out:
                for block in target.checked(target.blob(sha256), sha256, size, called=path):
                    out.write(block)
        except OSError as error:
            raise disk_full("the artifact store") from error

    with ThreadPoolExecutor(AT_ONCE, "restore") as pool:
        return len(list(pool.map(restore, backup["files"])))


def _same(store: Store, path: str, sha256: str) -> bool:
    digest = hashlib.sha256()
    with store.open(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest() == sha256


# Erasures: a person who was erased after the backup was made must not come back with it.


def _erasures_restore(target: Target) -> int:
    """The newest state of the list, which all backups of a target share."""
    store, paths = Store(settings.ARTIFACTS_URL), target.files(ERASURES)
    for path in paths:
        with store.written_whole(path) as out:
            out.write(target.read(path))
    return len(paths)


def erasures_replay() -> None:
    """By the app that keeps the list, where this version has one."""
    name = "apps.accounts.services.erasure"
    if importlib.util.find_spec(name) is not None:
        importlib.import_module(name).replay_erasures()


def rows_differ(backup: dict[str, Any], found: dict[str, int]) -> str:
    """Which tables have another number of rows than the backup says; empty where none has."""
    wanted: dict[str, int] = backup["database"]["rows"]
    wrong = [
        f"{table} has {found.get(table, 0):,} rows instead of {wanted.get(table, 0):,}"
        for table in sorted({*wanted, *found})
        if wanted.get(table, 0) != found.get(table, 0)
    ]
    return ", ".join(wrong[:SHOWN])


def _since(started: float) -> float:
    return round(time.perf_counter() - started, 3)
