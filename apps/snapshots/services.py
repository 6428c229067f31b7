"""Making snapshots: freezing decided preferences, importing demonstrations and prompts, verifying.

A freeze is assembled, written and proved outside any transaction; one short transaction at its end
stores the rows and turns the draft into a frozen snapshot. Whatever fails before leaves the draft
as failed, with the reason, and no file behind.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError
from apps.snapshots import progress, selectors
from apps.snapshots.assembly import assemble
from apps.snapshots.folder import write_folder
from apps.snapshots.gathering import material_of
from apps.snapshots.improvements import demonstration_lineage, demonstrations_from
from apps.snapshots.material import Assembly
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.parsing import parse_rows
from apps.snapshots.recipe import KTO, TRAIN, SnapshotRecipe
from apps.snapshots.store import artifact_store, folder_of, private_folder_of
from apps.snapshots.writing import card_of, preferences_write, rows_of, scratch
from workers.artifacts import ArtifactError

_LONGEST_NAME = 120


def snapshot_freeze(
    *, project: Project, name: str, recipe: SnapshotRecipe, user: User | None
) -> Snapshot:
    """Freeze the project's decided pairs as `recipe` says; returns the frozen snapshot.

    Errors: `DomainError` (nothing to train on, a name that is none, anonymous votes where
    annotators are held out), `LeakFound` when the gate refuses the files. The failed snapshot stays
    in the list with its reason.
    """
    snapshot = _draft(project, name, _kind_of(recipe), recipe.to_json(), user)
    with _failing_cleanly(snapshot):
        _freeze(snapshot, recipe, progress.silent)
    return snapshot


def snapshot_preview(*, project: Project, recipe: SnapshotRecipe) -> Assembly:
    """What a freeze would keep and drop now; writes nothing. Errors as in `snapshot_freeze`, but
    for those of the files."""
    return assemble(material_of(project=project, recipe=recipe), recipe)


def snapshot_import(
    *,
    project: Project,
    kind: str,
    name: str,
    rows: Iterable[Mapping[str, Any]],
    user: User | None = None,
) -> Snapshot:
    """Freeze given demonstrations or prompts. All rows or none: `DomainError` names the bad row.

    Demonstrations: `prompt` (text or messages) and `response`, or `messages`; prompts: `prompt`.
    Both may carry `group`, `source` and `licence`. Rows that repeat an earlier one are dropped and
    counted.
    """
    if kind not in (Snapshot.Kind.DEMONSTRATIONS, Snapshot.Kind.PROMPTS):
        raise DomainError(f"A dataset of kind '{kind}' cannot be imported.", field="kind")
    parsed, repeated = parse_rows(kind, rows)
    snapshot = _draft(project, name, kind, {"imported": True}, user)
    with _failing_cleanly(snapshot), scratch() as folder:
        counts = {
            "rows": {TRAIN: len(parsed)},
            "dropped": {"repeats an earlier row": repeated} if repeated else {},
            "warnings": [],
        }
        card = {
            "kind": kind,
            "title": snapshot.get_kind_display().capitalize(),
            "licences": sorted({row["licence"] for row in parsed} - {""}),
            "sources": sorted({row["source"] for row in parsed} - {""}),
        }
        write_folder(folder, {TRAIN: parsed}, card_of(card, snapshot.recipe, counts))
        _seal(snapshot, folder, counts=counts | card, rows=[])
    return snapshot


def demonstrations_freeze(*, project: Project, name: str, user: User | None) -> Snapshot:
    """Freeze the improved answers of the project's votes as demonstrations.

    They are split by group as its preferences are, by the default seed and shares. `DomainError`
    (empty_snapshot) when nobody has improved an answer, or none of the training split.
    """
    recipe = selectors.recipe_default(project=project)
    about = {"from": "improved answers", "seed": recipe.seed, "splits": dict(recipe.shares)}
    snapshot = _draft(project, name, Snapshot.Kind.DEMONSTRATIONS, about, user)
    with _failing_cleanly(snapshot), scratch() as folder:
        made = demonstrations_from(project=project, recipe=recipe)
        if not made.files.get(TRAIN):
            raise DomainError(
                "No vote of the training split came with an improved answer.",
                code="empty_snapshot",
                field="from_improvements",
            )
        rows = [row for file in made.files.values() for row in file]
        card = {
            "kind": "demonstrations",
            "title": "Demonstrations from improved answers",
            "licences": sorted({row["licence"] for row in rows} - {""}),
            "sources": sorted({row["source"] for row in rows} - {""}),
        }
        write_folder(folder, made.files, card_of(card, snapshot.recipe, made.counts))
        lineage = demonstration_lineage(snapshot, made)
        _seal(snapshot, folder, counts=made.counts | card, rows=lineage)
    return snapshot


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether every file still has the content it was frozen with."""

    ok: bool
    problem: str = ""


