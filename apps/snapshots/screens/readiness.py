"""The page of advice: the method, why, what to do next, and the facts it rests on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.common.registry import PeopleRate, RunResult
from apps.common.report.levels import LOOKS, Level
from apps.snapshots.advice import Advice, Facts, Item, Kind, Method
from apps.snapshots.advice.facts import gain, interval_read, share
from apps.snapshots.services.readiness import FactSource, Gathered
from measures.estimate import Interval
from workers.contract.protocol import StatedProtocol, differences
from workers.contract.reasons import reason_words

_NAMES = {
    "agreement": "Two votes on a comparison agree",
    "alpha": "Krippendorff's alpha",
    "pairs": "Pairs kept",
    "prompts": "Groups of prompts",
    "annotators": "Annotators",
    "tie_share": "Ties and both bad",
    "length_only": "The longer answer wins",
    "text_baseline": "A model of words is right",
    "reward_accuracy": "The reward model is right",
    "reward_gain": "… and better than the length rule by",
    "demonstrations": "Demonstrations",
}
_LEVELS = {
    Method.NOTHING: Level.NOTICE,
    Method.CLEAN: Level.BAD,
    Method.COLLECT: Level.NOTICE,
    Method.UNDECIDED: Level.UNKNOWN,
}
_KINDS = (
    (Kind.METHOD, "Why"),
    (Kind.MEASURED, "What this project measured"),
    (Kind.HYBRID, "Combine it with"),
    (Kind.CAUTION, "Risks"),
    (Kind.IMPROVE, "How to improve the data"),
    (Kind.OVERRULED, "Noted, lower priority"),
)


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    items: list[Item]


@dataclass(frozen=True, slots=True)
class FactLine:
    name: str
    shown: str
    source: FactSource | None


@dataclass(frozen=True, slots=True)
class MethodRow:
    method: str
    name: str
    url: str
    people: str
    win_rate: str
    checks: str
    latency: str
    seconds: float | None
    ended_at: datetime


def page(facts: Facts, advice: Advice, found: Gathered) -> dict[str, Any]:
    return {
        "advice": advice,
        "look": LOOKS[_LEVELS.get(advice.method, Level.OK)],
        "sections": sections(advice),
        "facts": fact_lines(facts, found),
        "stale": any(source.stale for source in found.sources.values()),
    }


def sections(advice: Advice) -> list[Section]:
    """Items by kind, in the order in which a reader needs them."""
    by_kind = [
        Section(title, [item for item in advice.items if item.kind is kind])
        for kind, title in _KINDS
    ]
    return [section for section in by_kind if section.items]


def fact_lines(facts: Facts, found: Gathered) -> list[FactLine]:
    return [
        FactLine(name, _shown(key, getattr(facts, key)), found.sources.get(key))
        for key, name in _NAMES.items()
    ]


def _shown(key: str, value: Any) -> str:
    if value is None:
        return "unknown"
    if not isinstance(value, Interval):
        return f"{value:,}"
    if key == "reward_gain":
        return gain(value)
    return _plain(value) if key == "alpha" else share(value)


def _plain(interval: Interval) -> str:
    """A coefficient, not a share: "0.32 (0.30–0.34, n = 2,200)"."""
    if interval.value is None:
        return f"undefined: {reason_words(interval.undefined)}"
    value = f"{interval.value:.2f}"
    if interval.low is not None and interval.high is not None:
        value = f"{value} ({interval.low:.2f} to {interval.high:.2f}, n = {interval.n:,})"
    return value.replace("-", "−")


def method_rows(runs: Iterable[RunResult]) -> list[MethodRow]:
    """The project's own policies; reward models are no method of their own. Win rates stand side by
    side where one protocol measured them: that of the newest one that has any."""
    policies = [run for run in runs if run.method != "reward"]
    rated = [run for run in policies if run.method != "sft" and run.win_rate is not None]
    axis = next((run.protocol for run in rated if run.protocol is not None), None)
    refused = {run.url: _refused(run, axis) for run in rated} if len(rated) > 1 else {}
    return [
        MethodRow(
            method=run.method_words,
            name=run.name,
            url=run.url,
            people=_people(run.people),
            win_rate=refused.get(run.url) or _win_rate(run),
            checks=_checks(run.checks),
            latency="—" if run.latency_ms is None else f"{run.latency_ms:,.0f} ms",
            seconds=run.seconds,
            ended_at=run.ended_at,
        )
        for run in policies
    ]


def _refused(run: RunResult, axis: StatedProtocol | None) -> str:
    """Why its win rate does not stand beside the others; empty where it may."""
    if run.protocol is None:
        return "not comparable: evaluated before protocols were kept"
    if axis is None or run.protocol.sha256 == axis.sha256:
        return ""
    lines = differences(axis.content, run.protocol.content)
    path, one, other = lines[0]
    more = f", and {len(lines) - 1} more lines" if len(lines) > 1 else ""
    return f"not comparable: {path} is {other!s:.60}, not {one!s:.60}{more}"


def _win_rate(run: RunResult) -> str:
    said = run.win_rate
    if run.method == "sft":
        return "the reference for the other methods"
    found = interval_read(said)
    return "not evaluated" if found is None else share(found)


def _people(rates: Sequence[PeopleRate]) -> str:
    """What the newest head-to-head said, or why nothing is claimed of it."""
    if not rates:
        return "not asked"
    newest = rates[0]
    against = f"against {newest.opponent}, {newest.people:,} people"
    if newest.is_enough:
        interval = Interval(value=newest.value, low=newest.low, high=newest.high, n=newest.n)
        return f"{share(interval)} {against}"
    why = _NOT_TOLD.get(newest.verdict, "no interval")
    more = f"; {newest.least:,} would do" if newest.least else ""
    return f"{why}{more} ({against})"


_NOT_TOLD = {
    "too_few_people": "too few people",
    "too_few_prompts": "too few prompts",
    "one_sided": "sides too uneven",
}


def _checks(found: Mapping[str, Any] | None) -> str:
    """What a regression suite said of it, in few words."""
    if not found:
        return "no suite"
    words = {"not_worse": "not worse", "worse": "worse"}.get(found["standing"], "undecided")
    return f"{words}: {found['lost']:,} of {found['checks']:,} lost, {found['won']:,} won"
