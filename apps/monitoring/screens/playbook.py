"""Entries of the playbook as pages print them."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from django.urls import reverse

from apps.monitoring.playbook import Check, Entry, Reading, entry_for_rule, entry_get
from apps.monitoring.playbook.entry import SORTS
from apps.monitoring.stages import STAGE_NAMES
from apps.training.models import Run
from workers.contract.guards import RULES, TESTS
from workers.diagnosis.detectors import DETECTORS, Detector
from workers.diagnosis.experiments import EXPERIMENTS

# Kinds of run whose answers, critic and reference the checks can look at.
CHECKED = frozenset({Run.Kind.PPO, Run.Kind.GRPO})
TAB_WORDS = {
    "samples": "Open its samples",
    "charts": "Open its charts",
    "checks": "Open its checks",
    "config": "Open its configuration",
    "logs": "Open its log",
    "lineage": "Open its lineage",
}


@dataclass(frozen=True, slots=True)
class PlaybookCheckView:
    """`experiment` is set where a button can launch it, `tab` where a link leads to it."""

    do: str
    readings: tuple[Reading, ...]
    experiment: str = ""
    experiment_title: str = ""
    key: str = ""
    tab: str = ""
    tab_words: str = ""


@dataclass(frozen=True, slots=True)
class RuleView:
    """A rule that leads here, and what it reads."""

    name: str
    title: str
    kinds: str
    watches: str
    alarms: str
    source: str


@dataclass(frozen=True, slots=True)
class EntryView:
    entry: Entry
    sort: str
    causes: list[tuple[str, str]]
    checks: list[PlaybookCheckView]
    rules: list[RuleView]
    see: list[Entry]


def sections(entries: Sequence[Entry]) -> list[tuple[str, str, list[Entry]]]:
    """(name, title, entries) of each sort that has any."""
    grouped = (
        (sort, title, [e for e in entries if e.sort == sort]) for sort, title in SORTS.items()
    )
    return [(sort, title, found) for sort, title, found in grouped if found]


def entry_view(entry: Entry, run: Run | None) -> EntryView:
    return EntryView(
        entry=entry,
        sort=SORTS[entry.sort],
        causes=[(STAGE_NAMES[cause.stage], cause.words) for cause in entry.causes],
        checks=[_check(check, run) for check in entry.checks],
        rules=[*_guards(entry), *_detectors(entry)],
        see=[other for slug in entry.see if (other := entry_get(slug)) is not None],
    )


def playbook_address(slug: str, rule: str) -> str:
    """Where the playbook speaks of a rule; the page of the order to look in for a rule of a stage
    that has no entry; empty for a rule nobody knows. Given to the registry."""
    stage = next((d.link for d in DETECTORS if d.rule == rule), "")
    entry = entry_for_rule(rule, stage)
    return reverse("monitoring:playbook_entry", args=[slug, entry.slug]) if entry else ""


def _check(check: Check, run: Run | None) -> PlaybookCheckView:
    known = EXPERIMENTS.get(check.experiment)
    can = run is not None and run.kind in CHECKED and known is not None
    return PlaybookCheckView(
        do=check.do,
        readings=check.readings,
        experiment=known.id if can else "",
        experiment_title=known.title if known else "",
        key=secrets.token_urlsafe(16) if can else "",
        tab=check.tab if run is not None else "",
        tab_words=TAB_WORDS.get(check.tab, "Open"),
    )


def _guards(entry: Entry) -> list[RuleView]:
    return [
        RuleView(
            name=rule.name,
            title=rule.title,
            kinds=", ".join(rule.kinds),
            watches=rule.metric,
            alarms=f"{_how(rule.test)}{'over' if rule.bound == 'above' else 'under'} "
            f"{rule.threshold:g} {rule.unit}, {rule.patience_words}",
            source=rule.source,
        )
        for rule in RULES
        if rule.name in entry.rules
    ]


def _how(test: str) -> str:
    return "" if test == "level" else f"{TESTS[test]}: "


def _detectors(entry: Entry) -> list[RuleView]:
    return [
        RuleView(
            name=one.rule,
            title=one.title,
            kinds=", ".join(one.kinds),
            watches=", ".join(one.metrics),
            alarms=_speaks(one),
            source=one.why,
        )
        for one in DETECTORS
        if one.rule in entry.rules
    ]


def _speaks(one: Detector) -> str:
    """Its limit and its patience, where one number says it."""
    k, n = one.patience
    checks = "at once" if n == 1 else f"{k} checks in a row" if k == n else f"{k} of {n} checks"
    for side, word in (("above", "over"), ("below", "under")):
        if isinstance(one.given.get(side), int | float):
            return f"{word} {one.given[side]:g} {one.unit}, {checks}"
    return ""
