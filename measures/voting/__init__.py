"""From votes to a decision by stated rules, and how far chance alone would get under them."""

from measures.voting.by_posterior import PosteriorRule, decide_by_posterior, posterior
from measures.voting.chance import (
    chance_keep_rate,
    expected_keep_rate,
    posterior_keep_rate,
    two_way_posterior,
)
from measures.voting.many import Decisions, decide_many, decide_many_by_posterior
from measures.voting.rule import (
    CHOICES,
    DEFAULT_RULE,
    Choice,
    Decision,
    Outcome,
    Rule,
    count_votes,
    decide,
)

__all__ = [
    "CHOICES",
    "DEFAULT_RULE",
    "Choice",
    "Decision",
    "Decisions",
    "Outcome",
    "PosteriorRule",
    "Rule",
    "chance_keep_rate",
    "count_votes",
    "decide",
    "decide_by_posterior",
    "decide_many",
    "decide_many_by_posterior",
    "expected_keep_rate",
    "posterior",
    "posterior_keep_rate",
    "two_way_posterior",
]
