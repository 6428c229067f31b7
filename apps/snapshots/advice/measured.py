"""What this project measured of its own methods: which is ahead, and which is not advised.

Two methods are compared by the strongest evidence that there is of them:

1. people, directly: the newest head-to-head between their policies, where its interval excludes ½
2. people, against the same opponent under the same protocol, where the intervals are disjoint
3. the held-out judge under one protocol, where the intervals are disjoint; not where people were
   asked directly, enough of them, and could not tell the two apart

What other protocols measured is never compared; their lines that differ are named. A method is
advised where it is ahead of another and behind none. Of several policies of a method the one that
the judge rates highest comes first, then those that it did not rate, newest first: people's votes
do not choose whom they are counted for. Training time and latency are named and decide nothing.

A policy whose regression suite says worse, or to which people prefer its baseline, speaks against
its method until another policy of it passes the same test. SFT is what the others start from: to
lose to it speaks against a method, to win is no claim over the other methods.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from apps.common.registry import PeopleRate, RunResult, protocol_url
from apps.snapshots.advice.evidence import (
    costs,
    is_told,
    judge_says,
    judged_of,
    links_of,
    name_of,
    other_protocols,
    overlapping,
    rate_of,
    said_of,
    too_few,
    too_few_of_one,
)
from apps.snapshots.advice.facts import Facts, Item, Kind, Link, Method, gain, interval_read
from measures.estimate import Interval

# The simplest first: between two that nothing measured tells apart, it is advised.
COMPARED = (Method.DPO, Method.KTO, Method.GRPO, Method.PPO)
_RATED = {*COMPARED, Method.SFT}


@dataclass(frozen=True, slots=True)
class Measured:
    """claim: the method that is ahead with its reason, or nothing; headline: of the claim;
    against: why a method is not advised; notes: why nothing is claimed of two methods."""

    claim: tuple[tuple[Method, Item], ...] = ()
    headline: str = ""
    against: Mapping[Method, Item] = field(default_factory=dict)
    notes: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class _Win:
    """A method that is ahead of another, and by what."""

    winner: Method
    loser: Method
    title: str
    evidence: str
    links: tuple[Link, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class _Found:
    """Of two methods: who is ahead, if anybody; what is in the way of a claim; whether there was
    anything to compare."""

    win: _Win | None = None
    notes: tuple[Item, ...] = ()
    asked: bool = False


@dataclass(frozen=True, slots=True)
class _Rated:
    """The policies, and of each what people said of it, also where it was the second system."""

    facts: Facts
    rows: Mapping[str, RunResult]
    rates: Mapping[str, Sequence[PeopleRate]]

    def is_baseline(self, row: RunResult, rate: PeopleRate) -> bool:
        """Whether the opponent is what the run is held against: SFT, or what this project has not
        trained; not another method's policy, nor another one of its own."""
        opponent = self.rows.get(rate.opponent_run)
        return opponent is None or (opponent.method == Method.SFT != row.method)


def measured(facts: Facts) -> Measured:
    """Of the rows in `facts.methods`; reward models are none of these."""
    rated = _rated(facts)
    barred = {run: why for run, row in rated.rows.items() if (why := _problems(rated, row))}
    against: dict[Method, Item] = {}
    for method in (Method.SFT, *COMPARED):
        rows = _best_first(row for row in rated.rows.values() if row.method == method)
        if item := _against(rated, method, rows, barred):
            against[method] = item
    policies = {
        method: _best_first(
            row for row in rated.rows.values() if row.method == method and row.run not in barred
        )
        for method in COMPARED
        if method not in against
    }
    found = {
        (one, other): _compared(rated, policies[one], policies[other])
        for one, other in combinations([method for method in policies if policies[method]], 2)
    }
    wins = [pair.win for pair in found.values() if pair.win is not None]
    notes = [note for pair in found.values() for note in pair.notes]
    claim = _claim(wins)
    if wins and not claim:
        notes.append(_no_first(wins))
    if missing := [pair for pair, one in found.items() if not one.asked]:
        notes.append(_not_compared(missing))
    headline = f"Use {name_of(claim[0][0])}: {claim[0][1].title}." if claim else ""
    return Measured(claim, headline, against, tuple(notes))


def _rated(facts: Facts) -> _Rated:
    rows = {row.run: row for row in facts.methods if row.method in _RATED}
    rates: dict[str, list[PeopleRate]] = {run: list(row.people) for run, row in rows.items()}
    for run, row in rows.items():
        for rate in row.people:
            if rate.opponent_run in rows:
                rates[rate.opponent_run].append(_turned(rate, run, row.name))
    newest: dict[str, dict[str, PeopleRate]] = {run: {} for run in rows}
    for run, given in rates.items():
        for rate in sorted(given, key=lambda one: one.ended_at, reverse=True):
            newest[run].setdefault(rate.opponent_run or rate.opponent, rate)
    return _Rated(facts, rows, {run: list(given.values()) for run, given in newest.items()})


