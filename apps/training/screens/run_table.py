"""The table of runs with columns of choice: settings and figures, by which it can be sorted."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from apps.common.numbers import figure
from apps.training import display
from apps.training.models import Run
from apps.training.selectors import pages
from apps.training.selectors.protocols import is_evaluation, protocol_of
from workers.config import recipe_config, recipe_fields
from workers.contract.metrics import headline_names, metric_or_own

MOST_COLUMNS = 6
MOST_SORTED = 500  # runs that are sorted by a column of choice; of more, the newest
SETTING, METRIC = "setting:", "metric:"
NONE = "—"
OTHER = "another protocol"
OWN: dict[str, Callable[[Run], Any]] = {
    "name": lambda run: run.name.casefold(),
    "kind": lambda run: run.get_kind_display(),
    "state": lambda run: run.get_state_display(),
    "started": lambda run: run.started_at,
    "duration": lambda run: run.seconds,
}


@dataclass(frozen=True, slots=True)
class Head:
    """A column: `order` is "ascending" or "descending" where the table is sorted by it; `query`
    is the address that sorts by it, the other way round when it already does."""

    key: str
    words: str
    query: str
    order: str = ""


class RunTable:
    """What the query asks for: `columns` of choice, and `sort` by one, with - for the largest
    first. What there is no such column for is left out."""

    def __init__(self, query: QueryDict, kinds: Iterable[str]) -> None:
        self.query = query
        self.offered = columns_offered(kinds)
        asked = dict.fromkeys(query.getlist("columns"))
        self.chosen = [key for key in asked if key in self.offered][:MOST_COLUMNS]
        sort = query.get("sort", "")
        self.down, self.sort = sort.startswith("-"), sort.removeprefix("-")
        if self.sort not in OWN and self.sort not in self.chosen:
            self.sort = ""
        self._figures: dict[str, dict[str, Any]] = {}
        self.refused: set[str] = set()  # evaluations whose figures are not shown

    def measure(self, runs: Iterable[Run]) -> None:
        """The runs of a page. Of evaluations by several protocols the figures of the first known
        one are shown and sorted by; those of the others are `refused`."""
        if not any(key.startswith(METRIC) for key in self.chosen):
            return
        stated = {run.pk: protocol_of(run) for run in runs if is_evaluation(run)}
        found = {key: one.sha256 if one else "" for key, one in stated.items()}
        if len(found) > 1:
            axis = next(filter(None, found.values()), None)
            self.refused = {key for key, sha256 in found.items() if sha256 != axis}

    def sorted(self, runs: Sequence[Run]) -> list[Run]:
        """By the column asked for; a run without a value comes last both ways."""
        self.measure(runs)
        value = OWN.get(self.sort) or (lambda run: self.value(run, self.sort))
        known = [(found, run) for run in runs if (found := value(run)) is not None]
        numbers = all(isinstance(found, int | float) for found, _ in known)
        known.sort(key=lambda pair: _order(pair[0], numbers), reverse=self.down)
        placed = {run.pk for _, run in known}
        return [run for _, run in known] + [run for run in runs if run.pk not in placed]

    def cells(self, run: Run) -> list[str]:
        refused = run.pk in self.refused
        return [
            OTHER if refused and key.startswith(METRIC) else _words(self.value(run, key))
            for key in self.chosen
        ]

    def value(self, run: Run, key: str) -> Any:
        """A setting as its recipe reads it, or the newest number of a metric; None without one."""
        if key.startswith(METRIC):
            if run.pk in self.refused:
                return None
            return self._latest(run).get(key.removeprefix(METRIC))
        name = key.removeprefix(SETTING)
        config = recipe_config(run.kind, run.config)
        default = next((one.default for one in recipe_fields(run.kind) if one.name == name), None)
        return config.get(name, default)

    def _latest(self, run: Run) -> dict[str, Any]:
        if run.pk not in self._figures:
            names = [key.removeprefix(METRIC) for key in self.chosen if key.startswith(METRIC)]
            found = pages.latest_metrics(run, names)
            self._figures[run.pk] = {name: value for name, (_, value) in found.items()}
        return self._figures[run.pk]

    def head(self, key: str, words: str) -> Head:
        query = self.query.copy()
        query.pop("page", None)
        here = key == self.sort
        query["sort"] = key if here and self.down else f"-{key}"
        order = ("descending" if self.down else "ascending") if here else ""
        return Head(key, words, query.urlencode(), order)

    @property
    def own_heads(self) -> dict[str, Head]:
        return {key: self.head(key, key.capitalize()) for key in OWN}

    @property
    def heads(self) -> list[Head]:
        return [self.head(key, self.offered[key]) for key in self.chosen]


def columns_offered(kinds: Iterable[str]) -> dict[str, str]:
    """key -> words: the figures and the single-valued settings of these kinds."""
    kinds = sorted(set(kinds))
    metrics = {name for kind in kinds for name in headline_names(kind)}
    settings = {
        one.name
        for kind in kinds
        for one in recipe_fields(kind)
        if one.type not in {"object", "list"}
    }
    return {METRIC + name: metric_or_own(name).title for name in sorted(metrics)} | {
        SETTING + name: name for name in sorted(settings)
    }


def _order(value: Any, numbers: bool) -> Any:
    if numbers or not isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _words(value: Any) -> str:
    if value is None:
        return NONE
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return figure(value) if is_number else display.as_setting(value)
