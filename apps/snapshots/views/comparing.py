"""What changed between two datasets."""

from typing import Any

from django.core.paginator import Paginator
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from apps.accounts.permissions import READERS, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SPLITS
from apps.snapshots.screens import changes as screen
from apps.snapshots.selectors import comparing, snapshots
from apps.snapshots.selectors.comparing import vote_states

PER_PAGE = 50


class _Changes:
    """Changes as a Paginator wants them: counted, and read a page at a time."""

    def __init__(self, old: Snapshot, new: Snapshot, wanted: comparing.DiffFilter) -> None:
        self._which: dict[str, Any] = {"old": old, "new": new, "wanted": wanted}

    def count(self) -> int:
        return comparing.compare_count(**self._which)

    def __len__(self) -> int:
        return self.count()

    def __getitem__(self, part: slice) -> list[comparing.Change]:
        most = part.stop - part.start
        return list(comparing.compare_rows(**self._which, start=part.start, most=most))


@require_safe
@project_page(READERS)
def compare(request: Request) -> HttpResponse:
    """`?old=…&new=…`, or `?pick=…&pick=…` from the list, in whatever order."""
    if picked := _picked(request):
        return redirect(picked)
    context = {
        "page_title": "What changed",
        "nav": "datasets",
        "choices": comparing.comparable(project=request.project),
        "old_id": request.GET.get("old", ""),
        "new_id": request.GET.get("new", ""),
    }
    if context["old_id"] and context["new_id"]:
        old, new = _both(request)
        try:
            context |= _compared(request, old, new)
        except DomainError as error:
            context["refused"] = error.message
    return render(request, "snapshots/diff.html", context)


@require_safe
@project_page(READERS)
def compare_csv(request: Request) -> HttpResponseBase:
    """The rows that the page lists, all of them."""
    old, new = _both(request)
    comparing.pair_checked(old=old, new=new)
    found = comparing.compare_rows(old=old, new=new, wanted=_wanted(request))
    lines = csv_lines(screen.CSV_COLUMNS, screen.csv_rows(found))
    response = StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8")
    name = f"{request.project.slug}-{old.pk}-to-{new.pk}.csv"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _compared(request: Request, old: Snapshot, new: Snapshot) -> dict[str, Any]:
    summary = comparing.compare_summary(old=old, new=new)
    wanted = _wanted(request)
    page = Paginator(_Changes(old, new, wanted), PER_PAGE).get_page(request.GET.get("page"))
    rows = list(page)
    votes = vote_states({vote for row in rows for vote in (*row.came, *row.gone)})
    return {
        "old": old,
        "new": new,
        "backwards": old.created_at > new.created_at,
        "summary": summary,
        "tiles": screen.tiles(summary),
        "recipe": screen.recipe_lines(old, new),
        "changes": comparing.CHANGES,
        "splits": [s for s in SPLITS if s in {*old.counts["rows"], *new.counts["rows"]}],
        "wanted": wanted,
        "page": page,
        "rows": screen.change_rows(rows, votes),
    }


def _both(request: Request) -> tuple[Snapshot, Snapshot]:
    old, new = (
        snapshots.snapshot_get(project=request.project, snapshot_id=request.GET.get(name, ""))
        for name in ("old", "new")
    )
    return old, new


def _wanted(request: Request) -> comparing.DiffFilter:
    change, split = request.GET.get("change", ""), request.GET.get("split", "")
    return comparing.DiffFilter(
        change=change if change in comparing.CHANGES else "",
        split=split if split in SPLITS else "",
        search=request.GET.get("q", "").strip().replace("\x00", ""),
    )


def _picked(request: Request) -> str:
    """Where the two datasets ticked in the list lead: the older one is `old`."""
    picked = request.GET.getlist("pick")
    if len(picked) != 2:
        return ""
    found = snapshots.snapshot_list(project=request.project).filter(pk__in=picked)
    ordered = [snapshot.pk for snapshot in found.order_by("created_at")]
    if len(ordered) != 2:
        return ""
    where = reverse("snapshots:compare", args=[request.project.slug])
    return f"{where}?{urlencode({'old': ordered[0], 'new': ordered[1]})}"
