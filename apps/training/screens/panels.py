"""The charts of a run in three panels: training, evaluation, behaviour (SPEC F1).

Of each panel the few charts that matter most come first; the others are folded away. A chart holds
one metric, or those that are read together: the components of a reward, the flagged phrases.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from workers.contract.metrics import (
    BEHAVIOUR,
    EVALUATION,
    METRICS,
    TRAINING,
    headline_names,
    metric_or_own,
)

MOST_LEADING = 4  # charts of a panel that are open when the page is
# Which charts lead, in this order; the headline metrics of the kind come before these.
_RANK = {metric.prefix: rank for rank, metric in enumerate(METRICS) if metric.leads}


@dataclass(frozen=True, slots=True)
class Panel:
    key: str
    title: str
    about: str


PANELS = (
    Panel(TRAINING, "Training", "The objective and the updates."),
    Panel(EVALUATION, "Evaluation", "The same held-out prompts or rows each time."),
    Panel(BEHAVIOUR, "Behaviour", "Properties of the answers, apart from their score."),
)


@dataclass(frozen=True, slots=True)
class Chart:
    """`names` are its metrics, `labels` what each is called in it; `key` is its name in a URL."""

    key: str
    panel: str
    title: str
    unit: str
    about: str
    names: tuple[str, ...]
    labels: tuple[str, ...]
    leads: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def charts_of(
    kind: str, names: Iterable[str], marked: Collection[str] = frozenset()
) -> list[Chart]:
    """The charts of a run that measured these, panel by panel, leading ones first; a metric on
    which something was found (`marked`) leads whatever it is."""
    charts = _charts(sorted(set(names)))
    places = {name: place for place, name in enumerate(headline_names(kind))}

    def rank(chart: Chart) -> tuple[int, int, str]:
        own = min((places[name] for name in chart.names if name in places), default=None)
        if own is not None:
            return 0, own, chart.key
        return 1, _RANK.get(chart.key, len(_RANK)), chart.key

    arranged: list[Chart] = []
    for panel in PANELS:
        mine = sorted((chart for chart in charts if chart.panel == panel.key), key=rank)
        chosen = [c for c in mine if rank(c)[0] == 0 or c.key in _RANK] or mine
        leading = {chart.key for chart in chosen[:MOST_LEADING]}
        leading |= {chart.key for chart in mine if set(chart.names) & set(marked)}
        arranged += [replace(chart, leads=chart.key in leading) for chart in mine]
    return arranged


def _charts(names: Collection[str]) -> list[Chart]:
    charts = []
    taken: set[str] = set()
    for metric in METRICS:
        if not metric.together:
            continue
        mine = tuple(name for name in names if name.startswith(metric.prefix))
        if len(mine) > 1:
            taken |= set(mine)
            labels = tuple(name.removeprefix(metric.prefix) for name in mine)
            words = (metric.panel, metric.title, metric.unit, metric.about)
            charts.append(Chart(metric.prefix, *words, mine, labels))
    for name in names:
        if name not in taken:
            metric = metric_or_own(name)
            words = (metric.panel, metric.title, metric.unit, metric.about)
            charts.append(Chart(name, *words, (name,), (name,)))
    return charts
