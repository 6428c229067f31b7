"""What a project keeps in the artifact store, by run and by dataset, and what its quota allows.

Sizes of models, files and datasets are those in the database, so they are known of any store, and a
quota counts them alone. On a store on this machine's disk the folders are measured too: what the
database does not list (event logs, manifests, files of attempts that failed) is the rest. What was
measured is kept for ten minutes.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from django.core.cache import cache
from django.db.models import Max, QuerySet, Sum

from apps.accounts.models import Project
from apps.labeling.models import StoredImage
from apps.snapshots.models import Snapshot
from apps.snapshots.storage import artifact_store, private_folder_of
from apps.training.models import Artifact, Checkpoint, Run, RunQuota
from apps.training.selectors.intermediates import (
    Removable,
    goes_at,
    removable_of,
)
from apps.training.selectors.quotas import space_quota
from workers.artifacts import Store

MEASURED_SECONDS = 600
WARNED_SHARE = 0.9  # of a quota


@dataclass(frozen=True, slots=True)
class SpaceUsed:
    """Bytes that the database lists, and the quota. A project is full when it has reached it."""

    used: int
    quota: int

    @property
    def percent(self) -> int:
        """Of the quota, rounded down."""
        return 100 * self.used // self.quota

    @property
    def is_full(self) -> bool:
        return self.used >= self.quota

    @property
    def is_nearly_full(self) -> bool:
        return self.used > WARNED_SHARE * self.quota


def space_used(project: Project) -> SpaceUsed | None:
    """None of a project without a quota. Five statements, no folder is read."""
    quota = space_quota(project)
    return None if quota is None else SpaceUsed(bytes_listed(project), quota)


def bytes_listed(project: Project) -> int:
    """What the database says that runs, datasets and images keep. A folder that several rows name
    counts once, and a checkpoint whose files were removed not at all."""
    data = Snapshot.objects.filter(project=project).aggregate(n=Sum("size_bytes"))["n"]
    images = StoredImage.objects.filter(project=project)
    return (data or 0) + sum(
        rows.aggregate(n=Sum("size"))["n"] or 0
        for rows in (_models(project), _files(project), images)
    )


def _models(project: Project) -> QuerySet[Any, Any]:
    rows = Checkpoint.objects.filter(run__project=project, files_removed_at=None).order_by()
    return rows.values("run_id", "uri").annotate(size=Max("size_bytes"))


def _files(project: Project) -> QuerySet[Any, Any]:
    rows = Artifact.objects.filter(run__project=project).order_by()
    return rows.values("run_id", "uri").annotate(size=Max("size_bytes"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceLine:
    """A run or a dataset. `rest` is None where the store cannot be measured.

    Of an ended run: `frees` are the bytes of its intermediate checkpoints and trainer states, None
    where there is nothing to remove; they go at `frees_at` by the project's retention rule. Without
    `frees_whole` the states are not measured and come on top."""

    id: str
    name: str
    of: str  # "run" or "dataset"
    kind: str
    state: str
    archived: bool = False
    models: int = 0
    files: int = 0
    data: int = 0
    rest: int | None = None
    frees: int | None = None
    frees_whole: bool = True
    frees_at: datetime | None = None

    @property
    def total(self) -> int:
        return self.models + self.files + self.data + (self.rest or 0)


@dataclass(frozen=True, slots=True)
class Space:
    """`lines` are the largest first. `free` is what the store's disk has left, None elsewhere;
    `measured_at` is of the oldest measure of a folder. `quota` and `keep_days` are the limits."""

    lines: tuple[SpaceLine, ...]
    free: int | None
    measured_at: datetime | None = None
    quota: int | None = None
    keep_days: int | None = None

    @property
    def measured(self) -> bool:
        return self.free is not None

    @property
    def models(self) -> int:
        return sum(line.models for line in self.lines)

    @property
    def files(self) -> int:
        return sum(line.files for line in self.lines)

    @property
    def data(self) -> int:
        return sum(line.data for line in self.lines)

    @property
    def rest(self) -> int | None:
        return sum(line.rest or 0 for line in self.lines) if self.measured else None

    @property
    def total(self) -> int:
        return sum(line.total for line in self.lines)

    @property
    def used(self) -> SpaceUsed | None:
        """Of the quota; what is not in the database does not count."""
        listed = self.models + self.files + self.data
        return None if self.quota is None else SpaceUsed(listed, self.quota)


@dataclass(slots=True)
class _Measures:
    """Bytes of folders, and when the oldest of these was read (Unix seconds)."""

    sizes: Mapping[str, int]
    oldest: float | None = None


def project_space(project: Project, *, measure: bool = False) -> Space:
    """Of every run and dataset of the project, archived ones and drafts too. With `measure` every
    folder is read again."""
    store = artifact_store()
    runs = list(Run.objects.filter(project=project))
    snapshots = list(Snapshot.objects.filter(project=project))
    removable = removable_of(Run.objects.filter(project=project))
    folders = chain(
        (f"runs/{run.pk}" for run in runs),
        (folder for one in removable.values() for folder in one.states),
        (folder for one in snapshots for folder in _folders(one)),
    )
    found = _measured(store, list(folders), again=measure)
    limits = RunQuota.objects.filter(project=project).first()
    sums = _sums(_models(project)), _sums(_files(project))
    keep_days = limits.keep_days if limits else None
    lines = [
        _run_line(
            run, (sums[0].get(run.pk, 0), sums[1].get(run.pk, 0)), removable, found, keep_days
        )
        for run in runs
    ]
    lines += [_dataset(one, found) for one in snapshots]
    lines.sort(key=lambda line: (-line.total, line.of, line.id))
    return Space(
        tuple(lines),
        store.disk_free(),
        measured_at=datetime.fromtimestamp(found.oldest, UTC) if found and found.oldest else None,
        quota=space_quota(project),
        keep_days=keep_days,
    )


def _measured(store: Store, folders: Collection[str], *, again: bool) -> _Measures | None:
    """None of a store elsewhere. Each folder has its own entry, so one that changes is forgotten
    alone (`folder_forget`)."""
    if not store.is_local:
        return None
    keys = {folder: _key(store.url, folder) for folder in folders}
    known = {} if again else cache.get_many(keys.values())
    now = time.time()
    fresh = {
        key: [store.bytes_on_disk(folder) or 0, now]
        for folder, key in keys.items()
        if key not in known
    }
    cache.set_many(fresh, MEASURED_SECONDS)
    both = known | fresh
    return _Measures(
        {folder: both[key][0] for folder, key in keys.items()},
        min((both[key][1] for key in keys.values()), default=None),
    )


def _key(url: str, folder: str) -> str:
    return f"space:{url}:{folder}"


def folder_forget(folder: str) -> None:
    """Something was deleted there: it, and the run that it is of, are measured again when asked."""
    url = artifact_store().url
    run = "/".join(folder.split("/")[:2])
    cache.delete_many([_key(url, folder), _key(url, run)])


def _run_line(
    run: Run,
    listed: tuple[int, int],
    removable: Mapping[str, Removable],
    found: _Measures | None,
    keep_days: int | None,
) -> SpaceLine:
    """`listed`: bytes of its models, and of its files."""
    could = removable.get(run.pk, Removable())
    states = sum(found.sizes[folder] for folder in could.states) if found else 0
    unknown = found is None and bool(could.states) and run.intermediates_removed_at is None
    frees = could.bytes_of_models + states
    return SpaceLine(
        id=run.pk,
        name=run.name,
        of="run",
        kind=run.get_kind_display(),
        state=run.get_state_display(),
        archived=run.archived_at is not None,
        models=listed[0],
        files=listed[1],
        rest=_rest(found.sizes[f"runs/{run.pk}"], sum(listed)) if found else None,
        frees=frees if frees or unknown else None,
        frees_whole=not unknown,
        frees_at=goes_at(run, keep_days) if frees or unknown else None,
    )


def _sums(
    rows: QuerySet[Any, Any],
) -> dict[str, int]:
    sums: dict[str, int] = {}
    for row in rows:
        sums[row["run_id"]] = sums.get(row["run_id"], 0) + row["size"]
    return sums


def _folders(one: Snapshot) -> list[str]:
    return [one.uri, private_folder_of(one.pk)] if one.uri else []


def _dataset(one: Snapshot, found: _Measures | None) -> SpaceLine:
    whole = sum(found.sizes[folder] for folder in _folders(one)) if found else None
    return SpaceLine(
        id=one.pk,
        name=one.name,
        of="dataset",
        kind=one.get_kind_display(),
        state=one.get_state_display(),
        data=one.size_bytes,
        rest=_rest(whole, one.size_bytes) if whole is not None else None,
    )


def _rest(measured: int, listed: int) -> int:
    """Not negative where files that are listed were deleted by hand."""
    return max(0, measured - listed)
