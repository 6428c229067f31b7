"""Whoever changes the audit log past its trigger is found, and the event is named."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, AuditLink, Project, User
from apps.accounts.services import audit_record
from apps.accounts.services.audit_chain import (
    HEADS,
    SETTLED,
    Broken,
    audit_head_write,
    audit_seal,
    audit_verify,
)
from apps.snapshots.storage import artifact_store
from tests.database import as_superuser


@pytest.fixture(autouse=True)
def _artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = tmp_path.as_uri()


def sealed() -> int:
    return audit_seal(now=timezone.now() + SETTLED + timedelta(seconds=1))


@pytest.fixture
def events(project: Project, ada: User) -> list[AuditEvent]:
    made = [
        audit_record(action="test.done", actor=ada, project=project, details={"n": n, "words": "ä"})
        for n in range(5)
    ]
    assert sealed() == AuditEvent.objects.count()
    return made


def tampered(sql: str, *values: Any) -> None:
    with as_superuser(), connection.cursor() as cursor:
        cursor.execute("set session_replication_role = replica")
        cursor.execute(sql, values)
        cursor.execute("set session_replication_role = origin")


def test_nothing_changed_is_nothing_found(events: list[AuditEvent]) -> None:
    found = audit_verify()
    assert (found.sealed, found.unsealed, found.broken) == (AuditEvent.objects.count(), 0, ())
    assert sealed() == 0


def test_a_row_that_a_superuser_changed_is_named_and_no_other(events: list[AuditEvent]) -> None:
    tampered(
        "update accounts_auditevent set details = %s where id = %s",
        json.dumps({"n": 7}),
        events[2].pk,
    )
    assert audit_verify().broken == (Broken("it is not what was sealed", events[2].pk),)
    with pytest.raises(CommandError, match="1 things"):
        call_command("audit_verify")


@pytest.mark.parametrize("column", ["action", "subject"])
def test_every_field_is_in_the_hash(events: list[AuditEvent], column: str) -> None:
    tampered(f"update accounts_auditevent set {column} = 'other' where id = %s", events[0].pk)
    assert audit_verify().broken == (Broken("it is not what was sealed", events[0].pk),)


def test_so_are_who_when_and_where(events: list[AuditEvent]) -> None:
    tampered("update accounts_auditevent set actor_id = null where id = %s", events[0].pk)
    tampered("update accounts_auditevent set project_id = null where id = %s", events[1].pk)
    tampered(
        "update accounts_auditevent set at = at + interval '1 second' where id = %s", events[3].pk
    )
    assert {one.event for one in audit_verify().broken} == {events[n].pk for n in (0, 1, 3)}


def test_a_deleted_row_is_named(events: list[AuditEvent]) -> None:
    tampered("delete from accounts_auditevent where id = %s", events[1].pk)
    assert audit_verify().broken == (Broken("it was deleted", events[1].pk),)


def test_a_chain_that_was_written_again_is_not_that_of_the_day(events: list[AuditEvent]) -> None:
    assert audit_head_write()
    assert not audit_head_write(), "once a day"
    assert audit_verify().heads == 1
    tampered(
        "update accounts_auditevent set details = '{}', salts = '{}',"
        ' sealed = \'{"subject": ""}\' where id = %s',
        events[0].pk,
    )
    tampered("delete from accounts_auditlink")
    sealed()
    [found] = audit_verify().broken
    assert found.what.startswith("the chain is not the one of ")
    [name] = artifact_store().names(HEADS)
    assert json.loads(artifact_store().read_bytes(f"{HEADS}/{name}"))["position"] >= 5


def test_an_event_that_is_written_late_joins_later(events: list[AuditEvent], ada: User) -> None:
    late = audit_record(action="test.late", actor=ada)
    assert audit_seal() == 0, "not settled"
    assert audit_verify().unsealed == 1
    assert sealed() == 1
    assert AuditLink.objects.latest("position").event == late.pk
    assert audit_verify().broken == ()


def test_the_chain_is_append_only(events: list[AuditEvent]) -> None:
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        AuditLink.objects.update(sha256="0" * 64)
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        AuditLink.objects.all().delete()
