"""Replays of votes (by which pairs to choose, by votes a pair), as pages and the API show them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from apps.accounts.models import Project
from apps.common.numbers import fixed, share
from apps.snapshots.models import SelectionReplay
from workers.contract.reasons import reason_words

SHOWN = 20
STRATEGY_WORDS = {
    "random": "random",
    "uncertainty": "uncertainty sampling",
    "d_optimal": "half random, half D-optimal",
    "entropy": "half random, half by entropy",
    "disagreement": "half random, half by disagreement",
}
WAY_WORDS = {
    "single": "one vote each on more pairs",
    "soft_3": "3 votes with a soft label",
    "majority_3": "the majority of 3 votes",
    "majority_4": "the majority of 4 votes",
    "unanimous_4": "4 unanimous votes",
}


def replays_of(project: Project, kind: str = "") -> Sequence[SelectionReplay]:
    """The newest first, at most 20; of one kind, or of all."""
    rows = SelectionReplay.objects.filter(project=project, **({"kind": kind} if kind else {}))
    return list(rows.order_by("-created_at")[:SHOWN])


def depth_measured(project: Project) -> SelectionReplay | None:
    """The newest replay of depth against breadth that compared something."""
    rows = SelectionReplay.objects.filter(
        project=project,
        kind=SelectionReplay.Kind.DEPTH,
        state=SelectionReplay.State.FINISHED,
    )
    return rows.exclude(verdict="refused").order_by("-created_at").first()


def newest_replay(project: Project) -> SelectionReplay | None:
    """The newest of choosing pairs that came to a verdict."""
    rows = SelectionReplay.objects.filter(
        project=project, kind=SelectionReplay.Kind.SELECTION
    ).exclude(verdict="")
    return rows.order_by("-created_at").first()


def replay_shown(row: SelectionReplay) -> dict[str, Any]:
    """The row as the API gives it."""
    names = ("id", "kind", "state", "most_per_prompt", "verdict", "result", "error")
    return {name: getattr(row, name) for name in names} | {
        "words": verdict_words(row),
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    }


def verdict_words(row: SelectionReplay) -> str:
    """One sentence; "" before it is finished."""
    if row.verdict == "refused":
        return f"Not replayed: {reason_words(row.result['refused'])}."
    if row.kind == SelectionReplay.Kind.DEPTH:
        return depth_words(row.result, row.result["points"][-1]) if row.verdict else ""
    if row.verdict == "saves":
        best = max(
            (one for one in row.result["curves"] if one["verdict"] == "saves"),
            key=lambda one: one["saved"]["value"],
        )
        name = STRATEGY_WORDS[best["strategy"]]
        return f"Selection saves {saving_words(best['saved'])} of the votes here ({name})."
    return {
        "no_evidence": "No evidence that selection helps here.",
        "worse": "Selection is worse than random here.",
    }.get(row.verdict, "")


def saving_words(of: Mapping[str, Any] | None) -> str:
    """20.0 % (5.0 %–31.0 %)."""
    if of is None:
        return ""
    if of["low"] is None:
        return f"{share(of['value'])} ({reason_words(of['no_interval'])})"
    return f"{share(of['value'])} ({share(of['low'])}–{share(of['high'])})"


def nearest_point(result: Mapping[str, Any], votes: int) -> int:
    """The number of votes after which was tested that is nearest to so many, by its ratio."""
    return min(result["points"], key=lambda point: abs(math.log(point / max(votes, 1))))


def cells_at(result: Mapping[str, Any], point: int) -> dict[str, Mapping[str, Any]]:
    """{way: cell}."""
    return {cell["way"]: cell for cell in result["cells"] if cell["votes"] == point}


def depth_words(result: Mapping[str, Any], point: int) -> str:
    """What to do with so many votes, in one sentence, with the interval it rests on."""
    cells = cells_at(result, point)
    after = f"in the replay after {point:,} votes"
    better = [cell for cell in cells.values() if cell.get("verdict") == "better"]
    if better:
        best = min(better, key=lambda cell: cell["log_loss_above"]["value"])
        gap = loss_words(_turned(best["log_loss_above"]))
        return (
            f"Ask for {WAY_WORDS[best['way']]}: its log loss is lower than that of one vote each "
            f"by {gap} {after}."
        )
    worse = [cell for cell in cells.values() if cell.get("verdict") == "worse"]
    if worse:
        than = ", ".join(
            f"{WAY_WORDS[cell['way']]} by {loss_words(cell['log_loss_above'])}" for cell in worse
        )
        unsure = [WAY_WORDS[way] for way, cell in cells.items() if cell["verdict"] == "no_evidence"]
        rest = f"; no difference clear of 0 from {' and '.join(unsure)}" if unsure else ""
        return (
            f"Ask for one vote each on more pairs: its log loss is lower than with {than}, "
            f"{after}{rest}."
        )
    told = [cell["log_loss_above"] for cell in cells.values() if cell.get("verdict")]
    if not told:
        return "No way could be compared with one vote each here: their L2 is under-tuned."
    widest = max(told, key=lambda one: abs(one["value"]))
    return (
        f"No difference clear of 0 here {after} (the largest: {loss_words(widest)}): choose the "
        "votes a pair by other needs."
    )


def _turned(of: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"value": -of["value"], "low": -of["high"], "high": -of["low"]}


def loss_words(of: Mapping[str, Any] | None, places: int = 4) -> str:
    """0.0160 (0.0120 to 0.0210)."""
    if of is None:
        return ""
    value, low, high = (fixed(of[name], places) for name in ("value", "low", "high"))
    return value if of["low"] is None else f"{value} ({low} to {high})"
