"""What a backup holds, and what is refused by name: a changed byte, a missing file, another key."""

import base64
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, Project
from apps.common import environment
from apps.common.errors import Conflict, DomainError
from apps.monitoring import tasks
from apps.monitoring.models import BackupReport
from apps.monitoring.selectors import backups as selectors
from apps.monitoring.services import backups
from apps.monitoring.services.backups import making, proving, restoring
from apps.monitoring.services.backups.database import (
    connection_of_owner,
    one_at_a_time,
    tables_drop,
    trial,
)
from apps.monitoring.services.backups.encryption import (
    CHUNK,
    EncryptionError,
    Key,
    decrypted,
    encrypted,
    encrypted_size,
)
from apps.monitoring.services.backups.target import Target, address_words, target_of
from apps.snapshots.models import Snapshot
from apps.training.models import Checkpoint, FolderDeletion
from apps.training.services.housekeeping import folders_delete
from tests.web.world import run_make
from tests.workers.s3 import Bucket, bucket, s3
from workers import artifacts
from workers.artifacts import Store

__all__ = ["bucket", "s3"]  # fixtures
KEY = base64.b64encode(bytes(range(32))).decode()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "backup.key"
    path.write_text(KEY + "\n")
    return path


@pytest.fixture
def store(tmp_path: Path, settings: Settings) -> Store:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")
    settings.BACKUP_KEY_FILE = ""
    return Store(settings.ARTIFACTS_URL)


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return target_of(str(tmp_path / "target"), "")


def dataset_make(project: Project, store: Store, folder: Path, **files: str) -> Snapshot:
    """A frozen one with files of its own."""
    folder.mkdir()
    for name, text in (files or {"train": "rows", "dev": "other rows"}).items():
        (folder / f"{name}.jsonl").write_text(text)
    snapshot = Snapshot(project=project, name="pairs", kind=Snapshot.Kind.PREFERENCES)
    snapshot.uri = f"snapshots/{snapshot.pk}"
    snapshot.sha256, _ = store.put_tree(folder, snapshot.uri)
    snapshot.state, snapshot.frozen_at = Snapshot.State.FROZEN, timezone.now()
    snapshot.save()
    return snapshot


@pytest.fixture
def dataset(transactional_db: None, project: Project, store: Store, tmp_path: Path) -> Snapshot:
    return dataset_make(project, store, tmp_path / "dataset")


def quiet(text: str) -> None:
    pass


def made(target: Target, keep: int = 0) -> backups.Made:
    return backups.backup_make(target=target, keep=keep, say=quiet)


def files_of(target: Target) -> dict[str, int]:
    return {path: seen.size for path, seen in target.store.files().items()}


# Encryption.


def blocks(*parts: bytes) -> Iterator[bytes]:
    return iter(parts)


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_what_is_encrypted_comes_back_and_has_the_size_that_was_said(size, tmp_path):
    key, plain = Key(bytes(32)), os.urandom(size)
    path = tmp_path / "one"
    path.write_bytes(b"".join(encrypted(blocks(plain[:7], plain[7:]), key, "one")))
    assert path.stat().st_size == encrypted_size(size)
    with path.open("rb") as file:
        assert b"".join(decrypted(file, key, "one")) == plain


def damaged(text: bytes, how: str) -> bytes:
    if how == "a byte":
        return text[:-20] + bytes([text[-20] ^ 1]) + text[-19:]
    if how == "a chunk cut off":
        return text[: -(encrypted_size(10) - encrypted_size(0) + 16)]
    return text[: 32 + CHUNK + 16] + text[32 : 32 + CHUNK + 16] + text[32 + CHUNK + 16 :]


@pytest.mark.parametrize("how", ["a byte", "a chunk cut off", "a chunk twice"])
def test_a_changed_or_shortened_file_is_refused(how, tmp_path):
    key, path = Key(bytes(32)), tmp_path / "one"
    whole = b"".join(encrypted(blocks(bytes(2 * CHUNK + 10)), key, "one"))
    path.write_bytes(damaged(whole, how))
    with path.open("rb") as file, pytest.raises(EncryptionError, match="changed or cut short"):
        list(decrypted(file, key, "one"))


