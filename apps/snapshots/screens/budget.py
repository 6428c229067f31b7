"""The page of a label budget: its table, and the figures of the project that it rests on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from apps.common.numbers import count, figure, fixed, share
from apps.snapshots.models import SelectionReplay
from apps.snapshots.selectors.selection import WAY_WORDS, loss_words, verdict_words
from apps.snapshots.services.budget import Budget, Line
from measures.estimate import Interval
from measures.pace import LATELY_DAYS, Finish
from workers.contract.reasons import reason_words

NO_DAY = {
    "": "",
    "no_votes": "not at the present pace: nobody has voted here in the last 28 days",
    "none_lately": f"not at the present pace: no votes in the last {LATELY_DAYS} days",
    "few_votes": "not known: the votes of the last 28 days are too few",
    "too_far": "more than a year at the present pace",
}
_VERDICTS = {"better": "better", "worse": "worse", "no_evidence": "no clear difference", "": ""}


@dataclass(frozen=True, slots=True)
class LineRow:
    """A way of asking, as its row says it. tone: of the verdict's badge."""

    name: str
    votes: str
    pairs: str
    labelled: str
    money: str
    done: str
    done_range: str
    log_loss: str
    above: str
    verdict: str
    tone: str


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DepthRow:
    """A way at a number of votes, of a replay."""

    votes: int
    name: str
    pairs: int
    labelled: str
    figures: tuple[tuple[str, str], ...]  # log loss, accuracy, calibration error; each with `above`
    verdict: str


@dataclass(frozen=True, slots=True)
class DepthPage:
    row: SelectionReplay
    words: str
    cells: list[DepthRow]


def page(budget: Budget) -> dict[str, Any]:
    point = next((line.measured["votes"] for line in budget.lines if line.measured), None)
    return {
        "budget": budget,
        "lines": [_line(line, budget) for line in budget.lines],
        "point": point,
        "facts": list(_facts(budget)),
        "crowd": list(_crowd(budget)),
        "notes": list(_notes(budget)),
    }


def budget_json(budget: Budget) -> dict[str, Any]:
    """As the API gives it."""
    per_day, agreeing, people = budget.daily.per_day, budget.agreeing, budget.people
    return {
        "words": budget.words,
        "price": budget.price.vote,
        "currency": budget.price.currency,
        "lines": [_line_json(line) for line in budget.lines],
        "per_day": per_day.value,
        "per_day_low": per_day.low,
        "per_day_high": per_day.high,
        "seconds": budget.pace.seconds,
        "agreement": agreeing.percent.value if agreeing.percent else None,
        "alpha": agreeing.alpha.value if agreeing.alpha else None,
        "people": people.crowd.people,
        "busiest": people.crowd.busiest,
        "effective_people": people.crowd.effective,
        "between_people": people.between.value,
        "votes_by_day": budget.by.votes if budget.by else None,
        "notes": list(_notes(budget)),
    }


def _line_json(line: Line) -> dict[str, Any]:
    names = ("votes", "pairs", "labelled", "money", "measured")
    return {name: getattr(line, name) for name in names} | {
        "way": line.way.name,
        "days": line.done.days,
        "soonest": line.done.soonest,
        "latest": line.done.latest,
        "no_day": line.done.why_not,
    }


def depth_page(row: SelectionReplay) -> DepthPage:
    cells = sorted(row.result.get("cells", []), key=lambda cell: cell["votes"])
    return DepthPage(row, verdict_words(row), [_cell(cell) for cell in cells])


def _cell(cell: Mapping[str, Any]) -> DepthRow:
    above = [cell[f"{name}_above"] for name in ("log_loss", "accuracy", "calibration_error")]
    return DepthRow(
        votes=cell["votes"],
        name=WAY_WORDS[cell["way"]],
        pairs=cell["pairs"],
        labelled=share(cell["labelled"], 0),
        figures=(
            (fixed(cell["log_loss"], 4), loss_words(above[0])),
            (share(cell["accuracy"]), _points(above[1])),
            (share(cell["calibration_error"]), _points(above[2])),
        ),
        verdict=_verdict(cell),
    )


def _verdict(cell: Mapping[str, Any]) -> str:
    if cell["under_tuned"]:
        return "under-tuned, not compared"
    return "the baseline" if cell["way"] == "single" else _VERDICTS[cell["verdict"]]


def _points(of: Mapping[str, Any] | None) -> str:
    """Percentage points, as −0.6 (−1.2 to 0.1)."""
    if of is None:
        return ""
    return loss_words({name: of[name] and 100 * of[name] for name in ("value", "low", "high")}, 1)


def _line(line: Line, budget: Budget) -> LineRow:
    cell = line.measured
    verdict = _verdict(cell) if cell else ""
    return LineRow(
        name=WAY_WORDS[line.way.name],
        votes=count(line.votes),
        pairs=count(line.pairs),
        labelled="" if line.labelled is None else count(round(line.labelled * line.pairs)),
        money=money_words(line.money, budget),
        done=_day(line.done.days, budget.now) or NO_DAY[line.done.why_not],
        done_range=_range(line.done, budget.now),
        log_loss=fixed(cell["log_loss"], 4) if cell else "",
        above=loss_words(cell["log_loss_above"]) if cell else "",
        verdict=verdict,
        tone={"better": "good", "worse": "bad"}.get(verdict, ""),
    )