def _turned(rate: PeopleRate, run: str, name: str) -> PeopleRate:
    """As seen from the opponent. What it rests on was hashed without the first system, so it is
    not the same as that of another run."""
    value, low, high = (
        None if one is None else 1 - one for one in (rate.value, rate.high, rate.low)
    )
    return replace(
        rate, opponent=name, opponent_run=run, value=value, low=low, high=high, protocol=None
    )


def _best_first(rows: Iterable[RunResult]) -> list[RunResult]:
    """Highest by the judge first, then those without its rate; newest first where they are level.
    Rates of another protocol than the newest's count as none."""
    newest = sorted(rows, key=lambda row: row.ended_at, reverse=True)
    axis = next((row.protocol for row in newest if judged_of(row) and row.protocol), None)

    def rank(row: RunResult) -> float:
        rate = judged_of(row)
        if rate is None or axis is None or row.protocol is None:
            return 0.0
        return (rate.value or 0.0) if row.protocol.sha256 == axis.sha256 else 0.0

    return sorted(newest, key=rank, reverse=True)


# What speaks against a method.


@dataclass(frozen=True, slots=True)
class _Problem:
    test: str  # suite or people
    title: str
    reason: str
    evidence: str
    next_step: str
    links: tuple[Link, ...]


def _problems(rated: _Rated, row: RunResult) -> list[_Problem]:
    found = []
    if row.checks and row.checks["standing"] == "worse":
        found.append(_regressed(row))
    lost = [
        rate
        for rate in rated.rates[row.run]
        if is_told(rate) and rate.high < 0.5 and rated.is_baseline(row, rate)  # type: ignore[operator] # told rates have both ends
    ]
    if lost:
        found.append(_baseline_preferred(row, lost[0]))
    return found


def _regressed(row: RunResult) -> _Problem:
    assert row.checks is not None  # noqa: S101 — asked for by the caller
    worse = dict(row.checks.get("worse") or {})
    parts = [f"{name}: {said}" for name, one in worse.items() if (said := _difference(one))]
    over_all = _difference(row.checks.get("difference"))
    parts += [f"all checks: {over_all}"] if over_all else []
    lost = f"{row.checks['lost']:,} of {row.checks['checks']:,} checks lost"
    return _Problem(
        "suite",
        f"it became worse at {', '.join(worse) or 'its regression suite'}",
        "What it could do before it does less often now, by checks that need no judge, so what "
        "people or a judge prefer does not make up for it.",
        "; ".join([f"{row.name}, {lost}, {row.checks['won']:,} won", *parts]),
        "Read the lost answers and train again closer to the reference; a policy of this method "
        "whose suite says “not worse” lifts this.",
        links_of(("Regression suite", row.checks_url, True)),
    )


def _difference(said: object) -> str:
    found = interval_read(said) if isinstance(said, Mapping) else None
    return gain(found) if found is not None and found.value is not None else ""


def _baseline_preferred(row: RunResult, rate: PeopleRate) -> _Problem:
    return _Problem(
        "people",
        f"people prefer {rate.opponent}",
        "The whole interval lies under 50 %: what was there before training is preferred.",
        f"{row.name} {said_of(rate)} against {rate.opponent}",
        "Train again and ask people again; a policy of this method that is not behind its "
        "baseline lifts this.",
        links_of((f"Head-to-head against {rate.opponent}", rate.url, False)),
    )


def _against(
    rated: _Rated,
    method: Method,
    rows: Sequence[RunResult],
    barred: Mapping[str, Sequence[_Problem]],
) -> Item | None:
    problems = [problem for row in rows for problem in barred.get(row.run, ())]
    clean = [row for row in rows if row.run not in barred]
    passed = set()
    if any(row.checks and row.checks["standing"] == "not_worse" for row in clean):
        passed.add("suite")
    if any(
        is_told(rate) and rated.is_baseline(row, rate)
        for row in clean
        for rate in rated.rates[row.run]
    ):
        passed.add("people")
    left = [problem for problem in problems if problem.test not in passed]
    if not left:
        return None
    first = left[0]
    others = [one for one in left[1:] if one.test != first.test][:1]
    every = [first, *others]
    return Item(
        f"against_{method}",
        Kind.MEASURED,
        f"{name_of(method)} is not advised: {' and '.join(one.title for one in every)}",
        " ".join(one.reason for one in every),
        "; ".join(one.evidence for one in every),
        first.next_step,
        tuple(link for one in every for link in one.links),
    )