def snapshot_verify(*, snapshot: Snapshot) -> Verification:
    """Read every file again and compare it with the manifest, and the manifest with our hash."""
    if snapshot.state != Snapshot.State.FROZEN:
        raise Conflict("Only a frozen dataset can be verified.", code="not_frozen")
    try:
        with scratch() as cache:
            artifact_store().get_tree(snapshot.uri, sha256=snapshot.sha256, cache=cache)
            if snapshot.private_sha256:
                apart = private_folder_of(snapshot.pk)
                artifact_store().get_tree(apart, sha256=snapshot.private_sha256, cache=cache)
    except ArtifactError as error:
        return Verification(False, str(error))
    return Verification(True)


# --- the steps -----------------------------------------------------------------------------------


def _draft(
    project: Project, name: str, kind: str, recipe: dict[str, Any], user: User | None
) -> Snapshot:
    name = name.strip()
    if not 0 < len(name) <= _LONGEST_NAME:
        raise DomainError(f"A name of 1 to {_LONGEST_NAME} characters.", field="name")
    return Snapshot.objects.create(
        project=project, name=name, kind=kind, recipe=recipe, created_by=user
    )


@contextlib.contextmanager
def _failing_cleanly(snapshot: Snapshot) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        for folder in (folder_of(snapshot.pk), private_folder_of(snapshot.pk)):
            artifact_store().delete_tree(folder)
        reason = error.message if isinstance(error, DomainError) else repr(error)
        snapshot.state, snapshot.error = Snapshot.State.FAILED, reason
        Snapshot.objects.filter(pk=snapshot.pk).update(state=snapshot.state, error=reason)
        raise


def _kind_of(recipe: SnapshotRecipe) -> str:
    return Snapshot.Kind.UNPAIRED if recipe.ties == KTO else Snapshot.Kind.PREFERENCES


def _freeze(snapshot: Snapshot, recipe: SnapshotRecipe, tell: progress.Tell) -> None:
    """Assemble, write, prove, seal; whatever goes wrong is raised before anything is kept."""
    tell(progress.READ)
    material = material_of(project=snapshot.project, recipe=recipe)
    tell(progress.DECIDE)
    assembly = assemble(material, recipe)
    if not assembly.lines.get(TRAIN):
        raise DomainError(
            "Nothing is left to train on: no comparison of the training split is decided for "
            "a side under this recipe.",
            code="empty_snapshot",
            field="recipe",
        )
    with scratch() as folder:
        written = preferences_write(
            folder, snapshot, assembly, recipe, barred=material.barred, tell=tell
        )
        tell(progress.STORE)
        snapshot.private_sha256 = written.private_sha256
        counts = {
            **assembly.counts,
            "warnings": list(assembly.warnings),
            "leak_gate": {k: v for k, v in asdict(written.proof).items() if k != "leaks"},
        }
        _seal(snapshot, folder, counts=counts, rows=rows_of(snapshot, assembly, recipe))


def _seal(
    snapshot: Snapshot, folder: Path, *, counts: dict[str, Any], rows: Sequence[SnapshotRow]
) -> None:
    """Copy the tree into the store, then rows and state in one transaction."""
    uri = folder_of(snapshot.pk)
    sha256, size = artifact_store().put_tree(folder, uri)
    with transaction.atomic():
        SnapshotRow.objects.bulk_create(rows, batch_size=2_000)
        snapshot.state = Snapshot.State.FROZEN
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
