"""The charts tab of a run: what is asked for, by whom it is drawn, and the same in figures."""

from typing import Any

from django.http import QueryDict
from django.urls import reverse
from django.utils.http import urlencode

from apps.training.display import metric_summary
from apps.training.models import Run
from apps.training.screens import histograms as spread
from apps.training.screens.metric_words import words_of
from apps.training.screens.panels import PANELS
from apps.training.screens.references import References, references, source
from apps.training.selectors.histograms import Spread, histogram_names, histograms
from apps.training.selectors.metrics import metric_series

TABLE_POINTS = 200  # thinned curves keep their first, last, least and greatest value


def charts_context(run: Run, asked: QueryDict) -> dict[str, Any]:
    found = references(
        run,
        asked.getlist("with"),
        shape=asked.get("as", "lines"),
        with_seeds=asked.get("seeds") == "1",
    )
    behind = (
        []
        if found.as_band
        else [source(one, role="reference", colour=n) for n, one in enumerate(found.chosen, 2)]
    )
    series = metric_series(run=run, max_points=TABLE_POINTS)
    return {
        "metrics": [
            metric_summary(name, points)
            | {"title": words_of(name).title, "unit": words_of(name).unit}
            for name, points in series.items()
        ],
        "panels": PANELS,
        "sources": [source(run, role="self", colour=1), *behind],
        "references": found,
        "legend": behind,
        "band_url": _band_url(run, found) if found.as_band else "",
        "band_words": _band_words(found),
        "spreads": _spreads(run, asked),
        "pointed_at": step if (step := asked.get("step", "")).isdecimal() else "",
        "kept": [
            (n, v) for n in asked if not n.startswith(("from-", "to-")) for v in asked.getlist(n)
        ],
    }


def _band_url(run: Run, found: References) -> str:
    query = [("with", one.pk) for one in found.chosen]
    query += [("seeds", "1")] if found.with_seeds else []
    return f"{reverse('training:run_band', args=[run.project.slug, run.pk])}?{urlencode(query)}"


def _band_words(found: References) -> str:
    """What the band is of: "least to greatest of 4 runs"."""
    n = len({one.pk for one in found.chosen} | {o.pk for o in found.seeds if found.with_seeds})
    bounds = "10–90 %" if n >= 10 else "least to greatest"
    return f"{bounds} of {n} other {'seeds' if found.with_seeds and not found.chosen else 'runs'}"


def _spreads(run: Run, asked: QueryDict) -> list[dict[str, Any]]:
    shown = []
    for name in histogram_names(run):
        spreads = histograms(run, name)
        drawn = spread.strip(name, spreads)
        if drawn is not None:
            first = _at(spreads, asked.get(f"from-{name}"), spreads[0])
            second = _at(spreads, asked.get(f"to-{name}"), spreads[-1])
            shown.append({"strip": drawn, "pair": spread.pair(name, first, second)})
    return shown


def _at(spreads: list[Spread], asked: str | None, default: Spread) -> Spread:
    return next((one for one in spreads if str(one.step) == asked), default)
