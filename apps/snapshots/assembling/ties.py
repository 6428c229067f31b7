"""Where a decision goes: a row for a side, a soft label, two single labels, or nowhere.

drop   only winners are kept; ties and "both are bad" are counted and left out
soft   every kept row says P(chosen is preferred), ties and both-bad votes half each; in
       training a tie is a row at 0.5, elsewhere it is left out, for there is no side to find
kto    every decided comparison is two labelled answers: of a winner and a loser one is
       desirable, of a tie both are, of "both are bad" neither is
"""

from apps.snapshots.assembling.deciding import VOTE_TIE, Verdict
from apps.snapshots.assembling.material import Drop, Line, Pair
from apps.snapshots.recipe import KTO, SOFT, TRAIN

DECIDED_TIE, DECIDED_BAD = "decided: tie", "decided: both bad"
_TIE, _BAD = "tie", "both_bad"


def line_of(
    pair: Pair, split: str, verdict: Verdict, votes: tuple[int, ...], policy: str
) -> Line | Drop:
    """The line of a file, or why there is none."""
    winner = verdict.winner
    if policy == SOFT and split == TRAIN and verdict.undecided == VOTE_TIE and _even(verdict):
        winner = _TIE  # as many for the one as for the other: a label too, and never a coin's
    if not winner:
        return Drop(pair.id, verdict.undecided, votes)
    keeps_tie = policy == KTO or (policy == SOFT and split == TRAIN)
    if winner == _TIE and not keeps_tie:
        return Drop(pair.id, DECIDED_TIE, votes, verdict.reason)
    if winner == _BAD and policy != KTO:
        return Drop(pair.id, DECIDED_BAD, votes, verdict.reason)
    return Line(
        pair.id,
        split,
        winner,
        verdict.share,
        votes,
        confidence=_soft(verdict, winner) if policy == SOFT else verdict.certainty,
        posterior=verdict.posterior,
        by=verdict.by,
        reason=verdict.reason,
    )


def _even(verdict: Verdict) -> bool:
    return abs(verdict.p_a - 0.5) < 1e-6


def _soft(verdict: Verdict, winner: str) -> float:
    if winner == _TIE:
        return 0.5
    return round(verdict.p_a if winner == "a" else 1 - verdict.p_a, 6)
