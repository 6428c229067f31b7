"""the bias report of what would be frozen, and of what was.

A frozen dataset's report lies in its folder as `report.json`, its hash in the dataset's counts.
It is not one of the hashed files: those are equal on every machine, and the last digits of a fitted
model are not. Datasets without one get theirs from their rows when somebody asks.
"""

import hashlib
import json
import logging
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.core.cache import cache

from apps.accounts.models import Project
from apps.agreement.models import Ruling
from apps.common.errors import Conflict
from apps.labeling.models import Comparison, LabelingSettings, Response, Vote
from apps.snapshots.assembling.assembly import assemble
from apps.snapshots.assembling.material import Assembly, SplitLine
from apps.snapshots.assembling.rows import argument_key
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import HELDOUT_ANNOTATORS, TRAIN, SnapshotRecipe
from apps.snapshots.reports import (
    PARTS,
    VERSION,
    ReportMaterial,
    ReportPair,
    ReportVote,
    prompts_build,
    report_build,
)
from apps.snapshots.selectors import snapshots
from apps.snapshots.selectors.prompts import public_rows, texts_asked
from apps.snapshots.selectors.snapshots import parts
from apps.snapshots.services.gathering import material_of
from apps.snapshots.storage import artifact_store, folder_of
from measures.messages import plain
from workers.artifacts import ArtifactError

# What a report is computed from, read from the database: texts, circumstances and votes.

# A random part of a file says as much as a longer wait for all of it.
MOST_PAIRS = 20_000
_SIDES = ("a", "b")
_MIRROR = {"a": "b", "b": "a"}


def material_of_assembly(*, project: Project, assembly: Assembly) -> ReportMaterial:
    """What would be frozen, or is being frozen now."""
    lines = [line for rows in assembly.lines.values() for line in rows]
    return _material(project, lines)


def material_of_snapshot(*, snapshot: Snapshot) -> ReportMaterial:
    """What was frozen: winners and votes as they were then."""
    rows = (
        SnapshotRow.objects.filter(snapshot=snapshot)
        .exclude(split="")
        .order_by("split", "ordinal")
        .values_list("comparison_id", "split", "winner", "share", "vote_ids")
    )
    lines = [
        SplitLine(pair, split, winner, share or 0.0, tuple(votes))
        for pair, split, winner, share, votes in rows
    ]
    return _material(snapshot.project, lines)


def _material(project: Project, lines: Iterable[SplitLine]) -> ReportMaterial:
    """Of rows decided for a side; held-out annotators' single votes are on pairs of other files."""
    usable = [x for x in lines if x.winner in _SIDES and x.split != HELDOUT_ANNOTATORS]
    kept = _enough(usable)
    winners = {line.pair: line.winner for line in kept}
    facts = _facts(list(winners))
    pairs = tuple(_pair(line, facts[line.pair]) for line in kept if line.pair in facts)
    settings = LabelingSettings.objects.filter(project=project).first() or LabelingSettings()
    criteria = {str(c.get("key", "")): str(c.get("label", "")) for c in settings.criteria}
    votes = _votes({v for line in kept for v in line.votes}, winners)
    n_train = sum(line.split == TRAIN for line in usable)
    return ReportMaterial(pairs, votes, criteria, tuple(settings.reasons), n_train)


def _enough(lines: Sequence[SplitLine]) -> list[SplitLine]:
    """All, or of each file MOST_PAIRS drawn with a fixed seed, in their order."""
    files: dict[str, list[SplitLine]] = {}
    for line in lines:
        files.setdefault(line.split, []).append(line)
    kept: list[SplitLine] = []
    for rows in files.values():
        drawn: Sequence[int] = range(len(rows))
        if len(rows) > MOST_PAIRS:
            drawn = sorted(random.Random(0).sample(drawn, MOST_PAIRS))
        kept += [rows[place] for place in drawn]
    return kept


# Of long results of tools the report reads the beginnings.
_FIELDS = (
    "prompt__brief",
    "response_a__brief",
    "response_b__brief",
    "prompt__topic",
    "prompt__language",
    "prompt__source",
    "prompt__group_key",
    "batch",
    "stratum",
    "gold",
    "response_a__origin",
    "response_a__origin_ref",
    "response_b__origin",
    "response_b__origin_ref",
    "response_a__metadata",
    "response_b__metadata",
)


