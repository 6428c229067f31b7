"""What an entry of the playbook is made of."""

from dataclasses import dataclass
from typing import Literal

Sort = Literal["walkthrough", "rule", "pitfalls", "reference"]
SORTS: dict[Sort, str] = {
    "walkthrough": "Walkthroughs",
    "rule": "What an alert means",
    "pitfalls": "Pitfalls",
    "reference": "Tables",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """A stage that may be at fault, and how it would bring the symptom about."""

    stage: str
    words: str


@dataclass(frozen=True, slots=True)
class Reading:
    """One outcome of a check and what it tells."""

    result: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Check:
    """One step, in order. `experiment` is a key of `workers.diagnosis.experiments`, `tab` a tab of
    the run's page: with a run at hand the step becomes a button or a link."""

    do: str
    readings: tuple[Reading, ...] = ()
    experiment: str = ""
    tab: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """`symptom` is what one sees. `rules` are the names of guardrails and detectors that lead
    here; `see` are slugs of entries to read next."""

    slug: str
    title: str
    sort: Sort
    symptom: str
    tags: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    checks: tuple[Check, ...] = ()
    fixes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    see: tuple[str, ...] = ()

    @property
    def stage(self) -> str:
        """The likeliest stage; empty where the entry is about none in particular."""
        return self.causes[0].stage if self.causes else ""

    def texts(self) -> list[str]:
        """Everything a reader can read, for the search."""
        parts = [self.symptom, *self.fixes, *self.notes, *(cause.words for cause in self.causes)]
        for check in self.checks:
            parts.append(check.do)
            parts += [f"{one.result} {one.meaning}" for one in check.readings]
        for table in self.tables:
            parts += [table.title, *table.columns, *(cell for row in table.rows for cell in row)]
        return parts


def reads(*pairs: tuple[str, str]) -> tuple[Reading, ...]:
    """Shorthand of the content: (result, meaning) pairs."""
    return tuple(Reading(result, meaning) for result, meaning in pairs)
