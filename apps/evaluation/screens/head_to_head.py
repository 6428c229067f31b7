"""What the page of a head-to-head says: who is ahead, how sure that is, and what to do next."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.common.numbers import points
from apps.common.report.blocks import Part, part_of
from apps.evaluation.models import HeadToHead, Look
from apps.evaluation.selectors.head_to_head import Progress, plan_of
from measures.blocks import Curve, Intervals, Series
from measures.estimate import Interval
from measures.head_to_head import Estimate, Result, Stopping, Verdict, votes_needed
from measures.model_ranking import LEAST_PEOPLE, LEAST_PROMPTS
from workers.contract.numbers import percent, share

_TONES = {"win": "a", "tie": "tie", "both_bad": "none", "loss": "b"}
LEAST_CURVE = 3  # looks


@dataclass(frozen=True, slots=True)
class Said:
    """The verdict in a sentence, what follows from it, and its tone ("", good, warn, bad)."""

    title: str
    text: str
    then: str
    tone: str
    icon: str


def context(
    found: HeadToHead, result: Result, progress: Progress, looks: list[Look]
) -> dict[str, Any]:
    told = result.verdict != Verdict.WAITING
    estimate = result.estimate if told else None
    return {
        "found": found,
        "said": said(found, result, progress),
        "running": found.ended_at is None,
        "progress": progress,
        "estimate": estimate,
        "chart": _chart(found, result, estimate) if estimate else None,
        "curve": _curve(found, looks) if told and found.stopping == Stopping.ANY_TIME else None,
        "outcomes": _outcomes(found, result) if told and result.n else [],
        "facts": _facts(found, result, progress) if told and result.n else [],
        "n_looks": len(looks),
        "margin_points": f"{100 * found.margin:g}",
        "protocol": json.dumps(found.protocol, indent=1, ensure_ascii=False),
    }


def said(found: HeadToHead, result: Result, progress: Progress) -> Said:
    """In the words of somebody who has never heard of a confidence sequence."""
    one, other = found.first_name, found.second_name
    estimate = result.estimate
    rate = _rate(estimate)
    match result.verdict:
        case Verdict.WAITING if found.stopping == Stopping.AT_THE_END and result.n:
            return Said(
                "The votes are coming in",
                f"{result.n:,} of {progress.planned:,}. This comparison is told once, when all are "
                "in: that was chosen when it was opened.",
                "Nothing to do but label.",
                "",
                "hourglass",
            )
        case Verdict.WAITING:
            return Said(
                "No votes yet",
                "The pairs are in the label queue before all others; people see them as ordinary "
                "pairs and do not learn whose answers they are.",
                f"Figures come with {LEAST_PEOPLE} people and {LEAST_PROMPTS} prompts.",
                "",
                "hourglass",
            )
        case Verdict.ONE_SIDED:
            return Said(
                "Nothing can be concluded: the sides are uneven",
                f"{one} stood on the left in {percent(result.left_share or 0.0)} of the votes. "
                "Many people lean to one side, and that cannot be told from a better system.",
                "Start again, with sides drawn for each vote.",
                "bad",
                "triangle-alert",
            )
        case Verdict.TOO_FEW_PEOPLE:
            return Said(
                f"Too few people: {result.n_people} of at least {LEAST_PEOPLE}",
                "With so few, their own taste decides and not the systems.",
                f"Invite {LEAST_PEOPLE - result.n_people} or more; further votes of the same "
                "people do not help.",
                "warn",
                "users",
            )
        case Verdict.TOO_FEW_PROMPTS:
            return Said(
                f"Too few prompts: {result.n_prompts} of at least {LEAST_PROMPTS}",
                "With so few, the choice of prompts decides and not the systems.",
                "More come as people vote."
                if found.ended_at is None
                else "Ask about more prompts.",
                "warn",
                "hourglass",
            )
        case Verdict.BETTER:
            return Said(
                f"{one} is better",
                f"People prefer it in {rate} of the comparisons, ties counted as half.",
                "It may be put forward." if found.first_id else "",
                "good",
                "circle-check",
            )
        case Verdict.WORSE:
            return Said(
                f"{other} is better",
                f"People prefer {one} in only {rate} of the comparisons, ties counted as half.",
                f"Do not put {one} into service; where it is, take it back. Read where it loses.",
                "bad",
                "triangle-alert",
            )
        case Verdict.NO_DIFFERENCE:
            return Said(
                "No difference worth having",
                f"{one} wins {rate}: within {100 * found.margin:g} points of a half, which was "
                "said beforehand to be too little to matter.",
                "Choose by cost and speed.",
                "good",
                "circle-check",
            )
        case Verdict.NOT_DECIDED:
            return Said(
                "Undecided, and no more votes come",
                f"{one} wins {rate}; a half is still possible.",
                _more(found, result),
                "warn",
                "scale",
            )
    return Said(
        "Undecided so far",
        f"{one} wins {rate}; a half is still possible.",
        _more(found, result),
        "",
        "scale",
    )


def _rate(estimate: Estimate | None) -> str:
    if estimate is None:
        return "no share"
    return share(_interval(estimate, estimate.low, estimate.high, 0))


def _more(found: HeadToHead, result: Result) -> str:
    """What would decide it: people before votes."""
    estimate = result.estimate
    if result.people_needed:
        return (
            f"Ask more people: their tastes differ so much that {result.n_people} cannot tell a "
            f"difference of {100 * found.margin:g} points, however much they vote; about "
            f"{result.people_needed} could."
        )
    if estimate is None or estimate.error is None:
        return "More votes by more people are needed."
    distance = max(abs(estimate.value - 0.5), found.margin)
    effect = max(1.0, estimate.error**2 * result.n / 0.25)
    ties = (result.outcomes["tie"] + result.outcomes["both_bad"]) / max(1, result.n)
    total = votes_needed(difference=min(distance, 0.49), ties=min(ties, 0.9), effect=effect)
    if total <= result.n:
        return "A few more votes may decide it."
    return f"About {_rounded(total - result.n):,} more votes would tell, if it stays like this."


def _rounded(n: int) -> int:
    step = 10 ** max(0, len(str(n)) - 2)
    return -(-n // step) * step


def _interval(estimate: Estimate, low: float | None, high: float | None, n: int) -> Interval:
    return Interval(
        value=estimate.value, low=low, high=high, n=n, no_interval="few" if low is None else None
    )


def _chart(found: HeadToHead, result: Result, estimate: Estimate) -> Part | None:
    if estimate.low is None or estimate.once_low is None:
        return None
    any_time = found.stopping == Stopping.ANY_TIME
    rows = [
        (
            "However often one looks" if any_time else "Looked at once",
            _interval(estimate, estimate.low, estimate.high, result.n),
        )
    ]
    if any_time:
        once = _interval(estimate, estimate.once_low, estimate.once_high, result.n)
        rows.append(("If this were the only look", once))
    return part_of(
        Intervals(
            title=f"{found.first_name} wins",
            rows=tuple(rows),
            reference=0.5,
            reference_label="neither is better",
            note="Ties and votes that both are bad count as half a win. Votes on one prompt, and "
            "votes of one person, hang together; both intervals count that. Decided by the first "
            "row."
            if any_time
            else "",
        )
    )


def _curve(found: HeadToHead, looks: list[Look]) -> Part | None:
    if len(looks) < LEAST_CURVE:
        return None
    line = Series(
        label=f"{found.first_name} wins",
        x=tuple(float(look.n_votes) for look in looks),
        y=tuple(look.value for look in looks),
        low=tuple(look.low for look in looks),
        high=tuple(look.high for look in looks),
    )
    return part_of(
        Curve(
            title="As it came in",
            series=(line,),
            x_label="Votes",
            y_label="Share won",
            note="At every look so far, with the interval of that moment.",
        )
    )


def _outcomes(found: HeadToHead, result: Result) -> list[dict[str, Any]]:
    words = {
        "win": f"{found.first_name} better",
        "tie": "Tie",
        "both_bad": "Both bad",
        "loss": f"{found.second_name} better",
    }
    return [
        {"label": words[name], "n": n, "share": percent(n / result.n), "tone": _TONES[name]}
        for name, n in result.outcomes.items()
    ]


def _facts(found: HeadToHead, result: Result, progress: Progress) -> list[tuple[str, str, str]]:
    """(name, figure, what it means)."""
    facts = [
        (
            "People",
            f"{result.n_people:,}",
            f"worth {result.effective_people:.1f} equally busy ones"
            if result.effective_people
            else "",
        ),
        ("Prompts", f"{result.n_prompts:,}", f"of {found.n_prompts:,}"),
    ]
    if found.n_alike:
        facts.append(
            ("Answered alike", f"{found.n_alike:,}", "prompts; nobody is asked, each is a tie")
        )
    if result.decided_rate is not None:
        facts.append(
            ("Of votes that prefer one", percent(result.decided_rate), f"for {found.first_name}")
        )
    if result.net is not None:
        facts.append(("Wins less losses", f"{points(result.net)} points", "of all votes"))
    if result.left_share is not None:
        facts.append(
            (
                "Stood on the left",
                percent(result.left_share),
                f"of votes, {found.first_name}; {percent(0.5)} is even",
            )
        )
    if result.pull is not None:
        facts.append(
            ("Pull to the left", f"{points(result.pull)} points", "over even, whoever stands there")
        )
    facts.append(
        (
            "Skipped",
            f"{progress.n_skips:,}",
            f"{progress.skips_first_left:,} with {found.first_name} on the left, "
            f"{progress.skips_second_left:,} with {found.second_name}"
            if progress.n_skips
            else "",
        )
    )
    if progress.n_aside:
        facts.append(("Set aside", f"{progress.n_aside:,}", "pairs that too many people skipped"))
    if result.flips is not None:
        facts.append(
            (
                "Hangs on",
                f"{result.flips:,} vote{'s' if result.flips > 1 else ''}",
                "of one person: without them it is even or the other way",
            )
        )
    return facts


def listed(found: HeadToHead, result: Result, progress: Progress) -> Mapping[str, Any]:
    """A row of the list."""
    told = result.verdict != Verdict.WAITING and result.estimate
    return {
        "found": found,
        "said": said(found, result, progress),
        "rate": _rate(result.estimate) if told else "",
        "progress": progress,
        "planned": plan_of(found).votes,
    }
