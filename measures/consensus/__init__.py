"""Models of the voters: who is right how often, and what an item's votes are then worth."""

from measures.consensus.choosing import Comparison, Recommended, compare, recommended
from measures.consensus.fitting import METHODS, Fit, fit
from measures.consensus.held_out import Bar, Check, Ranged, leave_one_vote_out
from measures.consensus.votes import (
    Counted,
    Votes,
    majority,
    posteriors_of,
    share_right,
    votes_from,
    wawa,
    winners,
)

__all__ = [
    "METHODS",
    "Bar",
    "Check",
    "Comparison",
    "Counted",
    "Fit",
    "Ranged",
    "Recommended",
    "Votes",
    "compare",
    "fit",
    "leave_one_vote_out",
    "majority",
    "posteriors_of",
    "recommended",
    "share_right",
    "votes_from",
    "wawa",
    "winners",
]