def money_words(money: float | None, budget: Budget) -> str:
    return "" if money is None else f"{fixed(money, 2)} {budget.price.currency}".strip()


def _day(days: float | None, now: datetime) -> str:
    return "" if days is None else _date((now + timedelta(days=days)).date())


def _date(day: date) -> str:
    return f"{day:%Y-%m-%d}"


def _range(done: Finish, now: datetime) -> str:
    if done.days is None or done.soonest is None:
        return ""
    if done.latest is None:
        return f"{_day(done.soonest, now)} or later, without an end"
    return f"{_day(done.soonest, now)} to {_day(done.latest, now)}"


def _facts(budget: Budget) -> Iterator[Fact]:
    pace, per_day = budget.pace, budget.daily.per_day
    if per_day.value is not None:
        yield Fact(
            "Votes a day",
            _with_range(per_day, 1),
            f"the last {count(len(pace.daily))} days, {count(pace.people)} people",
        )
    else:
        yield Fact("Votes a day", "nobody has voted here yet", "imported votes do not count")
    if pace.seconds is None:
        yield Fact("Active time of a vote", "not known", "no vote of these days was timed")
    else:
        yield Fact(
            "Active time of a vote",
            f"{figure(pace.seconds)} s",
            f"mean of {count(pace.timed)} timed votes",
        )
    if (vote := budget.price.vote) is not None:
        sources = {
            "price": "as stated above",
            "wage": "by the wage above and the active time",
            "settings": "from the project’s settings",
        }
        words = f"{figure(vote)} {budget.price.currency}"
        yield Fact("Price of a vote", words, sources[budget.price.source])
    agreeing = budget.agreeing
    when = "newer votes are not in it" if agreeing.stale else "the stored agreement report"
    for name, value in (
        ("Two votes on a pair agree", agreeing.percent),
        ("Krippendorff’s alpha", agreeing.alpha),
    ):
        if value is None or value.value is None:
            yield Fact(name, "not known", "no two votes on pairs drawn at random")
        else:
            yield Fact(name, _with_range(value, 3), when)
    yield Fact(
        "Queue",
        f"{count(budget.open_pairs)} open pairs",
        f"{count(budget.work.to_go)} votes wanted, {budget.settings.overlap} votes a pair now",
    )


def _with_range(of: Interval, places: int) -> str:
    if of.low is None or of.high is None:
        why = f"; {reason_words(of.no_interval)}" if of.no_interval else ""
        return f"{fixed(of.value, places)}{why}"
    return f"{fixed(of.value, places)} ({fixed(of.low, places)} to {fixed(of.high, places)})"


def _crowd(budget: Budget) -> Iterator[Fact]:
    people = budget.people
    crowd = people.crowd
    if crowd.busiest is None or crowd.effective is None:
        return
    yield Fact("People with votes", count(crowd.people), f"{count(crowd.votes)} votes")
    yield Fact("Votes by the most active", share(crowd.busiest))
    yield Fact(
        "Effective number of people",
        fixed(crowd.effective, 1),
        "so many people with equal shares would tell as much about people",
    )
    if people.between.value is None:
        yield Fact(
            "Differences between people",
            "not known",
            reason_words(people.between.undefined or ""),
        )
        return
    yield Fact(
        "Differences between people",
        f"{fixed(100 * people.between.value, 1)} points",
        "standard deviation of their agreement with the others, beyond chance",
    )
    if people.errors is not None:
        now, votes, doubled = (f"± {fixed(100 * one, 2)} points" for one in people.errors)
        yield Fact("Error of the mean: this budget, these people", now, "one standard error")
        yield Fact("… twice the votes by these people", votes)
        yield Fact("… this budget by twice as many people", doubled)


def _notes(budget: Budget) -> Iterator[str]:
    if budget.from_queue:
        yield "No votes or pairs were stated, so these are the votes that the queue wants."
    if budget.price.vote is None:
        why = "No price and no wage is stated, so no money is shown."
        if budget.price.missing:
            why = "No vote of the last 28 days was timed, so the wage gives no price."
        yield why
    most = max((line.pairs for line in budget.lines), default=0)
    if most > budget.open_pairs:
        yield (
            f"{count(most)} pairs are more than the {count(budget.open_pairs)} that are open: "
            f"{count(most - budget.open_pairs)} would have to be imported."
        )
    deepest = max((line.way.depth for line in budget.lines), default=0)
    if 0 < budget.work.people < deepest:
        here = budget.work.people
        yield f"{deepest} votes a pair need {deepest} people; {here} can label here now."
    if budget.by is not None:
        by, asked = budget.by, [line.votes for line in budget.lines]
        span = ""
        if by.low is not None and by.high is not None:
            span = f" ({count(round(by.low))} to {count(round(by.high))})"
        words = f"By the end of {_date(by.day)} {count(round(by.votes))} votes{span} will be in"
        if asked and min(asked) > by.votes:
            words += ", fewer than this budget"
        yield f"{words}, at the present pace."
    elif budget.wanted.by is not None:
        yield f"How many votes will be in by then: {NO_DAY[budget.daily.why_not or 'no_votes']}."
