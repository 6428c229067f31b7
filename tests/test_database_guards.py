"""What must not change cannot be changed, not even by bulk updates or raw SQL."""

import pytest
from django.db import IntegrityError, ProgrammingError, connection, transaction
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project
from apps.snapshots.models import Snapshot


def test_an_audit_event_cannot_be_changed_or_deleted(project: Project) -> None:
    event = AuditEvent.objects.create(project=project, action="test.happened")
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        AuditEvent.objects.filter(pk=event.pk).update(action="nothing.happened")
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        AuditEvent.objects.filter(pk=event.pk).delete()


KEPT = (
    *("accounts_auditevent", "accounts_auditlink", "labeling_answer", "labeling_runanswer"),
    "labeling_writtenversion",
    *("evaluation_stagechange", "snapshots_splitaccess", "training_constitution"),
)


def test_the_application_owns_no_table_and_is_no_superuser(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select rolsuper from pg_roles where rolname = current_user")
        assert cursor.fetchone() == (False,)
        cursor.execute(
            "select relname from pg_class where relnamespace = 'public'::regnamespace"
            " and pg_has_role(relowner, 'usage')"
        )
        assert cursor.fetchall() == []


@pytest.mark.parametrize("table", KEPT)
@pytest.mark.parametrize(
    ("role", "error"), [("concord", ProgrammingError), ("concord_owner", IntegrityError)]
)
def test_what_is_kept_is_not_emptied_either(
    db: None, table: str, role: str, error: type[Exception]
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"set local role {role}")  # the owner is stopped by the trigger alone
        with pytest.raises(error):
            cursor.execute(f"truncate {table} cascade")


def test_a_frozen_snapshot_cannot_be_changed(project: Project) -> None:
    snapshot = Snapshot.objects.create(project=project, name="one", kind="preferences")
    Snapshot.objects.filter(pk=snapshot.pk).update(
        state="frozen", uri="snapshots/x", sha256="0" * 64, frozen_at=timezone.now()
    )
    with pytest.raises(IntegrityError, match="is frozen"), transaction.atomic():
        Snapshot.objects.filter(pk=snapshot.pk).update(name="two")


def test_a_frozen_snapshot_must_carry_its_hash(project: Project) -> None:
    with pytest.raises(IntegrityError, match="snapshot_frozen_has_hash"), transaction.atomic():
        Snapshot.objects.create(
            project=project,
            name="one",
            kind="preferences",
            state="frozen",
            frozen_at=timezone.now(),
        )


def test_the_tests_run_on_real_postgresql(db: None) -> None:
    assert connection.vendor == "postgresql"
    assert connection.pg_version >= 180000
