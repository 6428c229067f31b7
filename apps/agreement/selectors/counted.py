"""Which votes agreement is computed on, and why the others are left out.

A statistic of agreement means something when the votes it sees were not asked for because of what
other votes said. Four kinds of votes were: comparisons of the priority stratum (chosen because a
model or a person found them telling), extra votes (asked for because the first ones differed),
votes after the first two where the project stops early, and votes of a second round. Gold pairs,
hidden repeats and audits have other purposes.
"""

from dataclasses import dataclass

import numpy as np

from apps.agreement.selectors.votes import KINDS, STRATA, Bools, Ints, VoteColumns
from apps.labeling.models import Comparison, LabelingSettings, Slot

# Reasons in the order they are told, and tested.
REPEAT, AUDIT, GOLD, PRIORITY, ROUND, EXTRA, LATER = (
    "repeat",
    "audit",
    "gold",
    "priority",
    "round",
    "extra",
    "later",
)
REASONS = {
    REPEAT: "hidden repeats: the same person again",
    AUDIT: "audits: a second look by a reviewer",
    GOLD: "on gold and qualification comparisons, which are chosen",
    PRIORITY: "on comparisons picked by priority, which are not a random sample",
    ROUND: "of a second round: the comparison was sent again because the first votes differed",
    EXTRA: "extra votes: asked for because the first ones did not settle it",
    LATER: "third and later votes: asked for only where the first two did not settle it",
}
BEFORE_STOPPING = 2


@dataclass(frozen=True, slots=True)
class Counted:
    """`rows`: which votes count; `left_out`: votes by reason, without the reasons that hit none."""

    rows: Bools
    left_out: dict[str, int]


def counted_votes(columns: VoteColumns, settings: LabelingSettings) -> Counted:
    """Sort every current vote into "counts" or the first reason why it does not.

    A comparison that was sent to a second round counts with the votes of its first one, as many
    as the project asks for at once.
    """
    kind, stratum = columns.kind, columns.stratum
    former = kind == KINDS.index(Slot.Kind.FORMER)
    sent_again = np.isin(columns.comparison, np.unique(columns.comparison[former]))
    regular = kind == KINDS.index(Slot.Kind.REGULAR)
    place = _place(np.where(former | (regular & ~sent_again), columns.comparison, -1))
    reasons = {
        REPEAT: kind == KINDS.index(Slot.Kind.REPEAT),
        AUDIT: kind == KINDS.index(Slot.Kind.AUDIT),
        GOLD: (kind == KINDS.index(Slot.Kind.GOLD))
        | np.isin(stratum, [STRATA.index(s) for s in _CHOSEN]),
        PRIORITY: stratum == STRATA.index(Comparison.Stratum.PRIORITY),
        ROUND: regular & sent_again,
        EXTRA: columns.extra | (former & (place >= settings.overlap)),
        LATER: (place >= BEFORE_STOPPING) & settings.stop_early,
    }
    open_still = np.ones(len(columns), dtype=bool)
    left_out = {}
    for name, hit in reasons.items():
        if n := int((open_still & hit).sum()):
            left_out[name] = n
        open_still &= ~hit
    return Counted(rows=open_still, left_out=left_out)


_CHOSEN = (Comparison.Stratum.GOLD, Comparison.Stratum.PRACTICE)


def _place(comparison: Ints) -> Ints:
    """0, 1, 2 … within each comparison, in the order given."""
    order = np.argsort(comparison, kind="stable")
    grouped = comparison[order]
    starts = np.flatnonzero(np.r_[True, grouped[1:] != grouped[:-1]]) if len(order) else order
    sizes = np.diff(np.r_[starts, len(order)])
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.repeat(starts, sizes)
    return place
