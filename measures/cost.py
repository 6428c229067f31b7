"""What a project's labels cost: votes, time and money for each pair that the rule keeps."""

from collections.abc import Mapping
from dataclasses import dataclass

from measures.estimate import Quantity


@dataclass(frozen=True, slots=True)
class LabelCost:
    """Everything that was paid for, and what it comes to for a kept pair.

    n_votes: all votes; by_purpose: them by why they were asked for, adding up to n_votes; n_again:
    those on pairs that were voted on already (all purposes but the first look and gold); n_kept:
    pairs with an accepted or adjudicated decision; votes_per_kept: votes; hours, money: in all,
    money in the project's currency; seconds_per_kept, money_per_kept: each per kept pair.
    timed: votes whose active time is known; the untimed are taken to have taken as long each.
    """

    n_votes: int
    by_purpose: Mapping[str, int]
    n_again: int
    n_kept: int
    votes_per_kept: Quantity
    timed: int
    hours: Quantity
    seconds_per_kept: Quantity
    money: Quantity
    money_per_kept: Quantity


FIRST_LOOKS = frozenset({"first", "gold"})


def label_cost(
    by_purpose: Mapping[str, int],
    *,
    n_kept: int,
    active_seconds: float,
    timed: int,
    vote_price: float,
) -> LabelCost:
    """Votes, active time and money over kept pairs.

    by_purpose: votes by purpose ("first", "gold", and re-votes: extra votes, repeats, audits,
    later rounds); active_seconds: summed over the `timed` votes whose time is known; vote_price:
    what one vote costs, 0 where that is not stated. Every vote costs the same, also one that the
    rule does not need: re-votes are a price of quality. Undefined where nothing is kept, where no
    time is known, where no price is stated.
    """
    n_votes = sum(by_purpose.values())
    if min(by_purpose.values(), default=0) < 0 or n_kept < 0 or vote_price < 0:
        raise ValueError("votes, kept pairs and the price of a vote cannot be negative")
    if not 0 <= timed <= n_votes or active_seconds < 0:
        raise ValueError(f"{timed} votes cannot have a known time of {n_votes}")
    seconds = Quantity(None, "no_times")
    if timed:
        seconds = Quantity(active_seconds / timed * n_votes)
    money = Quantity(None, "no_price")
    if vote_price:
        money = Quantity(vote_price * n_votes)
    return LabelCost(
        n_votes=n_votes,
        by_purpose=dict(by_purpose),
        n_again=sum(n for purpose, n in by_purpose.items() if purpose not in FIRST_LOOKS),
        n_kept=n_kept,
        votes_per_kept=_per(Quantity(float(n_votes)), n_kept),
        timed=timed,
        hours=seconds if seconds.value is None else Quantity(seconds.value / 3600),
        seconds_per_kept=_per(seconds, n_kept),
        money=money,
        money_per_kept=_per(money, n_kept),
    )


def _per(whole: Quantity, n_kept: int) -> Quantity:
    if whole.value is None:
        return whole
    if not n_kept:
        return Quantity(None, "none_kept")
    return Quantity(whole.value / n_kept)
