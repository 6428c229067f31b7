"""A label budget: what so many votes, or so many pairs, come to by each way of asking.

Pairs, votes, money and the day they are in, from the project's own pace, agreement and people, and
from its replay of depth against breadth where there is one. Nothing is assumed that the project or
the reader has not said: without a price there is no money, without a pace no day.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.db.models import Count
from django.utils import timezone

from apps.accounts.models import Project
from apps.agreement.selectors.annotators import agreement_by_person
from apps.agreement.selectors.votes import newest_vote_id, report_get, settings_of
from apps.common.errors import DomainError
from apps.labeling.models import Comparison, LabelingSettings, Vote
from apps.labeling.selectors.forecast import Pace, Work, pace_of, work_of
from apps.snapshots.advice.facts import interval_read
from apps.snapshots.models import SelectionReplay
from apps.snapshots.selectors.selection import (
    cells_at,
    depth_measured,
    depth_words,
    nearest_point,
)
from apps.snapshots.services.gathering import DECIDING_SLOTS
from measures.depth import WAYS, Way, labelled_share
from measures.estimate import Interval, Quantity
from measures.pace import LONGEST_DAYS, DailyPace, Finish, daily_pace, finish
from measures.people import Crowd, Spread, crowd_of, spread_of

MOST_VOTES = 10_000_000
MOST_MONEY = 1_000_000.0
LONGEST_CURRENCY = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked for: votes or pairs, a price of a vote or an hourly wage, and a last day."""

    votes: int | None = None
    pairs: int | None = None
    price: float | None = None
    wage: float | None = None
    currency: str = ""
    by: date | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """Of one vote; `source`: price, wage or settings, empty where nothing is stated. `missing`: why
    a wage gives no price."""

    vote: float | None = None
    currency: str = ""
    source: str = ""
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A way of asking. labelled: share of its pairs that gets a label, by `labelled_from` (replay
    or agreement), None where neither says. done: when its votes are in. measured: the cell of the
    replay that is nearest to these votes."""

    way: Way
    votes: int
    pairs: int
    labelled: float | None
    labelled_from: str
    money: float | None
    done: Finish
    measured: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Agreeing:
    """From the stored agreement report; stale: there are newer votes."""

    percent: Interval | None = None
    alpha: Interval | None = None
    two_way: float | None = None
    at: datetime | None = None
    stale: bool = False


@dataclass(frozen=True, slots=True)
class People:
    """Behind the votes that labels are made from. between: standard deviation between people of
    their agreement with the others, or why it is not known. errors: standard error of the crowd's
    mean agreement with the planned votes by the same people, twice the votes by them, and the
    planned votes by twice as many people; None where `between` is not known."""

    crowd: Crowd
    between: Quantity
    errors: tuple[float, float, float] | None


@dataclass(frozen=True, slots=True)
class ByDay:
    """Votes that are in at the end of a day at the present pace."""

    day: date
    votes: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Budget:
    """wanted: as asked, or the votes that the queue wants where nothing was (`from_queue`); lines:
    empty where nothing is wanted. words: the recommendation, empty where nothing is measured."""

    wanted: Wanted
    from_queue: bool
    price: Price
    lines: Sequence[Line]
    agreeing: Agreeing
    pace: Pace
    daily: DailyPace
    work: Work
    people: People
    by: ByDay | None
    settings: LabelingSettings
    replay: SelectionReplay | None
    words: str
    now: datetime

    @property
    def open_pairs(self) -> int:
        return self.work.states.get(Comparison.State.OPEN, 0)


def budget_of(*, project: Project, wanted: Wanted) -> Budget:
    """Errors: `DomainError` (`bad_budget`) naming the field."""
    _check(wanted)
    work, pace = work_of(project), pace_of(project)
    daily = daily_pace(pace.daily)
    settings = settings_of(project=project)
    replay = depth_measured(project)
    from_queue = wanted.votes is None and wanted.pairs is None and work.to_go > 0
    if from_queue:
        wanted = replace(wanted, votes=min(work.to_go, MOST_VOTES))
    price = _price(wanted, settings, pace)
    agreeing = _agreeing(project)
    result = replay.result if replay else None
    lines = list(_lines(wanted, price, daily, agreeing, result))
    most = max((line.votes for line in lines), default=0)
    return Budget(
        wanted=wanted,
        from_queue=from_queue,
        price=price,
        lines=lines,
        agreeing=agreeing,
        pace=pace,
        daily=daily,
        work=work,
        people=_people(project, most),
        by=_by_day(wanted.by, daily),
        settings=settings,
        replay=replay,
        words=depth_words(result, nearest_point(result, most)) if result and lines else "",
        now=timezone.now(),
    )


def _check(wanted: Wanted) -> None:
    def refuse(field: str, message: str) -> None:
        raise DomainError(message, code="bad_budget", field=field)

    for field in ("votes", "pairs"):
        number = getattr(wanted, field)
        if number is not None and not 1 <= number <= MOST_VOTES:
            refuse(field, f"A budget is of 1 to {MOST_VOTES:,} {field}.")
    if wanted.votes is not None and wanted.pairs is not None:
        refuse("pairs", "State votes or pairs, not both: each follows from the other.")
    for field, of in (("price", "A price of a vote"), ("wage", "An hourly wage")):
        number = getattr(wanted, field)
        if number is not None and not 0 < number <= MOST_MONEY:
            refuse(field, f"{of} is above 0 and at most {MOST_MONEY:,.0f}.")
    if wanted.price is not None and wanted.wage is not None:
        refuse("wage", "State a price of a vote or an hourly wage, not both.")
    if len(wanted.currency) > LONGEST_CURRENCY or not wanted.currency.isprintable():
        refuse("currency", f"A currency is at most {LONGEST_CURRENCY} characters, such as EUR.")
    if wanted.by is not None:
        days = (wanted.by - timezone.now().date()).days
        if not 0 <= days <= LONGEST_DAYS:
            refuse("by", "The day lies in the past or more than a year ahead.")


def _price(wanted: Wanted, settings: LabelingSettings, pace: Pace) -> Price:
    currency = wanted.currency or settings.currency
    if wanted.price is not None:
        return Price(wanted.price, currency, "price")
    if wanted.wage is not None:
        if pace.seconds is None:
            return Price(None, currency, "wage", "no_times")
        return Price(wanted.wage * pace.seconds / 3600, currency, "wage")
    if settings.vote_price:
        return Price(settings.vote_price, settings.currency, "settings")
    return Price()


def _lines(
    wanted: Wanted,
    price: Price,
    daily: DailyPace,
    agreeing: Agreeing,
    result: Mapping[str, Any] | None,
) -> Iterable[Line]:
    for way in WAYS:
        if wanted.votes is not None:
            votes, pairs = wanted.votes, wanted.votes // way.depth
        elif wanted.pairs is not None:
            votes, pairs = wanted.pairs * way.depth, wanted.pairs
        else:
            return
        cell = cells_at(result, nearest_point(result, votes)).get(way.name) if result else None
        labelled, source = (cell["labelled"], "replay") if cell else (None, "")
        if cell is None and agreeing.two_way is not None:
            labelled = labelled_share(way, agreeing.two_way)
            source = "agreement" if labelled is not None else ""
        yield Line(
            way=way,
            votes=votes,
            pairs=pairs,
            labelled=labelled,
            labelled_from=source,
            money=None if price.vote is None else votes * price.vote,
            done=finish(votes, daily),
            measured=cell,
        )


def _agreeing(project: Project) -> Agreeing:
    report = report_get(project=project)
    if report is None or not report.n_votes:
        return Agreeing()
    statistics = report.figures["statistics"]
    return Agreeing(
        percent=interval_read(statistics["percent"], "n_items"),
        alpha=interval_read(statistics["alpha"], "n_items"),
        two_way=report.figures["two_way"]["percent"]["value"],
        at=report.computed_at,
        stale=newest_vote_id(project=project) > report.last_vote_id,
    )


def _people(project: Project, votes: int) -> People:
    cast = Vote.objects.filter(
        project=project, is_current=True, slot__kind__in=DECIDING_SLOTS
    ).exclude(source=Vote.Source.SIMULATED)
    counts = cast.order_by().values("annotator").annotate(n=Count("pk")).values_list("n", flat=True)
    crowd = crowd_of(list(counts))
    rows = agreement_by_person(project=project)
    means, errors, pairs = zip(*rows, strict=True) if rows else ((), (), ())
    spread, between = spread_of(means, errors, pairs)
    return People(crowd, between, _errors(spread, crowd, votes))


def _errors(spread: Spread | None, crowd: Crowd, votes: int) -> tuple[float, float, float] | None:
    if spread is None or not crowd.effective or not votes:
        return None
    now = crowd.effective
    return (
        spread.error(effective=now, votes=votes),
        spread.error(effective=now, votes=2 * votes),
        spread.error(effective=2 * now, votes=votes),
    )


def _by_day(day: date | None, daily: DailyPace) -> ByDay | None:
    per_day = daily.per_day
    if day is None or daily.why_not or per_day.value is None:
        return None
    end = datetime.combine(day + timedelta(days=1), time(), tzinfo=UTC)
    days = max(0.0, (end - timezone.now()) / timedelta(days=1))
    return ByDay(
        day,
        days * per_day.value,
        None if per_day.low is None else days * per_day.low,
        None if per_day.high is None else days * per_day.high,
    )
