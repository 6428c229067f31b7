"""Pages of the playbook as they are shown."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from django.urls import reverse
from django.utils.safestring import SafeString

from apps.common.playbook import SORTS, Check, Named, Page, page_for, pages
from apps.labeling.rendering import texts_html
from apps.monitoring.stages import STAGE_NAMES
from apps.training.models import Run
from workers.rules.choices import BY_NAME
from workers.rules.experiments import EXPERIMENTS
from workers.rules.table import RULES
from workers.rules.words import condition

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
    readings: tuple[Named, ...]
    experiment: str = ""
    experiment_title: str = ""
    key: str = ""
    tab: str = ""
    tab_words: str = ""


@dataclass(frozen=True, slots=True)
class RuleView:
    """A rule that leads here, what it reads, and what its firing means."""

    name: str
    title: str
    kinds: str
    watches: str
    alarms: str
    advice: str
    source: str


@dataclass(frozen=True, slots=True)
class EntryView:
    """`sections` are (title, HTML) of what has no form of its own."""

    entry: Page
    sort: str
    causes: list[tuple[str, str]]
    checks: list[PlaybookCheckView]
    sections: list[tuple[str, SafeString]]
    rules: list[RuleView]
    see: list[Page]


def sections(entries: Sequence[Page]) -> list[tuple[str, str, list[Page]]]:
    """(name, title, entries) of each sort that has any."""
    grouped = (
        (sort, title, [e for e in entries if e.sort == sort]) for sort, title in SORTS.items()
    )
    return [(sort, title, found) for sort, title, found in grouped if found]


def entry_view(entry: Page, run: Run | None) -> EntryView:
    html = texts_html(text for _, text in entry.sections)
    return EntryView(
        entry=entry,
        sort=SORTS[entry.sort],
        causes=[(STAGE_NAMES[cause.name], cause.text) for cause in entry.causes],
        checks=[_check(check, run) for check in entry.checks],
        sections=[(title, one) for (title, _), one in zip(entry.sections, html, strict=True)],
        rules=_rules(entry),
        see=[pages()[slug] for slug in entry.see],
    )


def playbook_address(slug: str, rule: str) -> str:
    """Where the playbook speaks of a rule; the page of the order to look in for a rule of a stage
    that has no entry; empty for a rule nobody knows. Given to the registry."""
    known = BY_NAME.get(rule)
    page = page_for(rule, known.stage if known is not None else "")
    return reverse("monitoring:playbook_entry", args=[slug, page.slug]) if page else ""


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


def _rules(entry: Page) -> list[RuleView]:
    return [
        RuleView(
            name=rule.name,
            title=rule.title,
            kinds=", ".join(rule.kinds),
            watches=", ".join(rule.metrics) or "the diagnosis",
            alarms=f"{condition(rule)}, {rule.patience_words}",
            advice=entry.advice.get(rule.name, ""),
            source=rule.source,
        )
        for rule in RULES
        if rule.page == entry.slug
    ]
