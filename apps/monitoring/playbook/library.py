"""All entries: found by name, by rule, or by words."""

import re
import unicodedata
from collections.abc import Mapping
from functools import cache

from apps.monitoring.playbook import (
    data,
    evaluation,
    exploration,
    machinery,
    pitfalls,
    policy,
    reward,
    tables,
    walkthroughs,
)
from apps.monitoring.playbook.entry import Entry
from workers.contract.guards import LINKS

_ALL: tuple[Entry, ...] = (
    *walkthroughs.ENTRIES,
    *data.ENTRIES,
    *evaluation.ENTRIES,
    *reward.ENTRIES,
    *policy.ENTRIES,
    *exploration.ENTRIES,
    *machinery.ENTRIES,
    *pitfalls.ENTRIES,
    *tables.ENTRIES,
)
ENTRIES: Mapping[str, Entry] = {entry.slug: entry for entry in _ALL}
_START = "which-link-first"
# How much a word counts by where it stands, and how much less when it only begins a word there.
_TITLE, _TAGS, _TEXT, _BEGINNING = 100, 20, 1, 0.5


def entry_get(slug: str) -> Entry | None:
    return ENTRIES.get(slug)


@cache
def rules_told() -> Mapping[str, Entry]:
    """{rule: the entry about it}."""
    return {rule: entry for entry in _ALL for rule in entry.rules}


def entry_for_rule(rule: str, stage: str = "") -> Entry | None:
    """Of a rule's name, or of the failure kind it ends a run with. What no entry names leads to
    the order of checks, where its stage at least is known."""
    found = rules_told().get(rule) or rules_told().get(rule.removeprefix("guard_"))
    return found or (ENTRIES[_START] if stage in LINKS else None)


def search(words: str, *, stage: str = "") -> list[Entry]:
    """Entries that have every word somewhere: in the title first, then in tags and rules, then in
    the text. Without words all of them, in the order of the book. `stage` keeps those that name the
    stage among their causes."""
    wanted = _words(words)
    entries = [
        one for one in _ALL if stage not in LINKS or any(c.stage == stage for c in one.causes)
    ]
    if not wanted:
        return entries
    scored = [(_score(one, wanted), one) for one in entries]
    return [one for score, one in sorted(scored, key=lambda pair: -pair[0]) if score > 0]


def _score(entry: Entry, wanted: list[str]) -> float:
    """0 unless every word is found; each counts where it counts most."""
    places = (
        (_TITLE, _words(entry.title)),
        (_TAGS, _words(" ".join((*entry.tags, *entry.rules)))),
        (_TEXT, _words(" ".join(entry.texts()))),
    )
    total = 0.0
    for word in wanted:
        best = max(weight * _hit(word, there) for weight, there in places)
        if not best:
            return 0.0
        total += best
    return total


def _hit(word: str, there: list[str]) -> float:
    if word in there:
        return 1.0
    return _BEGINNING if any(one.startswith(word) for one in there) else 0.0


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.findall(r"[a-z0-9]+", plain)