def test_a_file_put_in_the_place_of_another_and_another_key_are_refused(tmp_path):
    key, path = Key(bytes(32)), tmp_path / "one"
    path.write_bytes(b"".join(encrypted(blocks(b"text"), key, "one")))
    with path.open("rb") as file, pytest.raises(EncryptionError, match="changed"):
        list(decrypted(file, key, "two"))
    with path.open("rb") as file, pytest.raises(EncryptionError, match="another key"):
        list(decrypted(file, Key(bytes(31) + b"1"), "one"))
    with path.open("rb") as file, pytest.raises(EncryptionError, match="BACKUP_KEY_FILE"):
        list(decrypted(file, None, "one"))


@pytest.mark.parametrize(
    "text",
    ["", "short", "é" * 44, base64.b64encode(bytes(31)).decode()],
    ids=["empty", "short", "other letters", "31 bytes"],
)
def test_a_key_file_that_holds_no_key_is_refused(text, tmp_path):
    (tmp_path / "key").write_text(text)
    with pytest.raises(DomainError, match="32 bytes in base64") as refused:
        target_of(str(tmp_path), str(tmp_path / "key"))
    assert refused.value.code == "backup_key"


# What is written, and what is not believed.


def test_a_backup_names_everything_and_no_secret(dataset, target, monkeypatch, store):
    monkeypatch.setenv("EMAIL_URL", "smtps://ana:hunter22@mail.example.org")
    monkeypatch.setenv("METRICS_RUNS", "17")
    monkeypatch.setattr(environment, "_read", {})
    environment.text("EMAIL_URL")
    environment.number("METRICS_RUNS", 50, low=0, high=200)
    backup = target.manifest(made(target).name)
    assert backup["settings"] == {"EMAIL_URL": "(set)", "METRICS_RUNS": "17"}
    assert "hunter22" not in json.dumps(backup)
    assert backup["database"]["rows"]["snapshots_snapshot"] == 1
    assert backup["absent"] == []
    assert "monitoring.0001_initial" in backup["migrations"]
    assert {path for path, *_ in backup["files"]} == {*store.files()}


def test_only_what_is_new_is_copied(dataset, target, store):
    first = made(target)
    assert first.copied == first.artifacts == 3
    before = files_of(target)
    assert made(target).copied == 0
    store.write_bytes("runs/one/report.json", b"new")
    again = made(target)
    assert (again.copied, again.copied_bytes, again.artifacts) == (1, 3, 4)
    assert before.items() <= files_of(target).items()


def test_what_the_target_lost_is_copied_again(dataset, target):
    made(target)
    lost = next(path for path in target.store.files() if path.startswith("artifacts/"))
    target.store.delete_file(lost)
    assert made(target).copied == 1
    assert lost in target.store.files()


def test_a_file_that_the_database_names_and_the_store_lost_is_told_by_name(
    dataset, target, store, capsys
):
    store.delete_file(f"{dataset.uri}/dev.jsonl")
    with pytest.raises(CommandError, match="1 files that the database names"):
        call_command("backup", target.store.url)
    assert f"dataset {dataset.pk}: {dataset.uri}/dev.jsonl is missing" in capsys.readouterr().out
    assert BackupReport.objects.get().figures["absent"]
    assert any("not in the artifact store" in text for text in selectors.backup_warnings())


def test_a_checkpoint_that_its_trainer_deletes_meanwhile_is_no_loss(
    transactional_db, project, target, store
):
    run = run_make(project)
    common = {"project": project, "run": run, "attempt": 1, "sha256": "0" * 64}
    Checkpoint.objects.create(step=5, uri=f"runs/{run.pk}/5", **common)
    assert made(target).absent == []
    run.state, run.ended_at = "finished", timezone.now()
    run.save()
    Checkpoint.objects.create(step=9, uri=f"runs/{run.pk}/9", tags=["final"], **common)
    (line,) = made(target).absent
    assert f"runs/{run.pk}/9/manifest.json is missing" in line