# Two methods, by the strongest evidence there is of them.


def _compared(rated: _Rated, ones: Sequence[RunResult], others: Sequence[RunResult]) -> _Found:
    """ones, others: the policies of a method each, best first."""
    both = [(i + j, one, other) for i, one in enumerate(ones) for j, other in enumerate(others)]
    pairs = [(one, other) for _, one, other in sorted(both, key=lambda pair: pair[0])]
    direct = _directly(rated, pairs)
    if direct.win:
        return replace(direct, win=_with_judge(direct.win, pairs), notes=())
    shared = _same_opponent(rated, pairs)
    if shared.win:
        win = _with_judge(shared.win, pairs)
        return _Found(win, direct.notes, asked=True)
    told = any(note.key.startswith("not_told_apart") for note in direct.notes)
    judged = _Found() if told else _by_judge(rated, pairs)
    return _Found(
        judged.win,
        (*direct.notes, *shared.notes, *judged.notes),
        asked=direct.asked or shared.asked or judged.asked,
    )


_Pairs = Sequence[tuple[RunResult, RunResult]]


def _directly(rated: _Rated, pairs: _Pairs) -> _Found:
    found = [
        (one, other, rate)
        for one, other in pairs
        for rate in rated.rates[one.run]
        if rate.opponent_run == other.run
    ]
    if not found:
        return _Found()
    one, other, rate = next((three for three in found if is_told(three[2])), found[0])
    link = links_of((f"Head-to-head: {one.name} against {other.name}", rate.url, False))
    if not is_told(rate):
        return _Found(notes=(too_few(one, other, rate, link),), asked=True)
    low, high = rate.low or 0.0, rate.high or 0.0
    if low <= 0.5 <= high:
        note = Item(
            f"not_told_apart_{one.method}_{other.method}",
            Kind.MEASURED,
            f"People do not tell {name_of(one.method)} and {name_of(other.method)} apart",
            "Enough of them were asked directly, and the interval contains 50 %. The judge stands "
            "in for people, so it is not asked instead.",
            f"{one.name} {said_of(rate)} against {other.name}",
            "More prompts and people narrow the interval, if a smaller difference matters.",
            link,
        )
        return _Found(notes=(note,), asked=True)
    if high < 0.5:
        one, other, rate = other, one, _turned(rate, one.run, one.name)
    win = _Win(
        Method(one.method),
        Method(other.method),
        f"people prefer it to {name_of(other.method)}",
        f"{one.name} {said_of(rate)} against {other.name}",
        link,
        f"People compared the two directly and blind. {costs(one, other)}",
    )
    return _Found(win, asked=True)


def _same_opponent(rated: _Rated, pairs: _Pairs) -> _Found:
    notes: dict[str, Item] = {}
    for one, other in pairs:
        for mine, theirs in _of_one_opponent(rated, one, other):
            links = links_of(
                (f"Head-to-head: {one.name} against {mine.opponent}", mine.url, False),
                (f"Head-to-head: {other.name} against {mine.opponent}", theirs.url, False),
            )
            if few := [
                (row, rate) for row, rate in ((one, mine), (other, theirs)) if not is_told(rate)
            ]:
                row, rate = few[0]
                notes.setdefault("few", too_few_of_one(row, rate, links))
            elif mine.protocol is None or theirs.protocol is None:
                continue
            elif mine.protocol.sha256 != theirs.protocol.sha256:
                item = other_protocols("people", one, other, mine.protocol, theirs.protocol, links)
                notes.setdefault("protocols", item)
            elif ahead := _disjoint(one, rate_of(mine), other, rate_of(theirs)):
                return _Found(_by_people(ahead, mine, theirs, is_one=ahead[0] is one, links=links))
            else:
                notes.setdefault("overlap", overlapping("people", one, other, links))
    return _Found(notes=tuple(notes.values()), asked=bool(notes))


def _of_one_opponent(
    rated: _Rated, one: RunResult, other: RunResult
) -> Iterator[tuple[PeopleRate, PeopleRate]]:
    for mine in rated.rates[one.run]:
        for theirs in rated.rates[other.run]:
            same = (mine.opponent_run or mine.opponent) == (theirs.opponent_run or theirs.opponent)
            if same and mine.protocol is not None and theirs.protocol is not None:
                yield mine, theirs


def _by_people(
    ahead: tuple[RunResult, RunResult],
    mine: PeopleRate,
    theirs: PeopleRate,
    *,
    is_one: bool,
    links: tuple[Link, ...],
) -> _Win:
    first, second = ahead
    best, rest = (mine, theirs) if is_one else (theirs, mine)
    return _Win(
        Method(first.method),
        Method(second.method),
        f"people prefer it to {best.opponent} more often than {name_of(second.method)}",
        f"against {best.opponent}, {first.name} {said_of(best)} and {second.name} {said_of(rest)}",
        links,
        "They were not compared directly, but with the same opponent by the same protocol, and "
        f"the intervals do not overlap. {costs(first, second)}",
    )


