"""What a project keeps in the artifact store, by run and by dataset.

Sizes of models, files and datasets are those in the database, so they are known of any store. On a
store on this machine's disk the folders are measured too: what the database does not list (event
logs, manifests, files of attempts that failed) is the rest.
"""

from dataclasses import dataclass

from apps.accounts.models import Project
from apps.snapshots.models import Snapshot
from apps.snapshots.storage import artifact_store, private_folder_of
from apps.training.models import Artifact, Checkpoint, Run
from workers.artifacts import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceLine:
    """A run or a dataset. `rest` is None where the store cannot be measured."""

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

    @property
    def total(self) -> int:
        return self.models + self.files + self.data + (self.rest or 0)


@dataclass(frozen=True, slots=True)
class Space:
    """`lines` are the largest first. `free` is what the store's disk has left, None elsewhere."""

    lines: tuple[SpaceLine, ...]
    free: int | None

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


def project_space(project: Project) -> Space:
    """Of every run and dataset of the project, archived ones and drafts too."""
    store = artifact_store()
    lines = [*_runs(project, store), *_datasets(project, store)]
    lines.sort(key=lambda line: (-line.total, line.of, line.id))
    return Space(tuple(lines), store.disk_free())


def _runs(project: Project, store: Store) -> list[SpaceLine]:
    models: dict[str, int] = {}
    files: dict[str, int] = {}
    # An address that several rows name is one folder or file: it counts once, as the first of them.
    taken: set[str] = set()
    for sizes, rows in (
        (models, Checkpoint.objects.filter(run__project=project)),
        (files, Artifact.objects.filter(run__project=project)),
    ):
        for owner, uri, size in rows.order_by("pk").values_list("run_id", "uri", "size_bytes"):
            if uri not in taken:
                taken.add(uri)
                sizes[owner] = sizes.get(owner, 0) + size
    found = []
    for run in Run.objects.filter(project=project):
        listed = models.get(run.pk, 0), files.get(run.pk, 0)
        found.append(
            SpaceLine(
                id=run.pk,
                name=run.name,
                of="run",
                kind=run.get_kind_display(),
                state=run.get_state_display(),
                archived=run.archived_at is not None,
                models=listed[0],
                files=listed[1],
                rest=_rest(store.bytes_on_disk(f"runs/{run.pk}"), sum(listed)),
            )
        )
    return found


def _datasets(project: Project, store: Store) -> list[SpaceLine]:
    found = []
    for one in Snapshot.objects.filter(project=project):
        folders = [one.uri, private_folder_of(one.pk)] if one.uri else []
        measured = [store.bytes_on_disk(folder) for folder in folders]
        whole = None if None in measured else sum(size or 0 for size in measured)
        found.append(
            SpaceLine(
                id=one.pk,
                name=one.name,
                of="dataset",
                kind=one.get_kind_display(),
                state=one.get_state_display(),
                data=one.size_bytes,
                rest=_rest(whole, one.size_bytes),
            )
        )
    return found


def _rest(measured: int | None, listed: int) -> int | None:
    """Not negative where files that are listed were deleted by hand."""
    return None if measured is None else max(0, measured - listed)
