"""The skew report of what would be frozen, and of what was.

A frozen dataset's report lies in its folder as `report.json`, its hash in the dataset's counts.
It is not one of the hashed files: those are equal on every machine, and the last digits of a fitted
model are not. Datasets without one get theirs from their rows when somebody asks.
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

from django.core.cache import cache

from apps.accounts.models import Project
from apps.agreement.models import Ruling
from apps.common.errors import Conflict
from apps.labeling.models import Comparison, Vote
from apps.snapshots import selectors
from apps.snapshots.assembling.assembly import assemble
from apps.snapshots.assembling.material import Assembly
from apps.snapshots.gathering import material_of
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.report_facts import material_of_assembly, material_of_snapshot
from apps.snapshots.reports import PARTS, VERSION, prompts_build, report_build
from apps.snapshots.store import artifact_store, folder_of
from workers.artifacts import ArtifactError

logger = logging.getLogger(__name__)

FILE = "report.json"
_KEPT_PREVIEW, _KEPT_FROZEN = 600, 24 * 3600  # seconds

Report = dict[str, Any]


def report_of(*, project: Project, assembly: Assembly, parts: Iterable[str] = PARTS) -> Report:
    """The report of an assembly, as it is shown before freezing and stored in the folder."""
    return report_build(material_of_assembly(project=project, assembly=assembly), parts=parts)


def report_store(*, snapshot: Snapshot, assembly: Assembly) -> dict[str, Any]:
    """Write the report into the snapshot's folder; returns what its counts keep of it.

    {"report": {"sha256", "levels": {level: checks}}}, or {} where the report failed: a dataset is
    not worth less for that, and whoever asks for the report later sees the error.
    """
    try:
        made = report_of(project=snapshot.project, assembly=assembly)
    except Exception:
        logger.exception("no skew report of dataset %s", snapshot.pk)
        return {}
    text = json.dumps(made, sort_keys=True, ensure_ascii=False).encode()
    sha256 = artifact_store().write_bytes(f"{folder_of(snapshot.pk)}/{FILE}", text)
    levels = Counter(check["level"] for check in made["checks"])
    return {"report": {"sha256": sha256, "levels": dict(sorted(levels.items()))}}


def report_preview(*, project: Project, recipe: SnapshotRecipe, part: str) -> Report:
    """A part of the report of what a freeze would keep now; errors as in `assemble`."""
    key = _preview_key(project, recipe, part)
    found = cache.get(key)
    if found is None:
        assembly = assemble(material_of(project=project, recipe=recipe), recipe)
        found = report_of(project=project, assembly=assembly, parts=[part])
        cache.set(key, found, timeout=_KEPT_PREVIEW)
    return found


def report_read(*, snapshot: Snapshot) -> Report | None:
    """The report stored with a frozen dataset, or made from its rows; None where there is none.

    Demonstrations alone have no report: their prompts are looked at beside those for RL.
    `Conflict` (report_damaged) when the stored report is missing or changed.
    """
    if snapshot.state != Snapshot.State.FROZEN:
        return None
    stored = snapshot.counts.get("report")
    if not stored:
        return _made(snapshot)
    try:
        text = artifact_store().read_bytes(f"{snapshot.uri}/{FILE}", sha256=stored["sha256"])
    except ArtifactError as error:
        raise Conflict(
            f"The stored report is not what was frozen: {error}.", code="report_damaged"
        ) from error
    return json.loads(text)


def _made(snapshot: Snapshot) -> Report | None:
    if snapshot.kind == Snapshot.Kind.DEMONSTRATIONS:
        return None
    beside = _demonstrations(snapshot) if snapshot.kind == Snapshot.Kind.PROMPTS else None
    key = f"snapshots:report:{VERSION}:{snapshot.pk}:{beside.pk if beside else ''}"
    found = cache.get(key)
    if found is None:
        found = (
            _prompts(snapshot, beside)
            if snapshot.kind == Snapshot.Kind.PROMPTS
            else report_build(material_of_snapshot(snapshot=snapshot))
        )
        cache.set(key, found, timeout=_KEPT_FROZEN)
    return found


def _demonstrations(snapshot: Snapshot) -> Snapshot | None:
    """The newest frozen demonstrations of the project."""
    return (
        selectors.snapshot_list(project=snapshot.project)
        .filter(kind=Snapshot.Kind.DEMONSTRATIONS, state=Snapshot.State.FROZEN)
        .first()
    )


def _prompts(snapshot: Snapshot, beside: Snapshot | None) -> Report:
    asked, topics = _asked(snapshot)
    known, known_topics = _asked(beside) if beside else ([], [])
    return prompts_build(asked, topics, known, known_topics, sft_name=beside.name if beside else "")


def _asked(snapshot: Snapshot) -> tuple[list[str], list[str]]:
    """The prompts of the training file, and the group of each."""
    rows = artifact_store().lines(f"{snapshot.uri}/train.jsonl")
    groups = [str(row.get("group") or row.get("source") or "") for row in rows]
    return selectors.prompt_texts(snapshot), groups


def _preview_key(project: Project, recipe: SnapshotRecipe, part: str) -> str:
    """Changes with whatever the assembly reads: votes, comparisons and rulings."""
    votes = Vote.objects.filter(project=project).order_by("-pk").values_list("pk", flat=True)
    rulings = Ruling.objects.filter(project=project).order_by("-pk").values_list("pk", flat=True)
    states = Comparison.objects.filter(project=project).order_by("-updated_at")
    newest = states.values_list("updated_at", flat=True).first()
    state = (recipe.to_json(), votes.first(), rulings.first(), str(newest))
    digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
    return f"snapshots:report-preview:{VERSION}:{project.pk}:{part}:{digest}"