def _by_judge(rated: _Rated, pairs: _Pairs) -> _Found:
    notes: dict[str, Item] = {}
    for one, other in pairs:
        mine, theirs = judged_of(one), judged_of(other)
        if mine is None or theirs is None or one.protocol is None or other.protocol is None:
            continue
        links = links_of(
            (f"Evaluation of {one.name}", one.judged_url, True),
            (f"Evaluation of {other.name}", other.judged_url, True),
        )
        if one.protocol.sha256 != other.protocol.sha256:
            diff = protocol_url(rated.facts.project, one.protocol.sha256, other.protocol.sha256)
            links += links_of(("What differs between the protocols", diff, False))
            item = other_protocols("judge", one, other, one.protocol, other.protocol, links)
            notes.setdefault("protocols", item)
        elif ahead := _disjoint(one, mine, other, theirs):
            first, second = ahead
            return _Found(
                _Win(
                    Method(first.method),
                    Method(second.method),
                    f"the held-out judge prefers it to {name_of(second.method)}",
                    f"by the judge, not by people: {judge_says(first, second)}",
                    links,
                    "One protocol measured both and the intervals do not overlap. People have not "
                    f"decided between the two. {costs(first, second)}",
                ),
                asked=True,
            )
        else:
            notes.setdefault("overlap", overlapping("judge", one, other, links))
    return _Found(notes=tuple(notes.values()), asked=bool(notes))


def _with_judge(win: _Win, pairs: _Pairs) -> _Win:
    """People decide; that the judge says otherwise is said."""
    for one, other in pairs:
        mine, theirs = judged_of(one), judged_of(other)
        same = one.protocol and other.protocol and one.protocol.sha256 == other.protocol.sha256
        if not same or mine is None or theirs is None:
            continue
        ahead = _disjoint(one, mine, other, theirs)
        if ahead and ahead[0].method != win.winner:
            said = f"The held-out judge says otherwise ({judge_says(*ahead)}); people decide."
            return replace(win, reason=f"{win.reason} {said}")
        return win
    return win


def _disjoint(
    one: RunResult, mine: Interval, other: RunResult, theirs: Interval
) -> tuple[RunResult, RunResult] | None:
    """The one ahead first; None where the intervals overlap."""
    assert None not in (mine.low, mine.high, theirs.low, theirs.high)  # noqa: S101 — told rates
    if mine.low > theirs.high:  # type: ignore[operator] # asserted above
        return one, other
    if theirs.low > mine.high:  # type: ignore[operator] # asserted above
        return other, one
    return None


# What is claimed of all of them.


def _claim(wins: Sequence[_Win]) -> tuple[tuple[Method, Item], ...]:
    """The method ahead of another and behind none; of several, the simplest."""
    lost = {win.loser for win in wins}
    ahead = [one for one in COMPARED if one not in lost and any(w.winner is one for w in wins)]
    if not ahead:
        return ()
    best = ahead[0]
    mine = [win for win in wins if win.winner is best]
    level = ", ".join(name_of(method) for method in ahead[1:])
    reasons = list(dict.fromkeys(win.reason for win in mine))
    if level:
        reasons.append(f"Nothing measured puts {level} behind it; {name_of(best)} is the simpler.")
    item = Item(
        "measured",
        Kind.METHOD,
        " and ".join(win.title for win in mine),
        " ".join(reasons),
        "; ".join(win.evidence for win in mine),
        "Measure again after the next training: the newest results decide.",
        tuple(link for win in mine for link in win.links),
    )
    return ((best, item),)


def _no_first(wins: Sequence[_Win]) -> Item:
    return Item(
        "no_first",
        Kind.MEASURED,
        "Every measured method is behind another one",
        "The results go in a circle, so none of them is advised by what was measured.",
        "; ".join(win.evidence for win in wins),
        "Compare the best policy of each in head-to-heads on the same prompts.",
        tuple(link for win in wins for link in win.links),
    )


def _not_compared(pairs: Sequence[tuple[Method, Method]]) -> Item:
    names = ", ".join(f"{name_of(one)} with {name_of(other)}" for one, other in pairs)
    return Item(
        "not_compared",
        Kind.MEASURED,
        f"Not compared yet: {names}",
        "Both were trained in this project, and neither people nor the judge have compared them.",
        "",
        "Have people compare their best policies in a head-to-head, or evaluate both by one "
        "protocol.",
    )
