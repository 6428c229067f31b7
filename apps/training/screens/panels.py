"""The charts of a run in four panels: training, evaluation, behaviour (SPEC F1), and its machine.

Of each panel the few charts that matter most come first; the others are folded away. A chart holds
one metric, or those that are read together: the components of a reward, the flagged phrases.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.urls import reverse

from apps.common.errors import Missing
from apps.training.models import Run
from apps.training.selectors.pages import runs_for_list
from apps.training.selectors.protocols import refusal_of, same_protocol
from workers.contract.events import is_by_time
from workers.contract.metrics import (
    BEHAVIOUR,
    EVALUATION,
    MACHINE,
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
    Panel(MACHINE, "Machine", "What the run used, by hours since its first sample."),
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
        return asdict(self) | {"by_time": is_by_time(self.names[0])}


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
        return 1, _RANK.get(_registered(chart), len(METRICS)), chart.key

    arranged: list[Chart] = []
    for panel in PANELS:
        mine = sorted((chart for chart in charts if chart.panel == panel.key), key=rank)
        chosen = [c for c in mine if rank(c)[0] == 0 or _registered(c) in _RANK] or mine
        leading = {chart.key for chart in chosen[:MOST_LEADING]}
        leading |= {chart.key for chart in mine if set(chart.names) & set(marked)}
        arranged += [replace(chart, leads=chart.key in leading) for chart in mine]
    return arranged


def _registered(chart: Chart) -> str:
    """The entry of a chart; one of several that is alone goes by the entry of all."""
    return metric_or_own(chart.names[0]).prefix if len(chart.names) == 1 else chart.key


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


# Other runs behind the curves of one: which may be chosen, which are, and how they are drawn.


ENOUGH = 3  # runs: of fewer there is no band
MOST_LINES = 4  # runs drawn as lines; more would hide the run itself
MOST_BAND = 30
OFFERED = 40  # newest runs of the kind in the picker

LINES, BAND = "lines", "band"


@dataclass(frozen=True, slots=True)
class References:
    """What an address chooses. `problem` says what is wrong with it."""

    chosen: list[Run]
    seeds: list[Run]
    as_band: bool
    with_seeds: bool
    offered: list[Run]
    problem: str = ""


def references(run: Run, asked: Iterable[str], *, shape: str, with_seeds: bool) -> References:
    wanted = _runs(run, asked)
    chosen = same_protocol(run, wanted)
    refusal = refusal_of([run, *(one for one in wanted if one not in chosen)])
    seeds = seeds_beside(run)
    of_band = {one.pk for one in chosen} | ({one.pk for one in seeds} if with_seeds else set())
    as_band = shape == BAND or with_seeds
    problem = ""
    if as_band and len(of_band) < ENOUGH:
        problem = (
            f"A band needs at least {ENOUGH} other runs, and {len(of_band)} "
            f"{'is' if len(of_band) == 1 else 'are'} chosen. They are drawn as lines."
        )
        as_band = False
    if not as_band and len(chosen) > MOST_LINES:
        problem = f"At most {MOST_LINES} runs are drawn as lines; more can be drawn as a band."
        chosen = chosen[:MOST_LINES]
    if not as_band and with_seeds:
        chosen = [*chosen, *(s for s in seeds if s not in chosen)][:MOST_LINES]
    same_kind = runs_for_list(project=run.project, kind=run.kind).exclude(pk=run.pk)
    offered = list(same_kind[:OFFERED])
    offered += [one for one in chosen if one not in offered]
    if refusal is not None:
        problem = f"{refusal.message} Its results are not drawn on one axis. {problem}".strip()
    return References(chosen, seeds, as_band, with_seeds, offered, problem)


def seeds_beside(run: Run) -> list[Run]:
    """The other runs of its group; of evaluations those by a protocol of another seed alone."""
    if not run.group:
        return []
    rows = Run.objects.filter(project=run.project, group=run.group, config=run.config).exclude(
        pk=run.pk
    )
    rows = rows.select_related("project").order_by("seed")
    return same_protocol(run, list(rows[:MOST_BAND]), over_seeds=True)


def band_runs(run: Run, asked: Iterable[str], *, seeds: bool) -> list[Run]:
    chosen = same_protocol(run, _runs(run, asked))
    beside = seeds_beside(run) if seeds else []
    return [*chosen, *(one for one in beside if one not in chosen)][:MOST_BAND]


def _runs(run: Run, asked: Iterable[str]) -> list[Run]:
    """In the order in which they were asked for; a comma joins several. Raises `Missing`."""
    ids = list(dict.fromkeys(key for one in asked for key in one.split(",") if key))[:MOST_BAND]
    ids = [key for key in ids if key != run.pk]
    if any("\x00" in key for key in ids):
        raise Missing("There is no such run in this project.", field="with")
    rows = Run.objects.filter(project=run.project).select_related("project").in_bulk(ids)
    if missing := next((key for key in ids if key not in rows), None):
        raise Missing(f"There is no run '{missing}' in this project.", field="with")
    return [rows[key] for key in ids]


def source(run: Run, *, role: str, colour: int) -> dict[str, Any]:
    """A run as the charts ask for it."""
    args = [run.project.slug, run.pk]
    return {
        "id": run.pk,
        "name": run.name,
        "page": reverse("training:run", args=args),
        "url": reverse("training:run_metrics", args=args),
        "live": run.is_live,
        "role": role,
        "colour": colour,
    }