def _facts(pairs: Sequence[int]) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for part in parts(pairs):
        for row in Comparison.objects.filter(pk__in=part).values("pk", *_FIELDS):
            found[row["pk"]] = row
    return found


def _pair(line: SplitLine, facts: Mapping[str, Any]) -> ReportPair:
    won, lost = line.winner, _MIRROR[line.winner]
    asked = facts["prompt__brief"]
    said = {side: facts[f"response_{side}__brief"] for side in _SIDES}
    gold = facts["gold"]
    return ReportPair(
        id=line.pair,
        split=line.split,
        prompt=plain(asked),
        chosen=plain(said[won]),
        rejected=plain(said[lost]),
        chosen_key=argument_key(asked, said[won]),
        rejected_key=argument_key(asked, said[lost]),
        won_first=won == "a",
        share=line.share,
        votes=line.votes,
        group=facts["prompt__group_key"],
        topic=facts["prompt__topic"],
        language=facts["prompt__language"],
        source=facts["prompt__source"],
        batch=facts["batch"],
        stratum=facts["stratum"],
        chosen_from=_origin(facts, won),
        rejected_from=_origin(facts, lost),
        gold=gold == won if gold in _SIDES else None,
    )


def _origin(facts: Mapping[str, Any], side: str) -> str:
    """A checkpoint, a person, a file or a model by name; else person or model, as far as known."""
    metadata = facts[f"response_{side}__metadata"] or {}
    named = facts[f"response_{side}__origin_ref"] or metadata.get("model") or metadata.get("source")
    kind = facts[f"response_{side}__origin"]
    return str(named or ("" if kind == Response.Origin.IMPORT else kind))


def _votes(ids: Iterable[int], winners: Mapping[int, str]) -> dict[int, ReportVote]:
    found: dict[int, ReportVote] = {}
    for part in parts(sorted(ids)):
        rows = Vote.objects.filter(pk__in=part).values_list(
            *("pk", "comparison_id", "annotator_id", "choice", "cast_at", "left_is"),
            *("reasons", "criteria"),
        )
        for pk, pair, person, choice, at, left, reasons, criteria in rows:
            won = winners[pair]
            found[pk] = ReportVote(
                id=pk,
                person=person,
                at=at.timestamp(),
                for_winner=choice == won if choice in _SIDES else None,
                winner_left=left == won if left else None,
                reasons=tuple(reasons),
                criteria={key: _said(value, won) for key, value in criteria.items()},
            )
    return found


def _said(value: Any, won: str) -> str:
    return "tie" if value not in _SIDES else "winner" if value == won else "loser"


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
        logger.exception("no bias report of dataset %s", snapshot.pk)
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
    if snapshot.state != Snapshot.State.FROZEN or not snapshot.has_report:
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
        snapshots.snapshot_list(project=snapshot.project)
        .filter(kind=Snapshot.Kind.DEMONSTRATIONS, state=Snapshot.State.FROZEN)
        .first()
    )


def _prompts(snapshot: Snapshot, beside: Snapshot | None) -> Report:
    asked, topics = _asked(snapshot)
    known, known_topics = _asked(beside) if beside else ([], [])
    return prompts_build(asked, topics, known, known_topics, sft_name=beside.name if beside else "")


def _asked(snapshot: Snapshot) -> tuple[list[str], list[str]]:
    """The prompts of its public files, and the group of each."""
    rows = list(public_rows(snapshot))
    groups = [str(row.get("group") or row.get("source") or "") for row in rows]
    return texts_asked(rows), groups


def _preview_key(project: Project, recipe: SnapshotRecipe, part: str) -> str:
    """Changes with whatever the assembly reads: votes, comparisons and rulings."""
    votes = Vote.objects.filter(project=project).order_by("-pk").values_list("pk", flat=True)
    rulings = Ruling.objects.filter(project=project).order_by("-pk").values_list("pk", flat=True)
    states = Comparison.objects.filter(project=project).order_by("-updated_at")
    newest = states.values_list("updated_at", flat=True).first()
    state = (recipe.to_json(), votes.first(), rulings.first(), str(newest))
    digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
    return f"snapshots:report-preview:{VERSION}:{project.pk}:{part}:{digest}"
