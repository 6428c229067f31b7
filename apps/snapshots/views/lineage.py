"""Following votes to datasets, runs and models, and back."""

from typing import Any

from django.core.paginator import Paginator
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from apps.accounts.permissions import READERS, project_page
from apps.common.errors import DomainError, Missing
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines
from apps.labeling.models import Vote
from apps.labeling.selectors import comparison_get
from apps.labeling.texts import excerpt
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import PRIVATE_SPLITS, SPLITS
from apps.snapshots.screens import changes as changes_screen
from apps.snapshots.screens import lineage as screen
from apps.snapshots.selectors import comparing, lineage, snapshots
from apps.snapshots.selectors.comparing import changed_votes, vote_states
from apps.snapshots.selectors.lineage import comparison_tree, runs_used
from apps.snapshots.services.looks import rows_previewed

PER_PAGE = 50


@require_safe
@project_page(READERS)
def comparison_lineage(request: Request, comparison: int) -> HttpResponse:
    """Where a comparison's votes went; `?vote=` follows one of them."""
    try:
        found = comparison_get(project=request.project, comparison=comparison)
    except Missing as error:
        raise Http404(error.message) from error
    votes = vote_states(Vote.objects.filter(comparison=found).values_list("pk", flat=True))
    wanted = request.GET.get("vote", "")[:18]
    chosen = int(wanted) if wanted.isdecimal() and int(wanted) in votes else None
    rows = lineage.comparison_rows(project=request.project, comparison=found.pk)
    datasets = screen.dataset_lines(rows, comparison_tree(rows), votes)
    if chosen is not None:
        datasets = [line for line in datasets if chosen in line.row.vote_ids]
    context = {
        "page_title": f"Lineage of the votes on {found.external_id or found.pk} went",
        "nav": "comparisons",
        "comparison": found,
        "prompt": excerpt(found.prompt.brief),
        "votes": screen.vote_lines(list(votes.values()), rows, chosen=chosen),
        "datasets": datasets,
        "chosen": chosen,
    }
    return render(request, "snapshots/lineage.html", context)


@require_safe
@project_page(READERS)
def snapshot_rows(request: Request, snapshot: str) -> HttpResponse:
    """Every comparison that the dataset looked at: its file, or why it was left out."""
    found = snapshots.snapshot_get(project=request.project, snapshot_id=snapshot)
    wanted = snapshots.RowsWanted(
        split=request.GET.get("split", ""),
        reason=request.GET.get("reason", ""),
        winner=request.GET.get("winner", ""),
        search=request.GET.get("q", "").strip().replace("\x00", ""),
        changed=request.GET.get("changed") == "1",
    )
    rows = snapshots.rows_of(found, wanted)
    page = Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))
    shown = list(page)
    rows_previewed(snapshot=found, splits=[row.split for row in shown], person=request.user)
    changed = snapshots.changed_by_comparison(found, [row.comparison_id for row in shown])
    context = {
        "page_title": f"Rows of {found.name}",
        "nav": "datasets",
        "snapshot": found,
        "wanted": wanted,
        "filtered": wanted != snapshots.RowsWanted(),
        "splits": [
            name
            for name in SPLITS
            if name in found.counts.get("rows", {}) and name not in PRIVATE_SPLITS
        ],
        "n_private": sum(found.counts.get("rows", {}).get(name, 0) for name in PRIVATE_SPLITS),
        "dropped": snapshots.DROPPED,
        "reasons": snapshots.drop_reasons(found),
        "page": page,
        "rows": screen.row_lines(shown, changed),
    }
    return render(request, "snapshots/lineage_rows.html", context)


@require_safe
@project_page(READERS)
def snapshot_lineage(request: Request, snapshot: str) -> HttpResponse:
    """Back to the votes, on to runs and models, and the votes that were changed since."""
    found = snapshots.snapshot_get(project=request.project, snapshot_id=snapshot)
    changed = [(one.vote, one.comparison, one.split) for one in changed_votes([found])]
    page = Paginator(changed, PER_PAGE).get_page(request.GET.get("page"))
    states = vote_states([vote for vote, _, _ in page])
    context = {
        "page_title": f"Lineage of {found.name}",
        "nav": "datasets",
        "snapshot": found,
        "before": comparing.one_before(found),
        "n_votes": snapshots.votes_behind(found),
        "n_rows": found.rows.exclude(split="").values("comparison").distinct().count(),
        "has_rows": snapshots.has_rows(found),
        "labelled_in": lineage.labelled_in(found),
        "later": runs_used(lineage.made_from(found)),
        "n_changed": len({vote for vote, _, _ in changed}),
        "page": page,
        "changed": screen.change_lines(page, states),
    }
    return render(request, "snapshots/lineage_dataset.html", context)


# What changed between two datasets.


CHANGES_PER_PAGE = 50


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
    lines = csv_lines(changes_screen.CSV_COLUMNS, changes_screen.csv_rows(found))
    response = StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8")
    name = f"{request.project.slug}-{old.pk}-to-{new.pk}.csv"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _compared(request: Request, old: Snapshot, new: Snapshot) -> dict[str, Any]:
    summary = comparing.compare_summary(old=old, new=new)
    wanted = _wanted(request)
    page = Paginator(_Changes(old, new, wanted), CHANGES_PER_PAGE).get_page(request.GET.get("page"))
    rows = list(page)
    votes = vote_states({vote for row in rows for vote in (*row.came, *row.gone)})
    return {
        "old": old,
        "new": new,
        "backwards": old.created_at > new.created_at,
        "summary": summary,
        "tiles": changes_screen.tiles(summary),
        "recipe": changes_screen.recipe_lines(old, new),
        "changes": comparing.CHANGES,
        "splits": [s for s in SPLITS if s in {*old.counts["rows"], *new.counts["rows"]}],
        "wanted": wanted,
        "page": page,
        "rows": changes_screen.change_rows(rows, votes),
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
