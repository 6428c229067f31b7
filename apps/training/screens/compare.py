"""Up to five runs side by side: figures, settings, inputs, alerts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.common.errors import DomainError, Missing
from apps.common.numbers import figure, fixed
from apps.training import display
from apps.training.models import Alert, Run, RunInput
from apps.training.screens.panels import source
from apps.training.screens.repeat_spread import repeat_words
from apps.training.selectors import pages
from apps.training.selectors.protocols import (
    RepeatFigure,
    is_evaluation,
    refusal_of,
    repeat_claim,
    repeat_figures,
)
from workers.config import recipe_config, recipe_fields
from workers.contract.metrics import headline_names

MOST = 5
OFFERED = 200
NONE = "—"
REFUSED = "not comparable"


@dataclass(frozen=True, slots=True)
class CompareCell:
    """One run's value in a row; `note` stands below it, `is_default` where nobody set it."""

    text: str
    note: str = ""
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class CompareRow:
    name: str
    cells: list[CompareCell]
    about: str = ""
    differs: bool = True


@dataclass(frozen=True, slots=True)
class RunColumn:
    """A run among those compared, in its colour; `without` is the address without it."""

    run: Run
    colour: int
    tone: str
    progress: display.RunProgress
    open_alerts: int
    without: str


def runs_asked(project: Any, asked: Sequence[str]) -> list[Run]:
    """In the order asked for, each once. Raises `Missing`, and `DomainError` for more than MOST."""
    ids = list(dict.fromkeys(key for one in asked for key in one.split(",") if key))
    if len(ids) > MOST:
        raise DomainError(
            f"{len(ids)} runs are chosen, and at most {MOST} can be compared: remove some, or "
            "draw them as a band on the charts of one run.",
            code="too_many_runs",
            field="run",
        )
    rows = Run.objects.filter(project=project, pk__in=[key for key in ids if "\x00" not in key])
    known = {run.pk: run for run in rows.select_related("project", "created_by")}
    if lost := next((key for key in ids if key not in known), None):
        raise Missing(f"There is no run '{lost[:40]}' in this project.", field="run")
    return [known[key] for key in ids]


def compared(runs: Sequence[Run]) -> dict[str, Any]:
    """What the page shows of these runs."""
    alerts = {run.pk: pages.alerts_of(run) for run in runs}
    refusal = refusal_of(runs)
    refused = refusal.ids if refusal else set()
    drawn = [(n, run) for n, run in enumerate(runs, 1) if run.pk not in refused]
    return {
        "columns": [_column(run, runs, alerts[run.pk], n) for n, run in enumerate(runs, 1)],
        "refusal": refusal,
        "metrics": _metrics(runs, refused),
        "repeat_rows": [] if refusal else _repeat_rows(runs),
        "settings": _settings(runs),
        "inputs": _inputs(runs),
        "alert_rows": _alert_rows(runs, alerts),
        "sources": [source(run, role="compared", colour=n) for n, run in drawn],
        "same_kind": len({run.kind for run in runs}) == 1,
    }


def _column(run: Run, runs: Sequence[Run], alerts: Sequence[Alert], colour: int) -> RunColumn:
    return RunColumn(
        run=run,
        colour=colour,
        tone=display.TONES[run.state],
        progress=display.progress(run),
        open_alerts=sum(a.acknowledged_at is None and a.severity != "info" for a in alerts),
        without="&".join(f"run={other.pk}" for other in runs if other != run),
    )


def _metrics(runs: Sequence[Run], refused: Collection[str]) -> list[CompareRow]:
    """Headline figures, those of the first run's kind first; a run without one has a dash, and so
    has one whose results may not stand beside the others'."""
    tiles: list[Mapping[str, display.MetricTile] | None] = []
    for run in runs:
        if run.pk in refused:
            tiles.append(None)
            continue
        names = headline_names(run.trained_kind)
        found = display.headline_tiles(run, pages.latest_metrics(run, names))
        tiles.append({tile.label: tile for tile in found})
    labels = dict.fromkeys(label for one in tiles for label in one or ())
    return [
        CompareRow(
            label,
            [
                CompareCell(NONE, REFUSED) if one is None else _metric_cell(one.get(label))
                for one in tiles
            ],
            differs=True,
        )
        for label in labels
    ]


