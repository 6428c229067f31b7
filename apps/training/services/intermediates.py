"""Intermediate checkpoints and trainer states of ended runs, removed after a time or by hand.

Rows stay and say when. Files are deleted as those of deleted runs are: their folders are written
down in the same transaction (`FolderDeletion`), and the sweep empties them, again and again until
they are gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import DurationField, Exists, ExpressionWrapper, F, OuterRef, Value
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, Unavailable
from apps.snapshots.storage import artifact_store
from apps.training.models import Checkpoint, FolderDeletion, Run
from apps.training.selectors.intermediates import Removable, removable_of
from apps.training.services.attempts import run_locked
from workers.artifacts import RESUME, StoreUnreachable


@dataclass(frozen=True, slots=True)
class Removed:
    """So many checkpoints, the trainer's state of so many others, and the bytes of all."""

    models: int = 0
    states: int = 0
    size: int = 0


def intermediates_measure(*, run: Run) -> Removed:
    """What `intermediates_remove` would remove; nothing of a live run. Raises `Unavailable` where
    the store is away."""
    found = removable_of(Run.objects.filter(pk=run.pk)).get(run.pk)
    if found is None:
        return Removed()
    return _removed(found, _sizes_now(run))


def intermediates_remove(*, run: Run, user: User | None) -> Removed:
    """By hand, whatever the project's rule says. Raises `Conflict` for a live run, and while a run
    is launched that reads one of its checkpoints; `Unavailable` where the store is away."""
    sizes = _sizes_now(run)
    with transaction.atomic():
        row = run_locked(run.pk)
        if row is None or row.is_live:
            raise Conflict(
                "It is still going on: its intermediate files can be removed once it has ended.",
                code="run_live",
            )
        removed = _remove(row, sizes, by=Checkpoint.RemovedBy.PERSON, user=user)
        if removed is None:
            raise Conflict(
                "Somebody works with one of its checkpoints right now; try again.",
                code="checkpoint_busy",
            )
    return removed


def intermediates_expire(*, now: datetime | None = None, most: int = 5) -> int:
    """By the retention rules of all projects, a few runs at a time; how many were looked at. Raises
    `StoreUnreachable`: then the next sweep continues."""
    now = now or timezone.now()
    kept_for = ExpressionWrapper(
        F("project__run_quota__keep_days") * Value(timedelta(days=1)), output_field=DurationField()
    )
    due = Run.objects.filter(
        Exists(Checkpoint.objects.filter(run=OuterRef("pk"))),
        state__in=Run.ENDED_STATES,
        intermediates_removed_at=None,
        project__run_quota__keep_days__isnull=False,
        ended_at__lt=Value(now) - kept_for,
    )
    done = 0
    for run in due.order_by("ended_at")[:most]:
        sizes = _state_sizes(run)
        with transaction.atomic():
            row = run_locked(run.pk, skip_locked=True)
            # Somebody may have resumed it, or lifted the rule, since it was found.
            if row is not None and due.filter(pk=row.pk).exists():
                by = Checkpoint.RemovedBy.RETENTION
                done += _remove(row, sizes, by=by, user=None) is not None
    return done


def _sizes_now(run: Run) -> dict[str, int]:
    try:
        return _state_sizes(run)
    except StoreUnreachable as error:
        raise Unavailable(f"{error}.") from error


def _removed(found: Removable, sizes: Mapping[str, int]) -> Removed:
    states = [sizes[folder] for folder in found.states if sizes.get(folder)]
    return Removed(len(found.models), len(states), found.bytes_of_models + sum(states))


def _state_sizes(run: Run) -> dict[str, int]:
    """{folder: bytes} of its trainer states. Before anything is locked: a store takes its time."""
    found = removable_of(Run.objects.filter(pk=run.pk)).get(run.pk)
    store = artifact_store()
    return {folder: store.bytes_below(folder) for folder in found.states} if found else {}


def _remove(run: Run, sizes: Mapping[str, int], *, by: str, user: User | None) -> Removed | None:
    """The run is locked by the caller. A launch holds the checkpoints that it reads until it has
    stored its inputs (`kinds.models_hold`): while one does, nothing is done and None returned."""
    rows = Checkpoint.objects.filter(run=run)
    free = rows.select_for_update(skip_locked=True, of=("self",)).order_by("pk")
    if len(free) < rows.count():
        return None
    found = removable_of(Run.objects.filter(pk=run.pk)).get(run.pk)
    now = timezone.now()
    run.intermediates_removed_at = now
    run.save(update_fields=["intermediates_removed_at", "updated_at"])
    if found is None:
        return Removed()
    stripped = [row for row in found.kept if sizes.get(f"{row.uri}/{RESUME}")]
    for row in stripped:
        size = max(0, row.size_bytes - sizes[f"{row.uri}/{RESUME}"])
        rows.filter(pk=row.pk).update(state_removed_at=now, removed_by=by, size_bytes=size)
    rows.filter(pk__in=[row.pk for row in found.models]).update(files_removed_at=now, removed_by=by)
    folders = {row.uri for row in found.models} | {f"{row.uri}/{RESUME}" for row in stripped}
    FolderDeletion.objects.bulk_create(
        [FolderDeletion(folder=folder) for folder in sorted(folders)], ignore_conflicts=True
    )
    removed = _removed(found, sizes)
    if removed.models or removed.states:
        audit_record(
            action="run.intermediates_removed",
            actor=user,
            project=run.project,
            subject=run.pk,
            details={"models": removed.models, "states": removed.states, "bytes": removed.size},
        )
    return removed
