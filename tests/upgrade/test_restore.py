"""A backup of a site becomes the same site elsewhere, by the commands that people type."""

import base64
import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent
from apps.accounts.services import audit_record
from apps.accounts.services.audit_chain import SETTLED, audit_head_write, audit_seal
from apps.common import embedded
from apps.common.embedded import postgres_runs
from apps.monitoring.models import BackupReport
from apps.monitoring.services import backups
from apps.snapshots.models import Snapshot
from apps.training.models import Run
from tests.database import as_superuser
from tests.labeling.pairs import annotators_make, pairs_make, vote
from tests.upgrade.figures import figures
from tests.web.world import run_make
from workers.artifacts import Store


@pytest.fixture
def site(transactional_db: None, project: Any, tmp_path: Path, settings: Settings) -> Run:
    """Votes, a frozen dataset, sealed audit events, and a run that is under way."""
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")
    settings.BACKUP_KEY_FILE = str(tmp_path / "backup.key")
    (tmp_path / "backup.key").write_text(base64.b64encode(os.urandom(32)).decode())
    people = annotators_make(project, 3)
    for _ in pairs_make(project, 4, overlap=3):
        for person in people:
            vote(project, person)
    store, folder = Store(settings.ARTIFACTS_URL), tmp_path / "rows"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"prompt": "Which?"}\n' * 2000)
    snapshot = Snapshot(project=project, name="pairs", kind=Snapshot.Kind.PREFERENCES)
    snapshot.uri = f"snapshots/{snapshot.pk}"
    snapshot.sha256, _ = store.put_tree(folder, snapshot.uri)
    snapshot.state, snapshot.frozen_at = Snapshot.State.FROZEN, timezone.now()
    snapshot.save()
    for number in range(5):
        audit_record(action="test.done", actor=people[0], project=project, subject=str(number))
    audit_seal(now=timezone.now() + SETTLED + timedelta(seconds=1))
    audit_head_write()
    run = run_make(project)
    old = timezone.now() - timedelta(hours=1)
    Run.objects.filter(pk=run.pk).update(heard_at=old)
    run.attempts.update(created_at=old)
    return run


def command(var: Path, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    """In a site of its own below `var`, with servers of its own."""
    other = {"DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "CACHE_URL", "ARTIFACTS_URL"}
    own = {name: value for name, value in os.environ.items() if name not in other}
    return subprocess.run(
        [sys.executable, *argv],
        env=own | {"VAR_DIR": str(var)} | more,
        cwd=configured.BASE_DIR,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_site_comes_back_elsewhere_with_the_same_hashes(site, tmp_path, settings):
    target, var = tmp_path / "target", tmp_path / "elsewhere"
    call_command("backup", str(target))
    key = {"BACKUP_KEY_FILE": settings.BACKUP_KEY_FILE}
    done = command(var, "manage.py", "restore", str(target), **key)
    assert done.returncode == 0, done.stderr
    assert "SECRET_KEY is another one" in done.stdout
    looked = command(var, "-m", "tests.upgrade.figures")
    assert looked.returncode == 0, looked.stderr
    restored, here = json.loads(looked.stdout.splitlines()[-1]), figures()
    assert len(here["tables"]) > 15
    assert restored["tables"] == here["tables"]
    assert restored["files"] == here["files"]
    assert restored["audit"] == []
    assert restored["health"] is None
    state, attempt = restored["runs"][site.pk]
    assert (state, attempt) == ("queued", 2), "nobody holds its lease any more"
    again = command(var, "manage.py", "restore", str(target), **key)
    assert again.returncode == 1
    assert "This site is not empty" in again.stderr
    assert "rows in labeling_answer" in again.stderr


def test_a_restore_is_tried_in_a_server_of_its_own_and_proven(site, tmp_path, capsys):
    target = tmp_path / "target"
    call_command("backup", str(target))
    before = figures()
    call_command("restore", str(target), "--check")
    assert "can be restored" in capsys.readouterr().out
    assert figures() == before
    report = BackupReport.objects.get(kind="proven")
    assert report.error == ""
    assert report.figures["audit_events"] >= 5
    assert report.figures["references"] == 1
    assert not [*(Path(configured.VAR_DIR) / "scratch").glob("proof-*")]


def test_a_changed_event_of_the_audit_log_is_found_in_the_backup(site, tmp_path):
    with as_superuser(), connection.cursor() as cursor:
        cursor.execute("update accounts_auditevent set subject = 'other' where subject = '3'")
    call_command("backup", str(tmp_path / "target"))
    with pytest.raises(CommandError, match="not what was sealed") as refused:
        call_command("restore", str(tmp_path / "target"), "--check")
    event = AuditEvent.objects.get(subject="other")
    assert f"event {event.pk}" in str(refused.value)
    assert "not what was sealed" in BackupReport.objects.get(kind="proven").error


def test_a_file_that_the_database_names_and_the_backup_lacks_fails_the_proof(site, tmp_path):
    snapshot = Snapshot.objects.get()
    Store(configured.ARTIFACTS_URL).delete_file(f"{snapshot.uri}/train.jsonl")
    with pytest.raises(CommandError, match="not in the artifact store"):
        call_command("backup", str(tmp_path / "target"))
    with pytest.raises(CommandError, match=r"dataset .* is missing"):
        call_command("restore", str(tmp_path / "target"), "--check")


def test_rows_that_are_not_as_many_as_were_backed_up_fail_the_proof(site, tmp_path, settings):
    target = backups.target_of(str(tmp_path / "target"), settings.BACKUP_KEY_FILE)
    name = backups.backup_make(target=target, say=lambda text: None).name
    backup = target.manifest(name)
    backup["database"]["rows"]["labeling_answer"] += 1
    target.manifest_write(name, backup)
    with pytest.raises(CommandError, match="labeling_answer has 12 rows instead of 13"):
        call_command("restore", target.store.url, "--check")


def test_a_server_alone_is_gone_with_its_block(tmp_path):
    with embedded.postgres_alone(tmp_path / "server") as url:
        assert "concord_owner@" in url("concord_owner")
        assert postgres_runs(tmp_path / "server")
    assert not postgres_runs(tmp_path / "server")