def test_no_sweep_deletes_files_while_a_backup_is_made(dataset, store):
    FolderDeletion.objects.create(folder=dataset.uri)
    with one_at_a_time():
        assert folders_delete() == 0
        assert store.files(dataset.uri)
    assert folders_delete() == 1
    assert not store.files(dataset.uri)


def test_one_backup_at_a_time(dataset, target):
    with one_at_a_time(), pytest.raises(Conflict) as refused:
        made(target)
    assert refused.value.code == "backup_under_way"
    assert not BackupReport.objects.exists()


def test_a_backup_that_was_killed_is_not_believed_and_goes_after_a_day(
    dataset, target, monkeypatch
):
    good = made(target)
    monkeypatch.setattr(
        Target, "manifest_write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        made(target)
    monkeypatch.undo()
    (half,) = target.unfinished()
    assert target.names() == [good.name]
    with pytest.raises(DomainError, match="its manifest is missing"):
        backups.restore_prove(target=target, name=half, say=quiet)
    made(target, keep=5)
    assert target.unfinished() == [half]
    monkeypatch.setattr(making, "UNFINISHED", timedelta(0))
    made(target, keep=5)
    assert target.unfinished() == []


def test_what_no_backup_needs_is_deleted_and_the_list_of_erasures_stays(
    dataset, target, store, project, tmp_path
):
    store.write_bytes("erasures/1.json", b"{}")
    store.write_bytes("runs/old/report.json", b"old")
    first = made(target)
    store.delete_file("runs/old/report.json")
    store.delete_file("erasures/1.json")
    old = target.blob(next(f[1] for f in target.manifest(first.name)["files"] if "old" in f[0]))
    assert made(target, keep=2).pruned == []
    assert old in target.blobs()
    assert made(target, keep=2).pruned == [first.name]
    assert old not in target.blobs()
    assert len(target.names()) == 2
    assert target.read("erasures/1.json") == b"{}"
    restoring.files_check(target, target.manifest(target.names()[0]))


def test_a_full_disk_is_told_and_leaves_the_former_backup(dataset, target, store, monkeypatch):
    good = made(target)
    before = files_of(target)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    store.write_bytes("runs/one/report.json", b"new")
    monkeypatch.setattr(artifacts.os, "fsync", full)
    with pytest.raises(CommandError, match=r"disk of .* is full"):
        call_command("backup", target.store.url)
    monkeypatch.undo()
    assert files_of(target) == before
    assert target.names() == [good.name]
    report = BackupReport.objects.latest("pk")
    assert "is full" in report.error


def test_a_file_that_changes_between_its_hash_and_its_copy_takes_no_other_content_away(
    dataset, target, store, monkeypatch
):
    """Two files of one content, one of which a live run changes: the other's copy stays."""
    store.write_bytes("runs/one/log", b"same")
    store.write_bytes("runs/two/log", b"same")
    hashed = making._hashed

    def changes(source: Store, path: str) -> tuple[str, int]:
        found = hashed(source, path)
        if path == "runs/two/log" and source.read_bytes(path) == b"same":
            store.write_bytes(path, b"another line")
        return found

    monkeypatch.setattr(making, "_hashed", changes)
    name = made(target).name
    files = {path: sha256 for path, sha256, _, _ in target.manifest(name)["files"]}
    assert target.read(target.blob(files["runs/one/log"])) == b"same"
    assert target.read(target.blob(files["runs/two/log"])) == b"another line"
    restoring.files_check(target, target.manifest(name))


def test_a_damaged_earlier_backup_stops_no_other_and_its_contents_stay(dataset, target, store):
    old, second = made(target).name, made(target).name
    store.write_bytes("runs/one/report.json", b"only in the third")
    third = made(target).name
    store.delete_file("runs/one/report.json")
    target.store.write_bytes(f"backups/{second}/manifest.json", b"{}")
    target.store.write_bytes(f"backups/{third}/manifest.json", b"{}")
    before = target.blobs()
    done = made(target, keep=3)
    assert done.pruned == [old]
    assert [line.split("/")[1] for line in done.damaged] == [third, second]
    assert target.blobs() == before, "nobody knows what the damaged one needs"
    assert "damaged" in " ".join(selectors.backup_warnings())


def test_nothing_is_deleted_while_a_restore_is_tried(dataset, target):
    first = made(target).name
    with trial():
        assert made(target, keep=1).pruned == []
    assert first in target.names()
    assert first in made(target, keep=1).pruned


def test_whatever_goes_wrong_is_kept_without_secrets(dataset, target, monkeypatch):
    monkeypatch.setenv("REWARD_TOKEN", "hunter2hunter2")

    def broken(*_: Any) -> None:
        raise RuntimeError("it said hunter2hunter2")

    monkeypatch.setattr(making, "_make", broken)
    with pytest.raises(RuntimeError):
        made(target)
    assert BackupReport.objects.get(kind="made").error == "RuntimeError: it said [secret]"
    monkeypatch.setattr(proving, "_prove", broken)
    monkeypatch.setattr(proving, "chosen", lambda *_: "one")
    with pytest.raises(RuntimeError):
        backups.restore_prove(target=target, say=quiet)
    assert BackupReport.objects.get(kind="proven").error == "RuntimeError: it said [secret]"


def test_tables_stay_while_the_site_is_connected(transactional_db):
    reach = connection_of_owner()
    connection.close()
    with psycopg.connect(**reach), pytest.raises(Conflict, match="Stop the site"):
        tables_drop(reach)
    assert Project.objects.count() == 0, "the tables are there"


def test_the_process_that_looks_at_a_restored_site_knows_no_address_of_this_one(
    tmp_path, monkeypatch, settings
):
    given: dict[str, str] = {}

    def runs(argv: list[str], *, env: dict[str, str], **_: Any) -> Any:
        given.update(env)
        return subprocess.CompletedProcess(argv, 0, '{"broken": []}\n', "")

    for name in (*proving.ELSEWHERE, "DATABASE_URL"):
        monkeypatch.setenv(name, "redis://this-site/")
    monkeypatch.setattr(proving.subprocess, "run", runs)
    proving._looked_at(tmp_path, lambda role: f"postgresql://{role}@elsewhere/")
    assert "this-site" not in " ".join(given.values())
    assert given["VAR_DIR"] == str(tmp_path / "site")
    assert given["SECRET_KEY"] == settings.SECRET_KEY


# An object store, where the site's files and its backups may lie alike.


def test_files_and_backups_may_lie_in_an_object_store(
    transactional_db, project, bucket: Bucket, settings, tmp_path, key_file
):
    settings.ARTIFACTS_URL = f"{bucket.url}/site"
    store = Store(settings.ARTIFACTS_URL)
    dataset = dataset_make(project, store, tmp_path / "dataset")
    target = target_of(f"{bucket.url}/backups", str(key_file))
    first = made(target)
    assert (first.copied, first.absent) == (3, [])
    assert made(target).copied == 0
    backup = target.manifest(first.name)
    assert restoring.files_check(target, backup) > 0
    settings.ARTIFACTS_URL = f"{bucket.url}/elsewhere"
    assert restoring._files_restore(target, backup) == 3
    Store(settings.ARTIFACTS_URL).get_tree(
        dataset.uri, sha256=dataset.sha256, cache=tmp_path / "cache"
    )
    changed(target, blob_of(target, first.name, f"{dataset.uri}/train.jsonl"))
    with pytest.raises(DomainError, match=r"train\.jsonl"):
        restoring.files_check(target, backup)
    made(target, keep=1)
    assert len(target.names()) == 1


def test_an_upload_that_breaks_off_is_no_object(bucket: Bucket):
    store = Store(bucket.url)

    def break_off() -> None:
        with store.written_whole("one") as file:
            file.write(bytes(40 << 20))  # parts are under way
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert store.files() == {}


# What a restore refuses before it touches anything.


def changed(target: Target, path: str) -> None:
    """One byte of a file in the target."""
    (there,) = [name for name in target.store.files() if name.removesuffix(".enc") == path]
    text = bytearray(target.store.read_bytes(there))
    text[len(text) // 2] ^= 1
    target.store.write_bytes(there, bytes(text))


def blob_of(target: Target, name: str, path: str) -> str:
    return target.blob(next(f[1] for f in target.manifest(name)["files"] if f[0] == path))


FAULTS: dict[str, tuple[Callable[[Target, str, str], None], str]] = {
    "a byte of the dump": (
        lambda t, n, p: changed(t, f"backups/{n}/database.dump"),
        "database.dump",
    ),
    "a byte of a file": (lambda t, n, p: changed(t, blob_of(t, n, p)), "train.jsonl"),
    "a file is gone": (lambda t, n, p: t.delete(blob_of(t, n, p)), "train.jsonl"),
    "a byte of the manifest": (
        lambda t, n, p: changed(t, f"backups/{n}/manifest.json"),
        "manifest",
    ),
    "no manifest": (lambda t, n, p: t.delete(f"backups/{n}/manifest.json"), "no manifest"),
}


@pytest.mark.parametrize("coded", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_refused_by_name(
    fault, coded, dataset, tmp_path, key_file, store, monkeypatch
):
    target = target_of(str(tmp_path / "target"), str(key_file) if coded else "")
    name = made(target).name
    plant, named = FAULTS[fault]
    plant(target, name, f"{dataset.uri}/train.jsonl")
    monkeypatch.setattr(restoring, "refuse_unless_empty", lambda backup: None)
    for touches in ("tables_drop", "dump_restore", "_files_restore"):
        monkeypatch.setattr(restoring, touches, lambda *_: pytest.fail("something was touched"))
    for attempt in (backups.restore_prove, backups.backup_restore):
        with pytest.raises(DomainError, match=named):
            attempt(target=target, say=quiet)
    assert BackupReport.objects.get(kind="proven").error


def test_another_key_or_none_is_refused_by_name(dataset, tmp_path, key_file):
    made(target_of(str(tmp_path / "target"), str(key_file)))
    (tmp_path / "other.key").write_text(base64.b64encode(bytes(32)).decode())
    with pytest.raises(DomainError, match="another key"):
        backups.restore_prove(
            target=target_of(str(tmp_path / "target"), str(tmp_path / "other.key")), say=quiet
        )
    with pytest.raises(DomainError, match="set BACKUP_KEY_FILE"):
        backups.restore_prove(target=target_of(str(tmp_path / "target"), ""), say=quiet)


def test_an_encrypted_backup_shows_neither_text_nor_hashes(dataset, tmp_path, key_file):
    target = target_of(str(tmp_path / "target"), str(key_file))
    name = made(target).name
    hashes = [file[1] for file in target.manifest(name)["files"]]
    seen = target.store.files()
    for path in seen:
        assert b"rows" not in target.store.read_bytes(path)
        assert path.endswith(".enc")
        assert not any(one in path for one in hashes)


def test_a_site_with_data_is_refused_and_what_it_has_is_named(dataset, target, ana):
    name = made(target).name
    with pytest.raises(Conflict, match=r"rows? in accounts_user") as refused:
        backups.backup_restore(target=target, say=quiet)
    assert refused.value.code == "not_empty"
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from accounts_user")
        assert cursor.fetchone()[0] > 0
    assert name in target.names()


def test_an_artifact_store_with_other_files_is_refused(dataset, target, store, monkeypatch):
    backup = target.manifest(made(target).name)
    monkeypatch.setattr(restoring, "rows_counted", lambda reach: {"django_migrations": 90})
    restoring.refuse_unless_empty(backup)  # the same files: an earlier try that broke off
    store.write_bytes("runs/another/report.json", b"of another site")
    with pytest.raises(Conflict, match=r"runs/another/report\.json"):
        restoring.refuse_unless_empty(backup)


def test_a_backup_of_a_newer_version_names_the_version_to_run(dataset, target, monkeypatch):
    name = made(target).name
    backup = target.manifest(name)
    backup["migrations"].append("labeling.9999_of_the_future")
    backup["concord"] = "0.9.1"
    target.manifest_write(name, backup)
    with pytest.raises(Conflict, match=r"9999_of_the_future\. Restore it with 0\.9\.1"):
        backups.backup_restore(target=target, say=quiet)


def test_erasures_of_later_backups_come_with_an_older_one(
    dataset, target, store, settings, tmp_path
):
    first = made(target).name
    store.write_bytes("erasures/7.json", b'{"person": 7}')
    made(target)
    settings.ARTIFACTS_URL = str(tmp_path / "elsewhere")
    assert "erasures/7.json" not in {file[0] for file in target.manifest(first)["files"]}
    assert restoring._erasures_restore(target) == 1
    assert Store(settings.ARTIFACTS_URL).read_bytes("erasures/7.json") == b'{"person": 7}'


def test_an_address_is_shown_without_its_password() -> None:
    assert address_words("s3://me:secret@host/b?key=x") == "s3://host/b"
    assert address_words("/srv/backups") == "/srv/backups"


# The scheduler, the page, and what `/metrics` says.


@pytest.mark.django_db
def test_a_backup_is_due_by_its_age_and_a_failed_one_again_after_an_hour(settings):
    now = timezone.now()
    settings.BACKUP_TARGET = ""
    assert not selectors.backup_due()
    settings.BACKUP_TARGET, settings.BACKUP_EVERY_HOURS = "/srv/backups", 24
    assert selectors.backup_due()
    assert not selectors.proof_due(), "there is nothing to restore"
    BackupReport.objects.create(kind="made", error="The disk is full.", finished_at=now)
    assert not selectors.backup_due(now=now + timedelta(minutes=59))
    assert selectors.backup_due(now=now + timedelta(minutes=61))
    BackupReport.objects.create(kind="made", finished_at=now)
    assert not selectors.backup_due(now=now + timedelta(hours=23))
    assert selectors.backup_due(now=now + timedelta(hours=24))
    assert selectors.proof_due(now=now)
    BackupReport.objects.create(kind="proven", finished_at=now)
    assert not selectors.proof_due(now=now + timedelta(days=29))
    assert selectors.proof_due(now=now + timedelta(days=30))


def test_the_scheduler_makes_what_is_due_once(dataset, target, settings, store):
    settings.BACKUP_TARGET, settings.BACKUP_KEEP = target.store.url, 3
    name = tasks.make_backup()
    assert target.names() == [name]
    assert tasks.make_backup() == ""
    store.write_bytes("erasures/9.json", b"{}")
    assert tasks.make_backup() == ""
    assert target.read("erasures/9.json") == b"{}", "it does not wait for the next backup"
    assert AuditEvent.objects.filter(action="backup.made", subject=name).count() == 1


@pytest.mark.django_db
def test_the_page_and_healthz_say_what_is_too_old(settings, signed_in, ada):
    ada.is_superuser = True
    ada.save()
    settings.BACKUP_TARGET = "s3://user:secret@store/backups"
    old = timezone.now() - timedelta(days=60)
    BackupReport.objects.create(kind="made", finished_at=old, name="20260901T000000Z")
    BackupReport.objects.create(kind="proven", finished_at=old, name="20260901T000000Z")
    text = signed_in(ada).get("/site/backups/").content.decode()
    assert selectors.last_times() == {"made": old, "proven": old}
    assert "20260901T000000Z" in text
    assert "secret" not in text
    assert len(selectors.backup_warnings()) == 2
    assert "The last backup is of" in (selectors.health_remark() or "")
    BackupReport.objects.create(kind="made")
    BackupReport.objects.create(kind="proven")
    assert selectors.backup_warnings() == []
    assert selectors.health_remark() is None
