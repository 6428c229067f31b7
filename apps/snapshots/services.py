"""Making snapshots: freezing decided preferences, importing demonstrations and prompts, verifying.

A freeze is assembled, written and proved outside any transaction; one short transaction at its end
stores the rows and turns the draft into a frozen snapshot. Whatever fails before leaves the draft
as failed, with the reason, and no file behind.
"""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError
from apps.snapshots import selectors
from apps.snapshots.assembly import assemble
from apps.snapshots.folder import FORMAT, write_folder
from apps.snapshots.gate import Proof, prove, require_clean
from apps.snapshots.improvements import demonstration_lineage, demonstrations_from
from apps.snapshots.material import Assembly, Material
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.parsing import parse_rows
from apps.snapshots.recipe import TRAIN, SnapshotRecipe
from apps.snapshots.rows import Row, preference_rows
from apps.snapshots.store import artifact_store, folder_of
from workers.artifacts import ArtifactError

_LONGEST_NAME = 120


def snapshot_freeze(
    *, project: Project, name: str, recipe: SnapshotRecipe, user: User | None
) -> Snapshot:
    """Freeze the project's decided pairs as `recipe` says; returns the frozen snapshot.

    Errors: `DomainError` (nothing to train on, a name that is none), `LeakFound` when the gate
    refuses the files. The failed snapshot stays in the list with its reason.
    """
    snapshot = _draft(project, name, Snapshot.Kind.PREFERENCES, recipe.to_json(), user)
    with _failing_cleanly(snapshot):
        material = selectors.material(project=project, recipe=recipe)
        assembly = assemble(material, recipe)
        if not assembly.lines.get(TRAIN):
            raise DomainError(
                "Nothing is left to train on: no comparison of the training split is decided for "
                "a side under this recipe.",
                code="empty_snapshot",
                field="recipe",
            )
        with _scratch() as folder:
            proof = _write_preferences(folder, assembly, material, recipe)
            _seal(snapshot, folder, counts=_counts(assembly, proof), rows=_rows(snapshot, assembly))
    return snapshot


def snapshot_preview(*, project: Project, recipe: SnapshotRecipe) -> Assembly:
    """What a freeze would keep and drop now; writes nothing."""
    return assemble(selectors.material(project=project, recipe=recipe), recipe)


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
    with _failing_cleanly(snapshot), _scratch() as folder:
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
        write_folder(folder, {TRAIN: parsed}, _card(card, snapshot.recipe, counts))
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
    with _failing_cleanly(snapshot), _scratch() as folder:
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
        write_folder(folder, made.files, _card(card, snapshot.recipe, made.counts))
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
        with _scratch() as cache:
            artifact_store().get_tree(snapshot.uri, sha256=snapshot.sha256, cache=cache)
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
        artifact_store().delete_tree(folder_of(snapshot.pk))
        reason = error.message if isinstance(error, DomainError) else repr(error)
        snapshot.state, snapshot.error = Snapshot.State.FAILED, reason
        Snapshot.objects.filter(pk=snapshot.pk).update(state=snapshot.state, error=reason)
        raise


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """An empty folder on the disk that also holds the state: `/tmp` may be small or in memory."""
    parent = Path(settings.VAR_DIR) / "tmp"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="snapshot-") as folder:
        yield Path(folder)


def _write_preferences(
    folder: Path, assembly: Assembly, material: Material, recipe: SnapshotRecipe
) -> Proof:
    """Write the tree, then prove of what was written that nothing leaks."""
    kept = sorted({line.pair for lines in assembly.lines.values() for line in lines})
    deciding = sorted({v for lines in assembly.lines.values() for x in lines for v in x.votes})
    texts = selectors.texts_of(kept)
    recur = bool(assembly.counts["texts_recur"])
    files: dict[str, Sequence[Row]] = {
        name: list(preference_rows(lines, assembly.pairs, texts, texts_recur=recur))
        for name, lines in assembly.lines.items()
    }
    card = {
        "kind": "preferences",
        "title": "Preference pairs",
        **asdict(selectors.provenance(pairs=kept, votes=deciding)),
    }
    counts = {**assembly.counts, "warnings": list(assembly.warnings)}
    write_folder(folder, files, _card(card, recipe.to_json(), counts))
    proof = prove(
        folder,
        assembly.lines,
        selectors.vote_facts(deciding),
        recipe,
        split_by=str(assembly.counts["split_by"]),
        barred=material.barred,
    )
    require_clean(proof)
    return proof


def _card(about: dict[str, Any], recipe: dict[str, Any], counts: dict[str, Any]) -> dict[str, Any]:
    numbers = {name: value for name, value in counts.items() if name != "warnings"}
    return {
        "format": FORMAT,
        "recipe": recipe,
        "counts": numbers,
        "warnings": counts["warnings"],
        **about,
    }


def _counts(assembly: Assembly, proof: Proof) -> dict[str, Any]:
    checked = {name: value for name, value in asdict(proof).items() if name != "leaks"}
    return {**assembly.counts, "warnings": list(assembly.warnings), "leak_gate": checked}


def _rows(snapshot: Snapshot, assembly: Assembly) -> list[SnapshotRow]:
    """One row per (comparison, file) and one per drop. A file's ordinals count its first lines."""
    rows: dict[tuple[int, str], SnapshotRow] = {}
    for split, lines in assembly.lines.items():
        for ordinal, line in enumerate(lines):
            known = rows.get((line.pair, split))
            if known is None:
                rows[line.pair, split] = SnapshotRow(
                    snapshot=snapshot,
                    comparison_id=line.pair,
                    split=split,
                    ordinal=ordinal,
                    winner=line.winner,
                    share=line.share,
                    vote_ids=list(line.votes),
                )
                continue
            # Several held-out votes on one comparison: the row names them all, and a winner and
            # a share only while they agree.
            known.vote_ids += line.votes
            if known.winner != line.winner:
                known.winner, known.share = "", None
    dropped = [
        SnapshotRow(
            snapshot=snapshot,
            comparison_id=drop.pair,
            vote_ids=list(drop.votes),
            dropped_because=drop.reason,
        )
        for drop in assembly.drops
    ]
    return [*rows.values(), *dropped]


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
