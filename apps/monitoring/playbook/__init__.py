"""What to do when a run looks wrong: entries to read, search and follow. Content, no queries."""

from apps.monitoring.playbook.entry import Cause, Check, Entry, Reading, Table
from apps.monitoring.playbook.library import ENTRIES, entry_for_rule, entry_get, rules_told, search

__all__ = [
    "ENTRIES",
    "Cause",
    "Check",
    "Entry",
    "Reading",
    "Table",
    "entry_for_rule",
    "entry_get",
    "rules_told",
    "search",
]
