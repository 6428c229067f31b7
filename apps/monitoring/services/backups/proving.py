"""A restore that is tried: into a PostgreSQL server of its own, which is gone afterwards.

The live site is only written to for the report. The dump is restored as it would be, its rows are
counted, this version's migrations run on it, the audit log is verified against its chain, and every
file that the database names must be in the backup with its hash. Contents are read and compared,
not written out: only what the checks themselves read lies in a scratch folder.
"""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command

from apps.accounts.services.audit_chain import HEADS, audit_verify
from apps.common import embedded
from apps.common import environment as env
from apps.common.embedded.postgres import OWNER
from apps.common.errors import Unavailable
from apps.common.scratch import scratch_folder
from apps.monitoring.selectors.backups import Kind, reference_problems, references
from apps.monitoring.services.backups.database import dump_restore, rows_counted, trial
from apps.monitoring.services.backups.reports import error_words, report_write
from apps.monitoring.services.backups.restoring import (
    SHOWN,
    dump_fetch,
    erasures_replay,
    files_check,
    migrations_known,
    rows_differ,
)
from apps.monitoring.services.backups.target import (
    DUMP,
    ERASURES,
    BackupDamaged,
    Target,
    chosen,
)
from workers.artifacts import MANIFEST, ArtifactError, Store

log = logging.getLogger("concord.backups")
Say = Callable[[str], None]
ELSEWHERE = (
    *("REDIS_URL", "CACHE_URL", "SCORE_CACHE_URL", "EMAIL_URL", "AUDIT_SYSLOG", "BACKUP_TARGET"),
    *("SENTRY_DSN", "OTEL_EXPORTER_OTLP_ENDPOINT", "DATABASE_DIRECT_URL"),
)


@dataclass(slots=True)
class Proven:
    """A restore that worked; seconds by part."""

    name: str
    rows: int = 0
    artifacts: int = 0
    references: int = 0
    audit_events: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


def restore_prove(*, target: Target, name: str = "", say: Say = log.info) -> Proven:
    """Try to restore a backup, the newest unless `name` says another. Raises `DomainError` naming
    what is wrong. Either way a report is kept, in the database of this site."""
    started = time.perf_counter()
    try:
        name = chosen(target, name)
        with trial():
            proven = _prove(target, name, say)
    except Exception as error:
        report_write(Kind.PROVEN, target, name, started, error=error_words(error))
        raise
    figures = {
        "seconds": proven.seconds,
        "rows": proven.rows,
        "artifacts": proven.artifacts,
        "references": proven.references,
        "audit_events": proven.audit_events,
    }
    report_write(Kind.PROVEN, target, name, started, figures=figures)
    return proven


def _prove(target: Target, name: str, say: Say) -> Proven:
    backup = target.manifest(name)
    migrations_known(backup)
    proven = Proven(name, artifacts=len(backup["files"]))
    with scratch_folder("proof") as folder:
        started = time.perf_counter()
        dump = folder / DUMP
        dump_fetch(target, backup, dump)
        files_check(target, backup)
        proven.seconds["check"] = _since(started)
        say(f"{name}: every hash is right")
        started = time.perf_counter()
        _small_files(target, backup, folder / "artifacts")
        with embedded.postgres_alone(folder / "server") as url:
            reach = {"conninfo": url(OWNER)}
            dump_restore(reach, dump)
            found = rows_counted(reach)
            if wrong := rows_differ(backup, found):
                raise BackupDamaged(f"The restored database is not what was backed up: {wrong}.")
            proven.rows = sum(found.values())
            proven.seconds["database"] = _since(started)
            say(f"{proven.rows:,} rows in {len(found):,} tables")
            started = time.perf_counter()
            looked = _looked_at(folder, url)
            proven.seconds["references"] = _since(started)
    if looked["broken"]:
        raise BackupDamaged(
            f"The audit log of the backup is not what was sealed: {looked['broken'][0]}."
        )
    if looked["missing"]:
        raise BackupDamaged(
            f"Files that the database names are not in the backup: "
            f"{'; '.join(looked['missing'][:SHOWN])}."
        )
    proven.references, proven.audit_events = looked["references"], looked["audit_events"]
    say(
        f"{proven.references:,} references are whole, {proven.audit_events:,} audit events verified"
    )
    return proven


def _small_files(target: Target, backup: dict[str, Any], folder: Path) -> None:
    """What the checks read: lists of trees, heads of the audit log, erasures; and all hashes."""
    store = Store(str(folder))
    for path, sha256, size, _ in backup["files"]:
        if path.endswith(f"/{MANIFEST}") or path.startswith(f"{HEADS}/"):
            with store.written_whole(path) as out:
                for block in target.checked(target.blob(sha256), sha256, size, called=path):
                    out.write(block)
    for path in target.files(ERASURES):
        store.write_bytes(path, target.read(path))
    hashes = {path: sha256 for path, sha256, _, _ in backup["files"]}
    (folder.parent / "hashes.json").write_text(json.dumps(hashes))


def _looked_at(folder: Path, url: Callable[[str], str]) -> dict[str, Any]:
    """What a process says whose site is the restored one. It has none of this one's addresses: it
    must not queue, send or tell anything. Its Redis is one of its own."""
    own = dict.fromkeys(ELSEWHERE, "") | {
        "VAR_DIR": str(folder / "site"),
        "SECRET_KEY": settings.SECRET_KEY,
        "STATIC_ROOT": str(settings.STATIC_ROOT),
        "DATABASE_URL": url(embedded.APPLICATION),
        "DATABASE_OWNER_URL": url(OWNER),
        "ARTIFACTS_URL": str(folder / "artifacts"),
    }
    argv = [
        sys.executable,
        str(env.ROOT / "manage.py"),
        "restore",
        "--inspect",
        str(folder / "hashes.json"),
    ]
    done = subprocess.run(
        argv, env=os.environ | own, cwd=env.ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = " ".join(done.stderr.split())[-400:]
        raise Unavailable(f"The restored site could not be looked at: {said}", code="not_inspected")
    return json.loads(done.stdout.splitlines()[-1])


def inspect(*, hashes: Path) -> dict[str, Any]:
    """Of the site that this process has, brought to this version as a restore would: what its
    database names and its backup does not have."""
    call_command("migrate", interactive=False, verbosity=0)
    erasures_replay()
    known: dict[str, str] = json.loads(hashes.read_text())
    store = Store(settings.ARTIFACTS_URL)

    def read(path: str) -> bytes:
        try:
            return store.read_bytes(path)
        except ArtifactError:
            return b""

    wanted = list(references())
    problems = reference_problems(iter(wanted), known, read)
    missing = sorted({f"{one.what}: {how}" for one, how in problems if not one.may_miss})
    verified = audit_verify()
    broken = [
        f"event {one.event}: {one.what}" if one.event else one.what for one in verified.broken
    ]
    return {
        "references": len(wanted),
        "missing": missing,
        "audit_events": verified.sealed,
        "broken": broken,
    }


def _since(started: float) -> float:
    return round(time.perf_counter() - started, 3)
