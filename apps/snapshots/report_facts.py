"""What a report is computed from, read from the database: texts, circumstances and votes."""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from apps.accounts.models import Project
from apps.labeling.models import Comparison, LabelingSettings, Response, Vote
from apps.labeling.texts import plain
from apps.snapshots.assembling.material import Assembly, Line
from apps.snapshots.assembling.rows import argument_key
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import HELDOUT_ANNOTATORS, TRAIN
from apps.snapshots.reports import ReportMaterial, ReportPair, ReportVote
from apps.snapshots.selectors import parts

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
        Line(pair, split, winner, share or 0.0, tuple(votes))
        for pair, split, winner, share, votes in rows
    ]
    return _material(snapshot.project, lines)


def _material(project: Project, lines: Iterable[Line]) -> ReportMaterial:
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


def _enough(lines: Sequence[Line]) -> list[Line]:
    """All, or of each file MOST_PAIRS drawn with a fixed seed, in their order."""
    files: dict[str, list[Line]] = {}
    for line in lines:
        files.setdefault(line.split, []).append(line)
    kept: list[Line] = []
    for rows in files.values():
        drawn = range(len(rows))
        if len(rows) > MOST_PAIRS:
            drawn = sorted(random.Random(0).sample(drawn, MOST_PAIRS))
        kept += [rows[place] for place in drawn]
    return kept


_FIELDS = (
    *("prompt__messages", "prompt__topic", "prompt__language", "prompt__source"),
    *("prompt__group_key", "batch", "stratum", "gold"),
    *("response_a__messages", "response_a__origin", "response_a__origin_ref"),
    *("response_b__messages", "response_b__origin", "response_b__origin_ref"),
    *("response_a__metadata", "response_b__metadata"),
)


def _facts(pairs: Sequence[int]) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for part in parts(pairs):
        for row in Comparison.objects.filter(pk__in=part).values("pk", *_FIELDS):
            found[row["pk"]] = row
    return found


def _pair(line: Line, facts: Mapping[str, Any]) -> ReportPair:
    won, lost = line.winner, _MIRROR[line.winner]
    asked = facts["prompt__messages"]
    said = {side: facts[f"response_{side}__messages"] for side in _SIDES}
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
