"""Replays of how many votes choosing pairs would have saved, as pages and the API show them."""

from collections.abc import Mapping, Sequence
from typing import Any

from apps.accounts.models import Project
from apps.common.numbers import share
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


def replays_of(project: Project) -> Sequence[SelectionReplay]:
    """The newest first, at most 20."""
    return list(SelectionReplay.objects.filter(project=project).order_by("-created_at")[:SHOWN])


def newest_replay(project: Project) -> SelectionReplay | None:
    """The newest that came to a verdict."""
    rows = SelectionReplay.objects.filter(project=project).exclude(verdict="")
    return rows.order_by("-created_at").first()


def replay_shown(row: SelectionReplay) -> dict[str, Any]:
    """The row as the API gives it."""
    names = ("id", "state", "most_per_prompt", "verdict", "result", "error")
    return {name: getattr(row, name) for name in names} | {
        "words": verdict_words(row),
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    }


def verdict_words(row: SelectionReplay) -> str:
    """One sentence; "" before it is finished."""
    if row.verdict == "refused":
        return f"Not replayed: {reason_words(row.result['refused'])}."
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
