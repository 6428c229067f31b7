"""The sentence under a decision: the votes, what the rule asks for, and what can still come."""

from measures.voting import Choice, Decision, Outcome, PosteriorRule, Rule

_WORDS = {Choice.A: "A", Choice.B: "B", Choice.TIE: "tie", Choice.BOTH_BAD: "both bad"}


def decision_said(decision: Decision, rule: Rule | PosteriorRule) -> str:
    """Of a decision that was made by this rule."""
    if isinstance(rule, PosteriorRule):
        return _by_posterior(decision, rule)
    return _by_votes(decision, rule)


def _by_votes(decision: Decision, rule: Rule) -> str:
    asked = (
        f"the rule asks for {rule.least_votes} votes, {rule.least_agreeing} agreeing "
        f"and a share of {rule.least_share:g}"
    )
    n_votes, top, remaining = decision.n_votes, decision.n_agreeing, decision.remaining
    words = [_WORDS[choice] for choice in decision.leaders]
    if not words:
        seen = "No votes"
    elif len(words) == 1:
        seen = f"{words[0]} has {top} of {n_votes} votes ({top / n_votes:.0%})"
    else:
        names = ", ".join(words[:-1]) + " and " + words[-1]
        seen = f"{names} have {top} of {n_votes} votes each, and a vote tie is not broken at random"
    if decision.outcome is Outcome.ACCEPTED:
        return f"{seen}; {asked}."
    if decision.outcome is Outcome.NEEDS_VOTES:
        return f"{seen} so far; {asked}; {_more(remaining)} can still come."
    if remaining == 0:
        return f"{seen}; {asked}; all votes are in."
    return f"{seen}; {asked}, which {_more(remaining)} could no longer meet."


def _more(remaining: int | None) -> str:
    if remaining is None:
        return "more votes"
    return f"{remaining} more {'vote' if remaining == 1 else 'votes'}"


def _by_posterior(decision: Decision, rule: PosteriorRule) -> str:
    n_votes = decision.n_votes
    if not n_votes:
        seen = "No votes"
    elif decision.leading is None:
        seen = f"No choice is more probable than the others after {n_votes} votes"
    else:
        votes = "1 vote" if n_votes == 1 else f"{n_votes} votes"
        seen = (
            f"{_WORDS[decision.leading]} is right with probability "
            f"{_percent(decision.probability or 0.0)}, with {decision.n_agreeing} of {votes}"
        )
    asked = f"accepted from {rule.least_posterior:.0%} on, after {rule.least_votes} votes"
    end = {
        Outcome.ACCEPTED: "",
        Outcome.NEEDS_VOTES: "; more votes can still come",
        Outcome.CONTESTED: "; all votes are in",
    }[decision.outcome]
    return f"{seen[0].upper()}{seen[1:]}; {asked}{end}."


def _percent(share: float) -> str:
    """Never "100 %" for what is not certain."""
    return "over 99.9 %" if share > 0.999 else f"{100 * share:.1f} %"
