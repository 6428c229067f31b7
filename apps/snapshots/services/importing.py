"""Datasets of what was labelled or written elsewhere: rows given by API, or the file of an import.

Nobody voted here, so no comparison stands behind their rows. A file's dataset is frozen in the
transaction that ends its import: a worker that is killed leaves none, and the import starts again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.db import transaction

from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.labeling.models import ImportJob
from apps.labeling.services.importing import FileRows
from apps.labeling.services.results import RowProblem, RowsRefused
from apps.snapshots.assembling.imported import (
    BY_HASH,
    REPEATS,
    SHARES,
    Given,
    Parsed,
    Placed,
    parse_rows,
    place_rows,
)
from apps.snapshots.assembling.rows import prompt_text
from apps.snapshots.formats.folder import write_folder
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import TRAIN
from apps.snapshots.selectors.prompts import held_out_by, held_out_texts
from apps.snapshots.services.drafts import at_work, draft_make, seal
from apps.snapshots.services.writing import card_of
from apps.snapshots.storage import artifact_store, folder_of, scratch

Kind, State = Snapshot.Kind, Snapshot.State
Finish = Callable[[dict[str, Any]], None]
ELSEWHERE = "elsewhere"  # of a snapshot's counts: where its labels were given


def snapshot_import(
    *,
    project: Project,
    kind: str,
    name: str,
    rows: Iterable[Mapping[str, Any]],
    user: User | None = None,
) -> Snapshot:
    """Freeze rows made elsewhere. All rows or none: `DomainError` names the bad row.

    Demonstrations: `prompt` (text or messages) and `response`, or `messages`; prompts: `prompt`;
    preferences: `prompt`, `response_a`, `response_b`, `gold` (a or b) and perhaps `category`;
    stepwise: `prompt`, `completions`, `labels` and perhaps `roles`. All may carry `group`,
    `source`, `licence`, `id`, `metadata` and `split`. Rows that hold nothing out are split by hash
    (`assembling.imported`). Rows that repeat an earlier one are dropped and counted.
    """
    if kind not in (Kind.DEMONSTRATIONS, Kind.PROMPTS, Kind.PREFERENCES, Kind.STEPWISE):
        raise DomainError(f"A dataset of kind '{kind}' cannot be imported.", field="kind")
    parsed = parse_rows(kind, rows)
    placed = place_rows(parsed)
    if parsed.refused:
        raise parsed.refused[0]
    require_rows(placed)
    snapshot = draft_make(
        project=project, name=name, kind=kind, recipe={"imported": True}, user=user
    )
    placed_freeze(snapshot, placed, parsed.dropped)
    return snapshot


def dataset_from_file(
    *,
    job: ImportJob,
    found: FileRows,
    tell: Callable[[str, int, int], None],
    finish: Finish | None,
) -> tuple[dict[str, Any], list[RowProblem]]:
    """(what a check or an import found, what is wrong with its rows) for the job's page.

    finish: given the result in the transaction that freezes the dataset; None to check alone.
    Raises `RowsRefused` for bad rows that were not to be left out, and `DomainError` for training
    rows that other datasets hold out.
    """
    total = len(found.comparisons)
    parsed = parse_rows(
        job.makes,
        found.comparisons,
        numbers=found.numbers,
        tell=lambda n: tell("Checking the rows", n, total),
    )
    tell("Comparing prompts", 0, 0)
    placed = place_rows(parsed, half=job.settings.get("half", ""))
    overlap = leave_out_overlap(job.project, placed, parsed)
    places = {number: place for place, number in enumerate(found.numbers)}
    problems = [RowProblem(e.row or 0, _field(e, found, places), e.details) for e in parsed.refused]
    report = _report(job, found, parsed, placed, overlap)
    if finish is None:
        return report, problems
    if (problems or found.problems) and job.settings.get("on_error") != "skip":
        bad = [*found.problems, *found.in_own_words(problems)]
        raise RowsRefused(sorted(bad, key=lambda p: p.row), n_rows=found.n_records)
    if overlap and job.settings.get("overlap") != "skip":
        names = ", ".join(f"'{one['name']}'" for one in overlap)
        raise DomainError(
            f"Training rows ask what {names} holds out. Check the file again.",
            code="held_out_elsewhere",
        )
    require_rows(placed)
    _forget_attempts(job)
    tell("Writing the files", 0, 0)
    snapshot = draft_make(
        project=job.project,
        name=job.settings.get("name") or job.file_name[:120],
        kind=job.makes,
        recipe={"imported": True, "import": job.pk},
        user=job.created_by,
    )
    about = {"file": job.file_name, "file_sha256": job.file_sha256}
    placed_freeze(
        snapshot,
        placed,
        parsed.dropped,
        about=about,
        finish=lambda: finish(report | {"snapshot": snapshot.pk}),
    )
    return report, problems


def _field(error: DomainError, found: FileRows, places: Mapping[int, int]) -> str:
    """The field of a bad row; an answer of a file of chosen and rejected is called that."""
    name = error.field or "row"
    if "chosen" not in found.mapping or not name.startswith("response_"):
        return name
    row = found.comparisons[places[error.row or 0]]
    return "chosen" if name.endswith(str(row.get("gold"))) else "rejected"


def _forget_attempts(job: ImportJob) -> None:
    """Drafts of attempts that were cut off."""
    cut_off = Snapshot.objects.filter(project=job.project_id, recipe__import=job.pk)
    for draft in cut_off.exclude(state=State.FROZEN):
        artifact_store().delete_tree(folder_of(draft.pk))
        draft.delete()


def leave_out_overlap(project: Project, placed: Placed, parsed: Parsed) -> list[dict[str, Any]]:
    """Takes training rows out whose prompts other datasets of the project hold out, or nearly:
    [{"snapshot", "name", "rows"}]."""
    asked = [prompt_text(one.prompt) for one in placed.files.get(TRAIN, ())]
    held_by = held_out_by(asked, held_out_texts(project=project))
    if not held_by:
        return []
    rows = placed.files[TRAIN]
    placed.files[TRAIN][:] = [
        one for one, text in zip(rows, asked, strict=True) if text not in held_by
    ]
    counts = Counter(held_by[text] for text in asked if text in held_by)
    for snapshot, n in counts.items():
        parsed.dropped[f"its prompt is held out in {snapshot.name}"] += n
    return [{"snapshot": one.pk, "name": one.name, "rows": n} for one, n in counts.items()]


def _report(
    job: ImportJob,
    found: FileRows,
    parsed: Parsed,
    placed: Placed,
    overlap: list[dict[str, Any]],
) -> dict[str, Any]:
    parts = [
        {
            "split": name,
            "share": SHARES.get(name),
            "groups": placed.units.get(name, 0),  # a suite has no training rows
            "rows": len(rows),
        }
        for name, rows in placed.files.items()
    ]
    refused = {problem.row for problem in found.problems} | {one.row for one in parsed.refused}
    return {
        "snapshot_kind": job.makes,
        "n_records": found.n_records,
        "n_comparisons": len(found.comparisons),
        "n_created": sum(part["rows"] for part in parts),
        "n_unchanged": parsed.dropped[REPEATS],
        "n_refused": len(refused),
        "n_review": 0,
        "dropped": dict(parsed.dropped),
        "overlap": overlap,
        "split_by": placed.by,
        "splits": {
            "by_hash": placed.by == BY_HASH,
            "parts": parts,
            "warnings": list(placed.warnings),
        },
        "votes": {},
    }


def _rows(placed: Placed) -> Iterable[Given]:
    return (one for rows in placed.files.values() for one in rows)


def require_rows(placed: Placed) -> None:
    measures = any("check" in one.row or "category" in one.row for one in _rows(placed))
    if not placed.files.get(TRAIN) and not measures:
        raise DomainError("There are no rows to import.", code="empty_snapshot", field="rows")


def placed_freeze(
    snapshot: Snapshot,
    placed: Placed,
    dropped: Mapping[str, int],
    *,
    about: Mapping[str, Any] | None = None,
    finish: Callable[[], None] | None = None,
) -> None:
    """Write and seal the draft; `finish` is called in the transaction that seals it.

    about: what else the card and the counts say; it stands in place of what an import says there.
    """
    with at_work(snapshot), scratch() as folder:
        files = {name: [one.row for one in rows] for name, rows in placed.files.items()}
        rows = [row for of in files.values() for row in of]
        counts = {
            "rows": {name: len(of) for name, of in files.items()},
            "groups": dict(placed.units),
            "split_by": placed.by,
            "dropped": dict(dropped),
            "warnings": list(placed.warnings),
            "checks": sum("check" in row for row in rows),
            "categories": len({row["category"] for row in rows if "category" in row}),
        }
        card = {
            "kind": snapshot.kind,
            "title": snapshot.get_kind_display().capitalize(),
            "labelled": ELSEWHERE,
            "licences": sorted({row["licence"] for row in rows} - {""}),
            "sources": sorted({row["source"] for row in rows} - {""}),
            **(about or {}),
        }
        write_folder(folder, files, card_of(card, snapshot.recipe, counts))
        with transaction.atomic():
            seal(snapshot, folder, counts=card | counts, rows=[])
            if finish is not None:
                finish()
