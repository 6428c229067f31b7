"""One comparison: its votes, the project's rule and the decision.

Standard library only, because this runs inside every vote's own transaction.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Choice(StrEnum):
    """What a vote says, in canonical order of the responses (not of the sides on screen)."""

    A = "a"
    B = "b"
    TIE = "tie"
    BOTH_BAD = "both_bad"


# Column order of every count matrix in `measures`.
CHOICES = (Choice.A, Choice.B, Choice.TIE, Choice.BOTH_BAD)


class Outcome(StrEnum):
    """Where a comparison stands."""

    ACCEPTED = "accepted"
    CONTESTED = "contested"
    NEEDS_VOTES = "needs_votes"


@dataclass(frozen=True, slots=True)
class Rule:
    """Three conditions that must all hold, and the most votes a comparison gathers.

    least_votes: votes of any kind; least_agreeing: votes for the top choice; least_share: those
    over all votes, ties and both-bad included. max_votes: None for no maximum.

    The default repeats the usual "3 of 5 and 0.6". On five two-way votes it lets every comparison
    through, because three always agree: show `chance_keep_rate` beside the setting.
    """

    least_votes: int = 3
    least_agreeing: int = 3
    least_share: float = 0.6
    max_votes: int | None = 5

    def __post_init__(self) -> None:
        if self.least_votes < 1:
            raise ValueError(f"least_votes must be at least 1, not {self.least_votes}")
        if self.least_agreeing < 1:
            raise ValueError(f"least_agreeing must be at least 1, not {self.least_agreeing}")
        if not 0 < self.least_share <= 1:
            raise ValueError(f"least_share must lie in (0, 1], not {self.least_share}")
        needed = max(self.least_votes, self.least_agreeing)
        if self.max_votes is not None and self.max_votes < needed:
            raise ValueError(
                f"max_votes is {self.max_votes}, but the rule needs at least {needed} votes: "
                "nothing could ever be accepted"
            )


DEFAULT_RULE = Rule()


@dataclass(frozen=True, slots=True)
class Decision:
    """The state of one comparison under a rule.

    winner: the accepted choice, otherwise None. leaders: the choices with most votes (or, under a
    model, the most probable), none without votes. n_agreeing: votes of each of them; share:
    n_agreeing / n_votes, None without votes. remaining: the votes that can still come, None
    without end. probability: of the leaders, where a model decides.
    """

    outcome: Outcome
    winner: Choice | None
    leaders: tuple[Choice, ...]
    n_votes: int
    n_agreeing: int
    share: float | None
    remaining: int | None
    probability: float | None = None

    @property
    def leading(self) -> Choice | None:
        """The one leader, None at a tie."""
        return self.leaders[0] if len(self.leaders) == 1 else None


def count_votes(votes: Iterable[Choice | str]) -> dict[Choice, int]:
    """Votes per choice, every choice present. An unknown choice is a ValueError naming it."""
    counts = dict.fromkeys(CHOICES, 0)
    for vote in votes:
        counts[_choice(vote)] += 1
    return counts


def decide(
    votes: Mapping[Choice | str, int] | Iterable[Choice | str],
    rule: Rule = DEFAULT_RULE,
    *,
    votes_possible: int | None = None,
) -> Decision:
    """Decide one comparison.

    votes: either votes ("a", "b", "tie", "both_bad") or a mapping from choice to count.
    votes_possible: the most votes this comparison can end up with, those already cast included;
    None takes the rule's max_votes. A smaller number than already cast means that no more come.

    Accepted: the rule holds and one choice has strictly most votes; a vote tie is never broken at
    random. Contested: it does not hold and all votes are in, or no further votes could make it
    hold. Needs votes: everything else. Accepting does not wait for the maximum.
    """
    counts = _validated(votes)
    n_votes = sum(counts.values())
    top = max(counts.values())
    leaders = tuple(choice for choice in CHOICES if counts[choice] == top and top)
    leading = leaders[0] if len(leaders) == 1 else None
    total = rule.max_votes if votes_possible is None else votes_possible
    remaining = None if total is None else max(0, total - n_votes)

    if leading is not None and holds(rule, n_votes, top):
        outcome = Outcome.ACCEPTED
    elif can_still_hold(rule, n_votes, top, remaining):
        outcome = Outcome.NEEDS_VOTES
    else:
        outcome = Outcome.CONTESTED
    return Decision(
        outcome=outcome,
        winner=leading if outcome is Outcome.ACCEPTED else None,
        leaders=leaders,
        n_votes=n_votes,
        n_agreeing=top,
        share=top / n_votes if n_votes else None,
        remaining=remaining,
    )


def holds(rule: Rule, n_votes: int, n_agreeing: int) -> bool:
    """Do the three conditions hold? (That the top choice stands alone is a separate question.)"""
    return (
        n_votes >= rule.least_votes
        and n_agreeing >= rule.least_agreeing
        and n_agreeing / n_votes >= rule.least_share
    )


def can_still_hold(rule: Rule, n_votes: int, top: int, remaining: int | None) -> bool:
    """Could some further votes make the rule hold?

    The best that can happen is that every remaining vote goes to the top choice: that raises all
    three quantities at once and breaks any vote tie. `remaining` None: without end, where the
    share approaches 1 but reaches it only without dissent.
    """
    if remaining is None:
        return rule.least_share < 1 or top == n_votes
    return remaining > 0 and holds(rule, n_votes + remaining, top + remaining)


def _choice(vote: Choice | str) -> Choice:
    try:
        return Choice(vote)
    except ValueError:
        allowed = ", ".join(CHOICES)
        raise ValueError(f"unknown choice {vote!r}: expected one of {allowed}") from None


def _validated(votes: Mapping[Choice | str, int] | Iterable[Choice | str]) -> dict[Choice, int]:
    if not isinstance(votes, Mapping):
        return count_votes(votes)
    counts = dict.fromkeys(CHOICES, 0)
    for vote, count in votes.items():
        if count < 0 or count != int(count):
            raise ValueError(f"the count of {vote!r} must be a whole number ≥ 0, not {count}")
        counts[_choice(vote)] += int(count)
    return counts
