"""What is said of two methods that nothing tells apart, and the numbers in what is said."""

from apps.common.numbers import duration
from apps.common.registry import PeopleRate, RunResult
from apps.snapshots.advice.facts import Item, Kind, Link, interval_read, share
from measures.estimate import Interval
from workers.contract.protocol import StatedProtocol, differences

MOST_LINES = 3  # of two protocols, named in the advice
LONGEST = 60  # characters of a value in such a line


def too_few(one: RunResult, other: RunResult, rate: PeopleRate, links: tuple[Link, ...]) -> Item:
    return Item(
        f"too_few_{one.method}_{other.method}",
        Kind.MEASURED,
        f"{_lacking(rate)} compared {name_of(one.method)} with {name_of(other.method)}"
        if rate.verdict == "too_few_people"
        else f"{_lacking(rate)}: {name_of(one.method)} against {name_of(other.method)}",
        "Nothing is claimed from so little: another few people could turn it round.",
        f"{one.name} against {other.name}: {_counted(rate)}",
        _how_many(rate),
        links,
    )


def too_few_of_one(row: RunResult, rate: PeopleRate, links: tuple[Link, ...]) -> Item:
    return Item(
        f"too_few_{row.run}",
        Kind.MEASURED,
        f"{_lacking(rate)}: {name_of(row.method)} against {rate.opponent}",
        "Nothing is claimed from so little: another few people could turn it round.",
        f"{row.name} against {rate.opponent}: {_counted(rate)}",
        _how_many(rate),
        links,
    )


_LACKING = {
    "too_few_people": "Too few people",
    "too_few_prompts": "Too few prompts",
    "one_sided": "Sides too uneven",
}


def _lacking(rate: PeopleRate) -> str:
    return _LACKING.get(rate.verdict, "No interval")


def _counted(rate: PeopleRate) -> str:
    what = "prompts" if rate.verdict == "too_few_prompts" else "people"
    need = f"; {rate.least:,} {what} are needed" if rate.least else ""
    people = "1 person" if rate.people == 1 else f"{rate.people:,} people"
    return f"{people}, {rate.n:,} votes{need}"


def _how_many(rate: PeopleRate) -> str:
    if rate.verdict == "too_few_people" and rate.least:
        return f"Ask again, with at least {rate.least:,} people."
    if rate.verdict == "too_few_prompts" and rate.least:
        return f"Ask again, with at least {rate.least:,} prompts."
    return "Ask again."


def overlapping(by: str, one: RunResult, other: RunResult, links: tuple[Link, ...]) -> Item:
    who = "the judge's" if by == "judge" else "people's"
    said = f"by the judge, {judge_says(one, other)}" if by == "judge" else ""
    return Item(
        f"overlap_{by}_{one.method}_{other.method}",
        Kind.MEASURED,
        f"{name_of(one.method)} and {name_of(other.method)} are not told apart by {who} win rates",
        "Their intervals overlap.",
        said,
        "A head-to-head between the two tells smaller differences apart.",
        links,
    )


def other_protocols(
    by: str,
    one: RunResult,
    other: RunResult,
    mine: StatedProtocol,
    theirs: StatedProtocol,
    links: tuple[Link, ...],
) -> Item:
    lines = differences(mine.content, theirs.content)
    shown = [
        f"{path} is {here!s:.{LONGEST}} and {there!s:.{LONGEST}}"
        for path, here, there in lines[:MOST_LINES]
    ]
    shown += [f"{len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    who = "The judge's" if by == "judge" else "People's"
    return Item(
        f"protocols_{by}_{one.method}_{other.method}",
        Kind.MEASURED,
        f"{who} win rates of {name_of(one.method)} and {name_of(other.method)} are not compared",
        "They were measured by different protocols, so a difference need not be one of methods.",
        f"{one.name} and {other.name}: {'; '.join(shown)}",
        "Evaluate both by one protocol, or have people compare them directly.",
        links,
    )


# Numbers and names.


def name_of(method: str) -> str:
    return method.upper()


def links_of(*given: tuple[str, str, bool]) -> tuple[Link, ...]:
    return tuple(Link(words, url, is_run) for words, url, is_run in given if url)


def is_told(rate: PeopleRate) -> bool:
    return rate.is_enough and rate.value is not None


def rate_of(rate: PeopleRate) -> Interval:
    return Interval(value=rate.value, low=rate.low, high=rate.high, n=rate.n)


def said_of(rate: PeopleRate) -> str:
    """ "60.0 % (55.2–64.7 %, n = 240) by 12 people"."""
    return f"{share(rate_of(rate))} by {rate.people:,} people"


def judged_of(row: RunResult) -> Interval | None:
    """The judge's win rate where it has both ends."""
    found = interval_read(row.win_rate)
    if found is None or None in (found.value, found.low, found.high):
        return None
    return found


def costs(one: RunResult, other: RunResult) -> str:
    """Training time and latency of both; they decide nothing."""
    first, second = name_of(one.method), name_of(other.method)
    parts = []
    if one.seconds is not None and other.seconds is not None:
        parts.append(
            f"Training took {duration(one.seconds)} with {first} and "
            f"{duration(other.seconds)} with {second}"
        )
    if one.latency_ms is not None and other.latency_ms is not None:
        same = one.protocol and other.protocol and one.protocol.sha256 == other.protocol.sha256
        apart = "" if same else " (not measured by one protocol)"
        parts.append(
            f"half of the answers came within {one.latency_ms:,.0f} ms and "
            f"{other.latency_ms:,.0f} ms{apart}"
        )
    said = "; ".join(parts)
    return f"{said[0].upper()}{said[1:]}; neither decides." if said else ""


def judge_says(first: RunResult, second: RunResult) -> str:
    one, other = judged_of(first), judged_of(second)
    assert one is not None  # noqa: S101 — compared before
    assert other is not None  # noqa: S101 — as above
    return f"{first.name} {share(one)} and {second.name} {share(other)}"
