"""A run's name, note and tags; runs put away, and deleted with their files."""

import logging
from collections.abc import Iterable

from django.db import connection, transaction
from django.db.models import ProtectedError
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.services import audit_record
from apps.common import registry
from apps.common.errors import Conflict, DomainError, Missing
from apps.common.json_limits import storable
from apps.snapshots.storage import artifact_store
from apps.training.models import Checkpoint, FolderDeletion, Run, RunInput
from apps.training.selectors.space import folder_forget
from apps.training.services.attempts import run_locked
from apps.training.services.launching import LONGEST_NAME
from apps.training.services.sharing import copies_release
from workers.artifacts import StoreUnreachable

log = logging.getLogger("concord.training")
# Advisory lock: of sweeps that delete files, shared; of a backup, alone (apps.monitoring).
FILES_STAY = 0x66696C65
LONGEST_NOTE, LONGEST_TAG, MOST_TAGS = 5_000, 40, 20


def run_describe(
    *,
    run: Run,
    name: str | None = None,
    note: str | None = None,
    tags: Iterable[str] | None = None,
    user: User | None,
) -> Run:
    """Give a run another name, note or tags; what is None stays. Raises `DomainError` naming the
    field."""
    given: dict[str, object] = {}
    if name is not None:
        given["name"] = storable(name.strip())
        if not given["name"] or len(name.strip()) > LONGEST_NAME:
            raise DomainError(
                f"A run needs a name of 1 to {LONGEST_NAME} characters.",
                code="bad_name",
                field="name",
            )
    if note is not None:
        given["note"] = storable(note.strip())
        if len(note.strip()) > LONGEST_NOTE:
            raise DomainError(
                f"A note has at most {LONGEST_NOTE:,} characters.", code="bad_note", field="note"
            )
    if tags is not None:
        given["tags"] = tags_of(tags)
    with transaction.atomic():
        row = _locked(run)
        changed = {key: value for key, value in given.items() if getattr(row, key) != value}
        if changed:
            for key, value in changed.items():
                setattr(row, key, value)
            row.save(update_fields=[*changed, "updated_at"])
            audit_record(
                action="run.described",
                actor=user,
                project=run.project,
                subject=run.pk,
                details={"fields": ", ".join(sorted(changed))},
            )
    return row


def tags_of(given: Iterable[str]) -> list[str]:
    """Each once, in the order given, without white space around it. Raises `DomainError`."""
    tags = list(dict.fromkeys(storable(tag.strip()) for tag in given if tag.strip()))
    if len(tags) > MOST_TAGS or any(len(tag) > LONGEST_TAG or "," in tag for tag in tags):
        raise DomainError(
            f"A run has at most {MOST_TAGS} tags of at most {LONGEST_TAG} characters each, without "
            "commas.",
            code="bad_tags",
            field="tags",
        )
    return tags


def run_archive(*, run: Run, archived: bool = True, user: User | None) -> Run:
    """Put an ended run out of lists and choices, or back; nothing of it is lost. Raises `Conflict`
    for a live one."""
    with transaction.atomic():
        row = _locked(run)
        if row.is_live:
            raise Conflict(
                "It is still going on: stop or cancel it first, then archive it.", code="run_live"
            )
        if archived is not (row.archived_at is not None):
            row.archived_at = timezone.now() if archived else None
            row.save(update_fields=["archived_at", "updated_at"])
            audit_record(
                action="run.archived" if archived else "run.unarchived",
                actor=user,
                project=run.project,
                subject=run.pk,
            )
    return row


def uses_of(run: Run) -> list[str]:
    """In words, what would lose its origin or stop working if the run were deleted."""
    models = Checkpoint.objects.filter(run=run)
    readers = RunInput.objects.exclude(run=run).exclude(run__about=run)
    readers = readers.filter(run__project=run.project_id)  # copies elsewhere stand by themselves
    others = (
        readers.filter(upstream=run)
        | readers.filter(checkpoint__in=models)
        | readers.filter(artifact__run=run)
    )
    names = others.order_by("run__created_at").values_list("run__name", flat=True).distinct()
    found = [f"the run {name} starts from it or reads it" for name in dict.fromkeys(names)]
    if models.filter(status=Checkpoint.Status.APPROVED).exists():
        found.append("a model of it is approved")
    if run.checks.filter(state__in=Run.LIVE_STATES).exists():
        found.append("a check of it is going on")
    return [*found, *registry.run_uses(run)]


@transaction.atomic
def run_delete(*, run: Run, typed: str, user: User | None) -> None:
    """Delete an ended run that nothing uses, with its curves, samples, checks, models and files;
    `typed` must be its name. The audit log keeps that it was there. Raises `DomainError`."""
    row = _locked(run)
    if row.is_live:
        raise Conflict(
            "It is still going on: stop or cancel it first, then delete it.", code="run_live"
        )
    if used := uses_of(row):
        more = f", and {len(used) - 5} more" if len(used) > 5 else ""
        raise Conflict(
            f"It cannot be deleted: {'; '.join(used[:5])}{more}. Archive it instead.",
            code="run_in_use",
        )
    if typed.strip() != row.name:
        raise DomainError(f"Type the name of the run, {row.name}.", code="typed", field="typed")
    copies_release(models=Checkpoint.objects.filter(run=row))
    gone = [row.pk, *row.checks.values_list("pk", flat=True)]
    RunInput.objects.filter(run__in=gone).delete()
    audit_record(
        action="run.deleted",
        actor=user,
        project=run.project,
        subject=row.pk,
        details={"kind": row.kind, "name": row.name},
    )
    try:
        row.checks.all().delete()
        row.delete()
    except ProtectedError as error:
        names = ", ".join(sorted({str(one) for one in error.protected_objects})[:5])
        raise Conflict(
            f"It cannot be deleted: {names} needs it. Archive it instead.", code="run_in_use"
        ) from error
    FolderDeletion.objects.bulk_create(
        [FolderDeletion(folder=f"runs/{pk}") for pk in gone], ignore_conflicts=True
    )


def folders_delete(*, most: int = 5) -> int:
    """Delete files that nothing needs; how many folders are gone. What cannot be reached now is
    tried again by the next sweep. While a backup is made, everything stays."""
    done = 0
    for row in FolderDeletion.objects.order_by("created_at")[:most]:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("select pg_try_advisory_xact_lock_shared(%s)", [FILES_STAY])
            if not cursor.fetchone()[0]:
                break
            try:
                artifact_store().delete_tree(row.folder)
            except (StoreUnreachable, OSError) as error:
                log.warning("files that nothing needs stay for now: %s: %s", row.folder, error)
                break
            row.delete()
        folder_forget(row.folder)
        done += 1
    return done


def _locked(run: Run) -> Run:
    row = run_locked(run.pk)
    if row is None:
        raise Missing("There is no such run any more.", field="run")  # deleted meanwhile
    return row
