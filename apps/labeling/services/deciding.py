"""The decision on one comparison, stored in the transaction of the vote that changed it.

Asks `measures.voting` (by counting, or by the posterior of the project's consensus) and writes
three things in one statement: the decision, the comparison's state and, while the rule could still
be met, one more slot (adaptive overlap: easy pairs stop at `overlap` votes or before, contested
ones go on up to `max_overlap`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db.backends.utils import CursorWrapper

from apps.labeling.models import Comparison, DecideBy, LabelingSettings
from apps.labeling.services import statements as sql
from apps.labeling.services.decision_words import decision_said
from measures.voting import (
    Choice,
    Decision,
    Outcome,
    PosteriorRule,
    Rule,
    decide,
    decide_by_posterior,
    posterior,
)

# The state of a comparison that votes may move; review and dropped are a person's doing.
STATE_OF = {
    Outcome.ACCEPTED: Comparison.State.DECIDED,
    Outcome.CONTESTED: Comparison.State.CONTESTED,
    Outcome.NEEDS_VOTES: Comparison.State.OPEN,
}


@dataclass(frozen=True, slots=True)
class Policy:
    """What the project's settings say about distribution and decision, and what a fit has learned
    of its voters (`method` None before the first fit)."""

    overlap: int
    max_overlap: int
    least_votes: int
    least_agreeing: int
    least_share: float
    decide_by: str
    least_posterior: float
    stop_early: bool
    method: str | None = None
    priors: Sequence[float] | None = None
    confusion: Sequence[float] | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Policy":
        """From the columns `statements.POLICY_COLUMNS`; a project without settings has the
        defaults."""
        if row["overlap"] is None:
            return cls.of_settings(LabelingSettings())
        return cls(**{name: row[name] for name in cls.__dataclass_fields__})

    @classmethod
    def of_settings(cls, settings: LabelingSettings) -> "Policy":
        """Without a consensus."""
        return cls(*(getattr(settings, name) for name in sql.POLICY))

    def rule(self) -> Rule:
        return Rule(
            least_votes=self.least_votes,
            least_agreeing=self.least_agreeing,
            least_share=self.least_share,
            max_votes=self.max_overlap,
        )

    def posterior_rule(self) -> PosteriorRule:
        return PosteriorRule(
            least_posterior=self.least_posterior,
            least_votes=self.least_votes,
            max_votes=self.max_overlap,
        )

    @property
    def by_model(self) -> bool:
        """Whether posteriors decide: a model was chosen and it is the one that was fitted."""
        return self.decide_by != DecideBy.VOTES and self.decide_by == self.method


def decision_store(
    cursor: CursorWrapper,
    *,
    project: str,
    comparison: int,
    counts: dict[Choice, int],
    overlap: int,
    policy: Policy,
) -> Decision:
    """Decide and store; the caller holds the comparison's row and has counted current votes.

    counts: votes per choice; overlap: the slots the comparison has. An adjudicated decision keeps
    its outcome and winner, and its counts follow the votes. Where a consensus was fitted the vote
    is absorbed into the comparison's posterior here; what it says of the annotators waits for the
    next fit.
    """
    possible = max(policy.max_overlap, overlap)
    posteriors = posteriors_of(cursor, comparison, policy) if policy.method else None
    rule: Rule | PosteriorRule
    if posteriors is not None and policy.by_model:
        rule = policy.posterior_rule()
        decision = decide_by_posterior(counts, posteriors, rule, votes_possible=possible)
    else:
        rule = policy.rule()
        decision = decide(counts, rule, votes_possible=possible)
    wants_more = (
        decision.outcome is Outcome.NEEDS_VOTES
        and decision.n_votes >= overlap
        and overlap < policy.max_overlap
    )
    cursor.execute(
        sql.STORE_DECISION,
        {
            "project": project,
            "comparison": comparison,
            "outcome": decision.outcome.value,
            "winner": decision.winner.value if decision.winner else "",
            "n_a": counts[Choice.A],
            "n_b": counts[Choice.B],
            "n_tie": counts[Choice.TIE],
            "n_both_bad": counts[Choice.BOTH_BAD],
            "n_agreeing": decision.n_agreeing,
            "n_votes": decision.n_votes,
            "share": decision.share or 0.0,
            "rule": json.dumps(asdict(rule)),
            "reason": decision_said(decision, rule)[:300],
            "decided_by": str(policy.decide_by if policy.by_model else DecideBy.VOTES),
            "posteriors": None if posteriors is None else list(posteriors),
            "state": STATE_OF[decision.outcome].value,
            "extra": 1 if wants_more else 0,
            "base": policy.overlap,
            "stop": policy.stop_early,
            "accepted": decision.outcome is Outcome.ACCEPTED,
        },
    )
    return decision


def posteriors_of(cursor: CursorWrapper, comparison: int, policy: Policy) -> tuple[float, ...]:
    """P(truth | the votes on a comparison) of each choice, by the project's fitted consensus."""
    cursor.execute(sql.VOTERS, {"comparison": comparison})
    return posterior(cursor.fetchall(), policy.priors or (), policy.confusion or ())
