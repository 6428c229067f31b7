"""Datasets of pairs without labels, for a judge to be asked about: no vote can be read from one."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.snapshots.formats.folder import write_folder
from apps.snapshots.models import Snapshot
from apps.snapshots.services.drafts import at_work, draft_make, seal
from apps.snapshots.services.writing import card_of
from apps.snapshots.storage import scratch

FILE = "pairs"  # of the folder: pairs.jsonl
COLUMNS = ("pair", "prompt", "response_a", "response_b")


def pairs_freeze(
    *, project: Project, name: str, rows: Sequence[dict[str, Any]], user: User | None
) -> Snapshot:
    """Freeze rows of `pair` (its id), `prompt`, `response_a` and `response_b` (messages). The same
    rows in a project are one dataset. `DomainError` where there are none."""
    if not rows:
        raise DomainError("There is no pair to be asked about.", code="no_pairs", field="scope")
    kept = [{column: row[column] for column in COLUMNS} for row in rows]
    content = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
    recipe = {"pairs": content}
    known = Snapshot.objects.filter(
        project=project, kind=Snapshot.Kind.PAIRS, recipe=recipe, state=Snapshot.State.FROZEN
    ).first()
    if known is not None:
        return known
    snapshot = draft_make(
        project=project, name=name, kind=Snapshot.Kind.PAIRS, recipe=recipe, user=user
    )
    counts: dict[str, Any] = {"rows": {FILE: len(kept)}, "warnings": []}
    card = {
        "kind": snapshot.kind,
        "title": "Pairs without labels",
        "licences": [],
        "sources": [],
    }
    with at_work(snapshot), scratch() as folder:
        write_folder(folder, {FILE: kept}, card_of(card, recipe, counts))
        seal(snapshot, folder, counts=counts | card, rows=[])
    return snapshot