def _repeat_rows(runs: Sequence[Run]) -> list[CompareRow]:
    """How far each evaluation lies from the first, and whether the systems were told apart: not
    where the difference lies inside the repeat spread, nor where that was not measured."""
    evaluated = [run for run in runs if is_evaluation(run)]
    if len(evaluated) < 2:
        return []
    first = repeat_figures(evaluated[0])
    others = {run.pk: repeat_figures(run) for run in evaluated[1:]}
    return [
        CompareRow(
            repeat_words(name),
            [
                _repeat_cell(one, others[run.pk].get(name) if run.pk in others else None)
                for run in runs
            ],
        )
        for name, one in first.items()
        if any(name in found for found in others.values())
    ]


def _repeat_cell(first: RepeatFigure, other: RepeatFigure | None) -> CompareCell:
    if other is None:
        return CompareCell(NONE)
    return CompareCell(fixed(other.value - first.value), repeat_claim(first, other))


def _metric_cell(tile: display.MetricTile | None) -> CompareCell:
    if tile is None:
        return CompareCell(NONE)
    said = ", ".join(part for part in (tile.spread, tile.basis, tile.why) if part)
    return CompareCell(figure(tile.value), said)


def _settings(runs: Sequence[Run]) -> list[CompareRow]:
    """Settings that differ, as the recipe reads them: with presets and defaults written out."""
    defaults = [{field.name: field for field in recipe_fields(run.kind)} for run in runs]
    configs = [recipe_config(run.kind, run.config) for run in runs]
    names = sorted({name for one in [*defaults, *configs] for name in one})
    rows = []
    for name in names:
        cells = [
            _setting(name, config, known) for config, known in zip(configs, defaults, strict=True)
        ]
        if len({cell.text for cell in cells}) > 1:
            field = next((known[name] for known in defaults if name in known), None)
            rows.append(CompareRow(name, cells, about=field.option.doc if field else ""))
    seeds = [CompareCell(str(run.seed)) for run in runs]
    if len({cell.text for cell in seeds}) > 1:
        rows.append(CompareRow("seed", seeds, about="Of the run itself."))
    return rows


def _setting(name: str, config: Mapping[str, Any], known: Mapping[str, Any]) -> CompareCell:
    if name in config:
        return CompareCell(display.as_setting(config[name]))
    if name in known:
        return CompareCell(display.as_setting(known[name].default), "default", is_default=True)
    return CompareCell(NONE, "no such setting")


def _inputs(runs: Sequence[Run]) -> list[CompareRow]:
    """Each input by its content hash: the same name may stand for other content."""
    links = RunInput.objects.filter(run__in=runs).select_related(
        "snapshot", "checkpoint__run", "upstream", "artifact"
    )
    found = {(link.run_id, link.role): _input(link) for link in links}
    roles = sorted({role for _, role in found})
    rows = [
        CompareRow(role, [found.get((run.pk, role), CompareCell(NONE)) for run in runs])
        for role in roles
    ] + [CompareRow("code", [CompareCell(run.code_version or NONE) for run in runs])]
    return [
        CompareRow(row.name, row.cells, differs=len({(c.text, c.note) for c in row.cells}) > 1)
        for row in rows
    ]


def _input(link: RunInput) -> CompareCell:
    if link.snapshot is not None:
        return CompareCell(link.snapshot.name, _hash(link.snapshot.sha256))
    if link.artifact is not None:
        return CompareCell(link.artifact.name, _hash(link.artifact.sha256))
    if link.checkpoint is not None:
        name = f"{link.checkpoint.run.name}, step {link.checkpoint.step:,}"
        return CompareCell(name, _hash(link.checkpoint.sha256))
    return CompareCell(link.upstream.name, "not finished" if link.upstream.is_live else "its model")


def _hash(sha256: str) -> str:
    return f"sha256 {sha256[:12]}" if sha256 else "no hash"


def _alert_rows(runs: Sequence[Run], alerts: Mapping[str, Sequence[Alert]]) -> list[CompareRow]:
    """How often each rule fired, and when first."""
    rules = sorted({alert.rule for rows in alerts.values() for alert in rows})
    return [CompareRow(rule, [_fired(rule, alerts[run.pk]) for run in runs]) for rule in rules]


def _fired(rule: str, alerts: Sequence[Alert]) -> CompareCell:
    mine = [alert for alert in alerts if alert.rule == rule]
    if not mine:
        return CompareCell(NONE)
    times = "once" if len(mine) == 1 else f"{len(mine)} times"
    return CompareCell(times, f"first at step {min(alert.step for alert in mine):,}")
