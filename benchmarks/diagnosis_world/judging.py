"""How well a way of judging does on stored runs: found, how soon, which link, and false alarms.

A judge is shown what a run emitted and says at which step it first speaks and which links it names,
the first one first.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.diagnosis_world.faults import HEALTHY
from benchmarks.diagnosis_world.records import Record
from benchmarks.diagnosis_world.replaying import alerts_of, evidence_of
from measures.estimate import Interval
from measures.intervals import wilson
from workers.diagnosis.replay import diagnose
from workers.rules.rule import STAGES

SOON = 0.2  # share of the planned steps in which a statistical fault should be found
CONTRACT_STEPS = 3  # updates in which a contract should be


@dataclass(frozen=True, slots=True)
class Said:
    """`step` None: it said nothing. `links`: those that may have broken first, likeliest first."""

    step: int | None = None
    links: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


Judge = Callable[[Record], Said]


def concord(record: Record) -> Said:
    """The diagnosis of this repository, over what the run emitted and nothing else. It is not
    compared with past healthy runs: every world has a reward model of its own."""
    found = diagnose(
        record.curves,
        kind=record.kind,
        config=record.config,
        evidence=evidence_of(record),
        failure=record.failure,
    )
    if found.verdict is None:
        return Said()
    rules = (found.verdict.first.rule, *(one.rule for one in found.verdict.alternatives))
    return Said(min(one.step for one in found.findings), tuple(found.verdict.stages), rules)


@dataclass(frozen=True, slots=True)
class Outcome:
    record: Record
    said: Said

    @property
    def found(self) -> bool:
        return self.said.step is not None

    @property
    def delay(self) -> int | None:
        """Updates that were made with the fault until it was spoken of; 1 is the very first."""
        if self.said.step is None:
            return None
        return max(0, self.said.step - self.record.since + 1)

    @property
    def in_time(self) -> bool:
        """Before the fault was planted nothing can be found: that would be a false alarm."""
        limit = CONTRACT_STEPS if self.record.contract else SOON * self.record.steps
        early = self.record.since > 1 and (self.said.step or 0) < self.record.since
        return self.delay is not None and self.delay <= limit and not early

    def named(self, places: int) -> bool:
        return self.record.link in self.said.links[:places]


def guarded(record: Record) -> Said:
    """Every alert of the run itself: of its guardrails as they are shipped, and its diagnosis."""
    alerts = alerts_of(record)
    return Said(
        min((alert.step for alert in alerts), default=None),
        (),
        tuple(dict.fromkeys(alert.rule for alert in alerts)),
    )


def judge_all(records: Iterable[Record], judge: Judge) -> list[Outcome]:
    return [Outcome(record, judge(record)) for record in records]


def faulty(outcomes: Iterable[Outcome], *, contract: bool | None = None) -> list[Outcome]:
    return [
        one
        for one in outcomes
        if one.record.link and (contract is None or one.record.contract == contract)
    ]


def share(outcomes: Sequence[Outcome], holds: Callable[[Outcome], bool]) -> Interval:
    return wilson(sum(map(holds, outcomes)), len(outcomes))


def summary(outcomes: Sequence[Outcome]) -> dict[str, Interval]:
    """The figures of SPEC F10, as shares with Wilson's intervals."""
    every, found = faulty(outcomes), [one for one in faulty(outcomes) if one.found]
    healthy = [one for one in outcomes if one.record.fault == HEALTHY]
    return {
        "faults found": share(every, lambda one: one.found),
        "contracts found in 3 updates": share(
            faulty(outcomes, contract=True), lambda one: one.in_time
        ),
        "statistical faults found in 20 %": share(
            faulty(outcomes, contract=False), lambda one: one.in_time
        ),
        "right link first": share(every, lambda one: one.named(1)),
        "right link among two": share(every, lambda one: one.named(2)),
        "right link first, of those found": share(found, lambda one: one.named(1)),
        "healthy runs with a finding": share(healthy, lambda one: one.found),
    }


def by_fault(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    """One row a fault, in the order of the suite."""
    rows = []
    for name in dict.fromkeys(one.record.fault for one in outcomes if one.record.link):
        own = [one for one in outcomes if one.record.fault == name]
        delays = [one.delay for one in own if one.delay is not None]
        said = Counter(one.said.links[0] if one.found else "nothing" for one in own)
        gains = [one.record.gold_gain for one in own if one.record.gold_gain is not None]
        rows.append(
            {
                "fault": name,
                "link": own[0].record.link,
                "runs": len(own),
                "found": sum(one.found for one in own),
                "in time": sum(one.in_time for one in own),
                "delay": median(delays) if delays else "",
                "latest": max(delays) if delays else "",
                "first right": sum(one.named(1) for one in own),
                "in two": sum(one.named(2) for one in own),
                "named first": ", ".join(f"{link} {n}" for link, n in said.most_common()),
                "gold gain": round(sum(gains) / len(gains), 2) if gains else "",
            }
        )
    return rows


def confusion(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    """Rows: the link that was broken; columns: the one named first."""
    counts = Counter(
        (one.record.link, one.said.links[0] if one.found else "nothing") for one in faulty(outcomes)
    )
    broken = [link for link in STAGES if any(true == link for true, _ in counts)]
    columns = (*STAGES, "nothing")
    return [
        {"broken": true} | {named: counts[true, named] or "" for named in columns}
        for true in broken
    ]


def delays(outcomes: Sequence[Outcome]) -> Mapping[str, float | None]:
    """Median updates until a fault was spoken of, of those found."""
    found = {
        "contracts": [
            one.delay for one in faulty(outcomes, contract=True) if one.delay is not None
        ],
        "statistical": [
            one.delay for one in faulty(outcomes, contract=False) if one.delay is not None
        ],
    }
    return {name: median(values) if values else None for name, values in found.items()}


def percent(found: Interval) -> str:
    """68.1–73.4 % with the share and n."""
    if found.value is None or found.low is None or found.high is None:
        return "—"
    return (
        f"{100 * found.value:.1f} % ({100 * found.low:.1f}–{100 * found.high:.1f} %, n = {found.n})"
    )
