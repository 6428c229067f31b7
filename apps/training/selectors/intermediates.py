"""What of an ended run could go without losing a model that anybody needs, and what has gone.

Intermediate are: checkpoints that are neither final, best nor last, that nothing points at and that
nobody approved; and the trainer's state (`resume/`) in all that are kept, which only the same run
could read, to be resumed.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.db.models.fields.reverse_related import ForeignObjectRel

from apps.training.models import Checkpoint, Run
from apps.training.selectors.reference import BEST, FAILED, FINAL, LAST
from apps.training.selectors.runs import checkpoints
from workers.artifacts import RESUME

_KEPT_TAGS = {FINAL, BEST, LAST}
_KEPT_STATUS = {Checkpoint.Status.APPROVED, Checkpoint.Status.RETIRED}


@dataclass(frozen=True, slots=True)
class Removable:
    """`models`: checkpoints that could lose all files; `kept`: those that keep their model, and
    lose a trainer's state if they have one."""

    models: list[Checkpoint] = field(default_factory=list)
    kept: list[Checkpoint] = field(default_factory=list)

    @property
    def bytes_of_models(self) -> int:
        return sum({row.uri: row.size_bytes for row in self.models}.values())

    @property
    def states(self) -> list[str]:
        """Folders in which a trainer's state may lie, below the store."""
        rows = (row.uri for row in self.kept if row.state_removed_at is None)
        return sorted({f"{uri}/{RESUME}" for uri in rows})


@dataclass(frozen=True, slots=True)
class Removal:
    """What an ended run has lost: so many checkpoints, and the states of so many."""

    at: datetime
    by: str
    models: int
    states: int

    @property
    def words(self) -> str:
        """Such as "by the project's retention rule"."""
        return str(Checkpoint.RemovedBy(self.by).label)


def removable_of(runs: QuerySet[Run]) -> dict[str, Removable]:
    """{run: what it could lose}, of those among `runs` that have ended and have checkpoints."""
    rows = Checkpoint.objects.filter(
        run__in=runs.filter(state__in=Run.ENDED_STATES), files_removed_at=None
    )
    of_run: dict[str, list[Checkpoint]] = defaultdict(list)
    for row in rows.order_by("step", "pk"):
        of_run[row.run_id].append(row)
    needed = models_needed(rows)
    return {run: _divided(found, needed) for run, found in of_run.items()}


def models_needed(models: QuerySet[Checkpoint]) -> set[str]:
    """Ids of those that any row of the site points at: inputs of runs here and copies elsewhere,
    monitored models, incidents, reviews, rankings, outcomes, and what later apps add."""
    found: set[str] = set()
    for relation in Checkpoint._meta.get_fields(include_hidden=True):
        if isinstance(relation, ForeignObjectRel):
            name = relation.field.name
            rows = relation.related_model._base_manager.filter(**{f"{name}__in": models})
            found.update(rows.values_list(name, flat=True))
    return found


def _divided(rows: list[Checkpoint], needed: set[str]) -> Removable:
    """Of one run. A folder that a kept checkpoint names too is kept."""
    sound = [row for row in rows if FAILED not in row.tags] or rows
    newest = max(sound, key=lambda row: (row.attempt, row.step))
    folders = {
        row.uri
        for row in rows
        if row is newest
        or _KEPT_TAGS & set(row.tags)
        or row.status in _KEPT_STATUS
        or row.pk in needed
    }
    return Removable(
        models=[row for row in rows if row.uri not in folders],
        kept=[row for row in rows if row.uri in folders],
    )


def goes_at(run: Run, keep_days: int | None) -> datetime | None:
    """When retention looks at the run; None of one that it has looked at or never will."""
    if keep_days is None or run.ended_at is None or run.intermediates_removed_at is not None:
        return None
    return run.ended_at + timedelta(days=keep_days)


def removal_of(run: Run) -> Removal | None:
    """What retention or a person has removed of the run; None where nothing."""
    return _removal(Checkpoint.objects.filter(run=run))


def resume_lost(run: Run) -> Removal | None:
    """Why a run that has saved something cannot be resumed: the states of all checkpoints that it
    could continue from were removed. None where it can, or where it never saved one."""
    rows = [row for row in checkpoints(run) if FAILED not in row.tags]
    if any(row.files_removed_at is None and row.state_removed_at is None for row in rows):
        return None
    return _removal(rows)


def _removal(rows: Iterable[Checkpoint]) -> Removal | None:
    gone = [row for row in rows if row.removed_by in Checkpoint.GIVEN_UP]
    if not gone:
        return None
    dated = [(at, row.removed_by) for row in gone if (at := _gone_at(row)) is not None]
    at, by = max(dated)
    return Removal(
        at=at,
        by=by,
        models=sum(row.files_removed_at is not None for row in gone),
        states=sum(row.files_removed_at is None for row in gone),
    )


def _gone_at(row: Checkpoint) -> datetime | None:
    return row.files_removed_at or row.state_removed_at
