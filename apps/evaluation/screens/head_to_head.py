"""What the page of a head-to-head says: who is ahead, how sure that is, and what to do next."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from apps.common.numbers import points
from apps.common.report.blocks import Part, part_of
from apps.evaluation.models import HeadToHead, Look
from apps.evaluation.selectors.head_to_head import Progress, plan_of
from measures.blocks import Curve, Intervals, Series
from measures.estimate import Interval
from measures.head_to_head import (
    Difference,
    Estimate,
    Result,
    Several,
    Stopping,
    Verdict,
    least_of,
    votes_needed,
)
from measures.several_systems import BASELINE
from workers.contract.numbers import percent, share

_EXACT = (
    "So few prompts allow no estimate of how votes hang together. This interval needs none: it "
    "rests on the {n} votes that share neither prompt nor person, first come first counted, and "
    "holds exactly, however often one looks."
)
_TONES = {"win": "a", "tie": "tie", "both_bad": "none", "loss": "b"}
LEAST_CURVE = 3  # looks
_HABITS = {
    "side": "The answer on the left",
    "length": "An answer 2.7 times as long as the other",
}


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
        **(_several(found, result.several) if told and result.several else {}),
        "n_looks": len(looks),
        "margin_points": f"{100 * found.margin:g}",
        "protocol": json.dumps(found.protocol, indent=1, ensure_ascii=False),
    }


def said(found: HeadToHead, result: Result, progress: Progress) -> Said:
    """In the words of somebody who has never heard of a confidence sequence; simulated votes are
    told with the verdict wherever it is shown."""
    told = _verdict_said(found, result, progress)
    if not progress.n_simulated:
        return told
    all_of = progress.n_simulated == progress.n_votes
    these = "All votes" if all_of else f"{progress.n_simulated:,} of the {progress.n_votes:,} votes"
    return replace(
        told,
        title=f"Simulated: {told.title}",
        text=f"{told.text} {these} are of simulated people. They show how a comparison goes and "
        "say nothing about the systems: no gate counts them.",
        then="Ask people, to know.",
        tone="warn",
    )


def _verdict_said(found: HeadToHead, result: Result, progress: Progress) -> Said:
    one, other = found.first_name, found.second_name
    estimate = result.estimate
    rate = _rate(estimate)
    people, prompts = least_of(plan_of(found))
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
                f"Figures come with {people} people and {prompts} prompts.",
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
                f"Too few people: {result.n_people} of at least {people}",
                "With so few, their own taste decides and not the systems.",
                f"Invite {people - result.n_people} or more; further votes of the same "
                "people do not help."
                if found.ended_at is None
                else f"Ask again, with {people} people or more.",
                "warn",
                "users",
            )
        case Verdict.TOO_FEW_PROMPTS:
            return Said(
                f"Too few prompts: {result.n_prompts} of at least {prompts}"
                if not found.is_several
                else f"Too few prompts: each system needs votes on {prompts}",
                "With so few, the choice of prompts decides and not the systems.",
                "More come as people vote."
                if found.ended_at is None
                else "Ask about more prompts.",
                "warn",
                "hourglass",
            )
        case Verdict.NOT_CONNECTED | Verdict.SEPARATED | Verdict.BEST:
            return _said_of_several(found, result)
        case Verdict.NO_DIFFERENCE if found.is_several:
            return Said(
                "No difference worth having",
                f"Every two systems are within {100 * found.margin:g} points of a half, which was "
                "said beforehand to be too little to matter.",
                "Choose by cost and speed.",
                "good",
                "circle-check",
            )
        case Verdict.NOT_DECIDED | Verdict.UNDECIDED if found.is_several:
            return _said_of_several(found, result)
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
                f"{one} wins {rate}; they may still be equally good.",
                _more(found, result),
                "warn",
                "scale",
            )
    return Said(
        "Undecided so far",
        f"{one} wins {rate}; they may still be equally good.",
        _more(found, result),
        "",
        "scale",
    )


def _said_of_several(found: HeadToHead, result: Result) -> Said:
    several = result.several
    names = found.systems
    if several is None:
        raise ValueError("a verdict of several systems without their figures")
    if result.verdict == Verdict.NOT_CONNECTED:
        groups = "; ".join(" and ".join(names[k] for k in group) for group in several.groups)
        return Said(
            "The systems cannot be ranked: votes do not connect them",
            f"Nothing compares these groups with each other: {groups}.",
            "More votes connect them." if found.ended_at is None else "Ask about more prompts.",
            "warn",
            "scale",
        )
    if result.verdict == Verdict.SEPARATED:
        return Said(
            "The systems cannot be ranked yet",
            "One of them, or a group, won or lost every vote against the others, so how much "
            "better or worse it is has no bound. Wins and losses by pair are below.",
            "More votes bound it." if found.ended_at is None else "Read the wins by pair.",
            "warn",
            "scale",
        )
    leader = several.standings[0]
    wins = percent(leader.value)
    if result.verdict == Verdict.BEST:
        base = "" if leader.system == BASELINE else f" It beats {names[BASELINE]} in {wins}."
        return Said(
            f"{names[leader.system]} is the best of {len(names)}",
            f"People prefer it to every other. At most once in {1 / found.alpha:.0f} such "
            f"comparisons is any of the {len(several.differences)} differences called wrongly."
            f"{base}",
            "",
            "good",
            "circle-check",
        )
    level = [names[one.system] for one in several.standings if one.best == 1]
    text = f"The votes do not tell which is best of {', '.join(level)}."
    if found.ended_at is None:
        return Said("Undecided so far", text, _more(found, result), "", "scale")
    return Said("Undecided, and no more votes come", text, _more(found, result), "warn", "scale")


def _several(found: HeadToHead, several: Several) -> dict[str, Any]:
    """Tables and chart of more than two systems."""
    names = found.systems
    n = sum(one.wins + one.losses + one.ties for one in several.differences)
    rows = tuple(
        (
            names[one.system],
            Interval(
                value=one.value,
                low=one.low,
                high=one.high,
                n=one.n,
                no_interval="few" if one.low is None else None,
            ),
        )
        for one in several.standings
        if one.system != BASELINE
    )
    chart = Intervals(
        title=f"Wins against {names[BASELINE]}",
        rows=rows,
        reference=0.5,
        reference_label=f"as good as {names[BASELINE]}",
        note="By the strengths that explain all pairs best (Bradley–Terry). The intervals hold for "
        "all systems together, and count that votes on one prompt and of one person hang together.",
    )
    return {
        "chart": part_of(chart) if rows and rows[0][1].low is not None else None,
        "standings": [
            {
                "place": f"{one.best}" if one.best == one.worst else f"{one.best}–{one.worst}",
                "name": names[one.system],
                "is_baseline": one.system == BASELINE,
                "wins": _with_bounds(one.value, one.low, one.high),
                "controlled": _with_bounds(one.controlled, one.controlled_low, one.controlled_high),
                "n": one.n,
            }
            for one in several.standings
        ],
        "differences": [
            {
                "first": names[one.first],
                "second": names[one.second],
                "wins": _with_bounds(one.value, one.low, one.high),
                "told": _better(names, one),
                "one": one,
            }
            for one in several.differences
        ],
        "habits": [
            {
                "name": _HABITS[one.name],
                "wins": _with_bounds(*map(_chance, (one.value, one.low, one.high))),
            }
            for one in several.habits
        ],
        "baseline": names[BASELINE],
        "n_clear": n,
    }


def _better(names: list[str], one: Difference) -> str:
    if not one.told or one.value is None:
        return "undecided"
    return names[one.first if one.value > 0.5 else one.second]


def _chance(log_odds: float) -> float:
    """Of a win, 0 to 1."""
    return 1 / (1 + math.exp(-log_odds))


def _with_bounds(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return "—"
    if low is None or high is None:
        return percent(value)
    return f"{percent(value)} ({100 * low:.0f} to {100 * high:.0f} %)"


def _rate(estimate: Estimate | None) -> str:
    if estimate is None:
        return "no share"
    return share(_interval(estimate, estimate.low, estimate.high, 0))


def _more(found: HeadToHead, result: Result) -> str:
    """What would decide it: people before votes."""
    estimate = result.estimate
    if estimate is not None and estimate.exact_votes is not None:
        return (
            f"Only {estimate.exact_votes} votes share neither prompt nor person, and with so few "
            "prompts nothing else may be counted on: ask about 20 prompts or more."
        )
    if result.people_needed:
        return (
            f"Ask more people: their tastes differ so much that {result.n_people} cannot tell a "
            f"difference of {100 * found.margin:g} points, however much they vote; about "
            f"{result.people_needed} could."
        )
    if estimate is None or estimate.error is None:
        needed = "more votes by more people are needed."
        return needed.capitalize() if found.ended_at is None else f"Ask again: {needed}"
    distance = max(abs(estimate.value - 0.5), found.margin)
    effect = max(1.0, estimate.error**2 * result.n / 0.25)
    ties = (result.outcomes["tie"] + result.outcomes["both_bad"]) / max(1, result.n)
    total = votes_needed(difference=min(distance, 0.49), ties=min(ties, 0.9), effect=effect)
    if found.ended_at is not None:
        least = _rounded(max(total, result.n))
        return f"Ask again, for more than {least:,} votes, on more prompts and by more people."
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
            note=_EXACT.format(n=estimate.exact_votes)
            if estimate.exact_votes is not None
            else "Ties and votes that both are bad count as half a win. Votes on one prompt, and "
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
        "prefers_one": "One is better",
        "win": f"{found.first_name} better",
        "tie": "Tie",
        "both_bad": "Both bad",
        "loss": f"{found.second_name} better",
    }
    return [
        {"label": words[name], "n": n, "share": percent(n / result.n), "tone": _TONES.get(name, "")}
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
                f"of votes, {'the answer drawn as A' if found.is_several else found.first_name}; "
                f"{percent(0.5)} is even",
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
            if progress.n_skips and not found.is_several
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
                "of one person: without them another system stands first"
                if found.is_several
                else "of one person: without them it is even or the other way",
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
