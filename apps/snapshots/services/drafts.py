"""A dataset in the making: its row, its process's lock, and how it ends, well or badly.

Whoever makes a dataset holds the database's advisory lock of its id for as long as that takes. When
the process dies, the database lets go of the lock, so that the sweep sees a draft that nobody makes
and says so, and no page waits for ever.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError
from apps.common.locks import lock_held
from apps.common.refusals import explain
from apps.snapshots.models import Snapshot, SnapshotRow, SnapshotText
from apps.snapshots.progress import Cancelled, progress_forget
from apps.snapshots.storage import artifact_store, folder_of, private_folder_of

log = logging.getLogger(__name__)
CANCELLED = "It was cancelled."
KILLED = (
    "The process that made it ended before it was done: it was stopped, or ran out of memory. "
    "Freeze it again."
)
_LONGEST_NAME = 120
_LOCK_SEED = 7_405_117  # apart from other locks whose number is hashed from a text
State = Snapshot.State


def name_checked(name: str) -> str:
    """Without blanks around it; `DomainError` for one that is none."""
    name = name.strip()
    if not 0 < len(name) <= _LONGEST_NAME:
        raise DomainError(f"A name of 1 to {_LONGEST_NAME} characters.", field="name")
    if "\x00" in name:
        raise DomainError("No NUL characters.", field="name")
    return name


def draft_make(
    *,
    project: Project,
    name: str,
    kind: str,
    recipe: dict[str, Any],
    user: User | None,
    queued: bool = False,
) -> Snapshot:
    """`DomainError` for a name that is none. Not queued: the caller makes it at once."""
    name = name_checked(name)
    now = timezone.now()
    return Snapshot.objects.create(
        project=project,
        name=name,
        kind=kind,
        recipe=recipe,
        created_by=user,
        **({"queued_at": now} if queued else {"started_at": now}),
    )


@contextmanager
def at_work(snapshot: Snapshot) -> Iterator[None]:
    """Holds the lock; whatever goes wrong leaves the draft failed, with the reason, and no file."""
    with alone(snapshot.pk):
        try:
            yield
        except BaseException as error:
            for folder in (folder_of(snapshot.pk), private_folder_of(snapshot.pk)):
                artifact_store().delete_tree(folder)
            snapshot.state, snapshot.error = State.FAILED, _words(snapshot, error)
            Snapshot.objects.filter(pk=snapshot.pk, state=State.DRAFT).update(
                state=snapshot.state, error=snapshot.error, updated_at=timezone.now()
            )
            raise
        finally:
            progress_forget(snapshot.pk)


def _words(snapshot: Snapshot, error: BaseException) -> str:
    if isinstance(error, DomainError):
        return error.message
    if isinstance(error, Cancelled):
        return CANCELLED
    if not isinstance(error, Exception):
        return KILLED
    log.exception("dataset %s", snapshot.pk)
    if known := explain(error):
        return known.message
    return f"An error of Concord's own stopped it ({type(error).__name__}: {error}); it is logged."


def seal(
    snapshot: Snapshot,
    folder: Path,
    *,
    counts: dict[str, Any],
    rows: Sequence[SnapshotRow],
    texts: Sequence[SnapshotText] = (),
) -> None:
    """Copy the tree into the store, then rows and state in one transaction.

    `Cancelled` when somebody wanted the end in the meantime, `Conflict` when the draft was given up
    as killed.
    """
    uri = folder_of(snapshot.pk)
    sha256, size = artifact_store().put_tree(folder, uri)
    with transaction.atomic():
        now = Snapshot.objects.select_for_update().get(pk=snapshot.pk)
        if now.state != State.DRAFT:
            raise Conflict("It was cancelled while it was being built.", code="superseded")
        if now.cancel_wanted:
            raise Cancelled
        SnapshotRow.objects.bulk_create(rows, batch_size=2_000)
        SnapshotText.objects.bulk_create(texts, batch_size=2_000)
        snapshot.state = State.FROZEN
        snapshot.uri, snapshot.sha256, snapshot.size_bytes = uri, sha256, size
        snapshot.counts, snapshot.frozen_at = counts, timezone.now()
        snapshot.save()
        AuditEvent.objects.create(
            project=snapshot.project,
            actor=snapshot.created_by,
            action="snapshot.frozen",
            subject=snapshot.pk,
            details={"name": snapshot.name, "sha256": sha256, "rows": counts["rows"]},
        )


@contextmanager
def alone(snapshot: str) -> Iterator[bool]:
    """Holds the dataset's lock, if nobody else does, for as long as the block lasts."""
    with lock_held("hashtextextended(%s, %s)", [snapshot, _LOCK_SEED]) as free:
        yield free


def is_made(snapshot: str) -> bool:
    """Whether some process holds the dataset's lock."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "select pg_try_advisory_xact_lock(hashtextextended(%s, %s))", [snapshot, _LOCK_SEED]
        )
        return not cursor.fetchone()[0]
