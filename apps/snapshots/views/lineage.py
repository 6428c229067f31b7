"""Following votes to datasets, runs and models, and back."""

from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.permissions import READERS, project_page
from apps.common.errors import Missing
from apps.common.http import Request
from apps.labeling.models import Vote
from apps.labeling.selectors import comparison_get
from apps.labeling.texts import excerpt
from apps.snapshots.recipe import PRIVATE_SPLITS, SPLITS
from apps.snapshots.screens import lineage as screen
from apps.snapshots.selectors import browsing, comparing, lineage, snapshots
from apps.snapshots.selectors.comparing import changed_votes, vote_states
from apps.snapshots.selectors.lineage import comparison_tree, runs_used

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
        "prompt": excerpt(found.prompt.messages),
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
    wanted = browsing.RowsWanted(
        split=request.GET.get("split", ""),
        reason=request.GET.get("reason", ""),
        winner=request.GET.get("winner", ""),
        search=request.GET.get("q", "").strip().replace("\x00", ""),
        changed=request.GET.get("changed") == "1",
    )
    rows = browsing.rows_of(found, wanted)
    page = Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))
    shown = list(page)
    changed = browsing.changed_by_comparison(found, [row.comparison_id for row in shown])
    context = {
        "page_title": f"Rows of {found.name}",
        "nav": "datasets",
        "snapshot": found,
        "wanted": wanted,
        "filtered": wanted != browsing.RowsWanted(),
        "splits": [
            name
            for name in SPLITS
            if name in found.counts.get("rows", {}) and name not in PRIVATE_SPLITS
        ],
        "n_private": sum(found.counts.get("rows", {}).get(name, 0) for name in PRIVATE_SPLITS),
        "dropped": browsing.DROPPED,
        "reasons": browsing.drop_reasons(found),
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
        "n_votes": browsing.votes_behind(found),
        "n_rows": found.rows.exclude(split="").values("comparison").distinct().count(),
        "has_rows": browsing.has_rows(found),
        "later": runs_used(lineage.made_from(found)),
        "n_changed": len({vote for vote, _, _ in changed}),
        "page": page,
        "changed": screen.change_lines(page, states),
    }
    return render(request, "snapshots/lineage_dataset.html", context)
