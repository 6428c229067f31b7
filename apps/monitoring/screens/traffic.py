"""What became of a model's traffic, as its page prints it."""

from collections import Counter
from dataclasses import dataclass
from datetime import date

from apps.monitoring.models import TrafficDay, Watch
from apps.monitoring.services.traffic import (
    DUPLICATES,
    KEPT,
    NO_CONSENT,
    NOTHING,
    REASONS,
    RECEIVED,
    SCRUBBED,
    UNSAMPLED,
)

DAYS = 30
COLUMNS = {
    RECEIVED: "Received",
    NO_CONSENT: "No consent",
    UNSAMPLED: "Not sampled",
    DUPLICATES: "Duplicates",
    NOTHING: "Nothing found",
    KEPT: "Kept for people",
    SCRUBBED: "With personal data replaced",
} | {name: words.capitalize() for name, words in REASONS.items()}


@dataclass(frozen=True, slots=True)
class DayRow:
    """day is None for the sum."""

    day: date | None
    counts: list[int]


@dataclass(frozen=True, slots=True)
class TrafficTable:
    columns: list[str]
    rows: list[DayRow]
    kept_share: str


def traffic_table(watch: Watch) -> TrafficTable:
    """The newest days and their sum."""
    days = list(TrafficDay.objects.filter(watch=watch)[:DAYS])
    total: Counter[str] = sum((Counter(one.counts) for one in days), Counter())
    rows = [DayRow(one.day, [one.counts.get(name, 0) for name in COLUMNS]) for one in days]
    if days:
        rows.insert(0, DayRow(None, [total[name] for name in COLUMNS]))
    share = f"{100 * total[KEPT] / total[RECEIVED]:.1f} %" if total[RECEIVED] else "—"
    return TrafficTable(list(COLUMNS.values()), rows, share)
