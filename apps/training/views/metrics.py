"""The numbers behind the charts: JSON for the browser, CSV for people; and files a run left."""

import csv
from collections.abc import Iterator
from typing import Any

from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import Conflict, Missing, Refused, Unavailable
from apps.common.http import FileStream, Request
from apps.common.spreadsheet import csv_lines, safe_cell
from apps.labeling.services import LABELERS
from apps.snapshots.storage import artifact_open
from apps.training import selectors
from apps.training.models import Artifact, Run
from apps.training.screens import charts as bands
from apps.training.screens import charts as screen
from apps.training.screens import histograms as histogram_screen
from apps.training.screens import panels
from apps.training.selectors import pages
from apps.training.selectors.metrics import curve_names, histograms
from apps.training.selectors.results import alerts_that_count, findings
from workers.artifacts import ArtifactError, ArtifactMissing, StoreUnreachable
from workers.contract.events import is_by_time

POINTS, MOST_POINTS, MOST_NAMES = 1000, 20_000, 100
EVERY_POINT = 10**9
_BLOCK = 1 << 18


@require_safe
@project_page(STAFF)
def run_metrics(request: Request, run_id: str) -> HttpResponse:
    """The curves of the run, thinned: all, those in `names`, or with `shown=leading` the ones that
    are open at first; from step `from` to step `to`. 304 while nothing is new, so polling costs
    one query."""
    run = selectors.run_get(project=request.project, run_id=run_id)
    etag = f'"{run.attempt}-{run.state}-{pages.newest_event(run)}"'
    if request.headers.get("If-None-Match") == etag:
        return HttpResponse(status=304, headers={"ETag": etag})
    known = curve_names(run)
    found = screen.annotations_of(run, alerts_that_count(run), findings(run), known)
    charts = panels.charts_of(run.trained_kind, known, screen.annotated_metrics(found))
    names = request.GET.getlist("names") or None
    if names is None and request.GET.get("shown") == "leading":
        names = [name for chart in charts if chart.leads for name in chart.names]
    series = selectors.metric_series(
        run=run,
        names=names,
        from_step=_whole(request.GET.get("from")),
        to_step=_whole(request.GET.get("to")),
        max_points=min(MOST_POINTS, max(10, _whole(request.GET.get("points")) or POINTS)),
    )
    data = _chart_data(run, series) | {
        "charts": [chart.to_json() for chart in charts],
        "limits": screen.limits_of(run),
        "alerts": found,
        "axes": screen.axes_of(known),
        "began": int(run.started_at.timestamp()) if run.started_at else None,
    }
    return JsonResponse(data, headers={"ETag": etag})


def _whole(asked: str | None) -> int | None:
    """A number of an address; None where it is none, or longer than any step."""
    return int(asked) if asked and asked.isdecimal() and len(asked) < 16 else None


def _chart_data(run: Run, series: dict[str, list[tuple[int, Any]]]) -> dict[str, Any]:
    resumed = run.attempts.filter(resumed_from_step__isnull=False).order_by("number")
    return {
        "run": run.pk,
        "name": run.name,
        "live": run.is_live,
        "series": series_json(series),
        "attempts": [{"number": row.number, "step": row.resumed_from_step} for row in resumed],
    }


def series_json(series: dict[str, list[tuple[int, Any]]]) -> dict[str, Any]:
    """`values` holds null where a value is undefined or no number; `broken` lists the latter."""
    return {
        name: {
            "steps": [step for step, _ in rows],
            "values": [v if isinstance(v, int | float) else None for _, v in rows],
            "broken": [step for step, v in rows if isinstance(v, str)],
        }
        for name, rows in series.items()
    }


@require_safe
@project_page(STAFF)
def run_band(request: Request, run_id: str) -> HttpResponse:
    """How these metrics lay in other runs: in those of `with`, and with `seeds=1` of its group."""
    run = selectors.run_get(project=request.project, run_id=run_id)
    others = panels.band_runs(
        run, request.GET.getlist("with"), seeds=request.GET.get("seeds") == "1"
    )
    names = request.GET.getlist("names")[:MOST_NAMES]
    found = [selectors.metric_series(run=other, names=names, max_points=POINTS) for other in others]
    return JsonResponse({"runs": len(others), "bands": bands.bands_of(found)})


@require_safe
@project_page(STAFF)
def run_metrics_csv(request: Request, run_id: str) -> StreamingHttpResponse:
    """One row per step, one column per metric, every point; with `by=time` the curves of the
    machine, one row per sample."""
    run = selectors.run_get(project=request.project, run_id=run_id)
    by_time = request.GET.get("by") == "time"
    names = [name for name in curve_names(run) if is_by_time(name) == by_time]
    series = selectors.metric_series(run=run, names=names, max_points=EVERY_POINT)
    rows = _csv("unix_seconds" if by_time else "step", series)
    response = StreamingHttpResponse(rows, content_type="text/csv; charset=utf-8")
    what = "machine" if by_time else "metrics"
    response["Content-Disposition"] = content_disposition_header(True, f"{run.pk}-{what}.csv")
    return response


class _CsvEcho:
    """csv.writer writes into it and gets the line back."""

    def write(self, line: str) -> str:
        return line


def _csv(first: str, series: dict[str, list[tuple[int, Any]]]) -> Iterator[str]:
    writer = csv.writer(_CsvEcho())
    # A worker chooses the names: a spreadsheet must not take one for a formula.
    yield writer.writerow([first, *map(safe_cell, series)])
    columns = [dict(points) for points in series.values()]
    for step in sorted(set().union(*columns)):
        yield writer.writerow([step, *("" if (v := c.get(step)) is None else v for c in columns)])


@require_safe
@project_page(STAFF)
def run_histograms_csv(request: Request, run_id: str) -> StreamingHttpResponse:
    """A row for each step and bin."""
    run = selectors.run_get(project=request.project, run_id=run_id)
    name = request.GET.get("name", "")
    rows = histogram_screen.csv_rows(name, histograms(run, name))
    response = StreamingHttpResponse(
        csv_lines(histogram_screen.COLUMNS, rows), content_type="text/csv; charset=utf-8"
    )
    response["Content-Disposition"] = content_disposition_header(True, f"{run.pk}-histograms.csv")
    return response


@require_safe
@project_page(STAFF)
def run_artifact(request: Request, run_id: str, artifact_id: int) -> StreamingHttpResponse:
    """A file the run left, whole, and always as a download: its content is the trainer's, not
    ours."""
    run = selectors.run_get(project=request.project, run_id=run_id)
    row = Artifact.objects.filter(run=run, pk=artifact_id).first()
    if row is None:
        raise Missing("The run has no such file.", field="artifact")
    if run.kind == Run.Kind.JUDGE and request.role in LABELERS:
        raise Refused(
            "It holds verdicts on pairs that you may be asked to vote on. Those on pairs that are "
            "no longer open are read by the API.",
            code="verdicts_hidden",
        )
    try:
        source = artifact_open(row.uri, sha256=row.sha256)
    except StoreUnreachable as error:
        raise Unavailable(f"{error}.") from error
    except ArtifactMissing as error:
        raise Missing("The file is not in the artifact store any more.") from error
    except ArtifactError as error:
        raise Conflict(
            f"The file is not what the run left: {error}.", code="damaged", details=str(error)
        ) from error
    response = FileStream(
        iter(lambda: source.read(_BLOCK), b""), content_type="application/octet-stream"
    )
    response._resource_closers.append(source.close)
    response["Content-Disposition"] = content_disposition_header(True, row.name)
    return response
