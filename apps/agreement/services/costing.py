"""What the labels of a project cost."""

from dataclasses import asdict
from typing import Any

import numpy as np

from apps.accounts.models import Project
from apps.agreement.selectors.votes import KINDS, STRATA, VoteColumns
from apps.labeling.models import Comparison, Decision, LabelingSettings, Slot
from measures.cost import label_cost

KEPT = (Decision.Outcome.ACCEPTED, Decision.Outcome.ADJUDICATED)


def cost_figures(
    columns: VoteColumns, *, project: Project, settings: LabelingSettings
) -> dict[str, Any]:
    timed = columns.active_ms >= 0
    cost = label_cost(
        votes_by_purpose(columns),
        n_kept=Decision.objects.filter(project=project, outcome__in=KEPT).count(),
        active_seconds=float(columns.active_ms[timed].sum()) / 1000,
        timed=int(timed.sum()),
        vote_price=settings.vote_price,
    )
    return asdict(cost) | {"currency": settings.currency, "vote_price": settings.vote_price}


def votes_by_purpose(columns: VoteColumns) -> dict[str, int]:
    """Current votes by why they were asked for; each has one purpose."""

    def kind(name: str) -> np.ndarray:
        return columns.kind == KINDS.index(name)

    sent_again = np.isin(columns.comparison, np.unique(columns.comparison[kind(Slot.Kind.FORMER)]))
    chosen = (Comparison.Stratum.GOLD, Comparison.Stratum.PRACTICE)
    gold = kind(Slot.Kind.GOLD) | np.isin(columns.stratum, [STRATA.index(s) for s in chosen])
    purposes = {
        "repeat": kind(Slot.Kind.REPEAT),
        "audit": kind(Slot.Kind.AUDIT),
        "gold": gold,
        "round": kind(Slot.Kind.REGULAR) & sent_again,
        "extra": columns.extra,
    }
    found, left = {}, np.ones(len(columns), dtype=bool)
    for name, hit in purposes.items():
        found[name] = int((left & hit).sum())
        left &= ~hit
    return {"first": int(left.sum())} | found
