"""The decision on one comparison, stored in the transaction of the vote that changed it.

Asks `measures.voting.decide` and writes three things in one statement: the decision, the
comparison's state and, while the rule could still be met, one more slot (adaptive overlap: easy
pairs stop at `overlap` votes, contested ones go on up to `max_overlap`).
"""

import json
from dataclasses import asdict, dataclass

from django.db.backends.utils import CursorWrapper

from apps.labeling.models import Comparison, LabelingSettings
from apps.labeling.services import statements as sql
from measures.voting import Choice, Decision, Outcome, Rule, decide

# The state of a comparison that votes may move; review and dropped are a person's doing.
_STATE = {
    Outcome.ACCEPTED: Comparison.State.DECIDED,
    Outcome.CONTESTED: Comparison.State.CONTESTED,
    Outcome.NEEDS_VOTES: Comparison.State.OPEN,
}


@dataclass(frozen=True, slots=True)
class Policy:
    """What the project's settings say about distribution and decision."""

    overlap: int
    max_overlap: int
    least_votes: int
    least_agreeing: int
    least_share: float

    @classmethod
    def of(cls, row: tuple[int | float | None, ...]) -> "Policy":
        """From the columns `statements.POLICY`; a project without settings has the defaults."""
        if row[0] is None:
            defaults = LabelingSettings()
            return cls(*(getattr(defaults, name) for name in sql.POLICY))
        return cls(*row)

    def rule(self) -> Rule:
        return Rule(
            least_votes=self.least_votes,
            least_agreeing=self.least_agreeing,
            least_share=self.least_share,
            max_votes=self.max_overlap,
        )


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
    its outcome and winner, and its counts follow the votes.
    """
    rule = policy.rule()
    decision = decide(counts, rule, votes_possible=max(policy.max_overlap, overlap))
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
            "reason": decision.reason[:300],
            "state": _STATE[decision.outcome].value,
            "extra": 1 if wants_more else 0,
            "base": policy.overlap,
            "accepted": decision.outcome is Outcome.ACCEPTED,
        },
    )
    return decision
