"""The API of the list of comparisons: find, act on many, keep a filter under a name."""

from datetime import date, datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Path, Query, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.permissions import READERS, project_for
from apps.common.errors import DomainError
from apps.labeling import services
from apps.labeling.forms import ComparisonsFilter
from apps.labeling.models import BulkAction, Comparison, SavedView
from apps.labeling.selectors import finding
from apps.labeling.selectors.finding import Wanted
from apps.labeling.texts import excerpt

router = Router(tags=["labeling"])
LARGEST_KEY = 2**63 - 1
Key = Path(ge=1, le=LARGEST_KEY)
MOST_ROWS = 500


class ComparisonFilters(Schema):
    """Which comparisons; nothing stated is all of them."""

    q: str = Field("", description="words of the prompt or the answers, “phrases”, or an id")
    state: str = Field("", description="open, decided, contested, review, dropped")
    stratum: str = Field("", description="random, priority, gold, practice")
    winner: str = Field("", description="a, b, tie, both_bad")
    annotator: int | None = Field(None, description="who voted, by number")
    batch: str = Field("", description="the import they came with")
    topic: str = ""
    model: str = Field("", description="that wrote either answer")
    flag: str = Field("", description="that a voter set")
    votes: int | None = Field(None, description="exactly so many")
    since: date | None = Field(None, description="imported on this day or later (UTC)")
    until: date | None = Field(None, description="imported on this day or earlier (UTC)")

    def wanted(self) -> Wanted:
        form = self.form()
        form.check()
        return form.wanted()

    def form(self) -> ComparisonsFilter:
        given = ComparisonFilters.model_fields  # not what a subclass adds
        return ComparisonsFilter({name: getattr(self, name) for name in given})


class ComparisonOut(Schema):
    id: int
    external_id: str
    prompt: str = Field(description="its first words")
    response_a: str
    response_b: str
    state: str
    stratum: str
    slice: str = Field(description="measuring, training or selected, of pairs that were chosen")
    inclusion_probability: float | None = Field(
        description="with which it was drawn into its slice; null of no slice, and of selected"
    )
    winner: str
    votes: int
    priority: float
    created_at: datetime


class ComparisonsOut(Schema):
    items: list[ComparisonOut]
    count: int | None = Field(
        description="how many fit, counted up to 10,001; null where a phrase is too common to count"
    )
    before: str = Field(description="`at` of the page before; empty on the first")
    after: str = Field(description="`at` of the next page; empty on the last")


@router.get(
    "/projects/{slug}/comparisons",
    auth=needs("read"),
    response=ComparisonsOut,
    summary="Find comparisons",
)
def comparisons_find(
    request: HttpRequest,
    slug: str,
    filters: Query[ComparisonFilters],
    sort: str = Query(
        finding.NEWEST, description=f"{', '.join(finding.SORTS)}; with - before it, downwards"
    ),
    at: str = Query("", max_length=100, description="of another page; `end` for the last"),
    limit: int = Query(50, ge=1, le=MOST_ROWS),
) -> dict[str, Any]:
    """By words, in any order of the list; a page costs the same wherever it is."""
    project, _ = project_for(request.user, slug, READERS)
    if sort.removeprefix("-") not in finding.SORTS:
        raise DomainError(f"sort is one of {', '.join(finding.SORTS)}.", field="sort")
    page = finding.comparisons_page(
        project=project, wanted=filters.wanted(), sort=sort, at=at, size=limit
    )
    items = [_comparison(row) for row in page.rows]
    return {"items": items, "count": page.n, "before": page.before, "after": page.after}


def _comparison(row: Comparison) -> dict[str, Any]:
    decision = getattr(row, "decision", None)
    return {
        "id": row.pk,
        "external_id": row.external_id,
        "prompt": excerpt(row.prompt.brief),
        "response_a": excerpt(row.response_a.brief),
        "response_b": excerpt(row.response_b.brief),
        "state": row.state,
        "stratum": row.stratum,
        "slice": row.slice,
        "inclusion_probability": row.inclusion_probability,
        "winner": decision.winner if decision else "",
        "votes": row.n_votes,
        "priority": row.priority,
        "created_at": row.created_at,
    }


class BulkIn(Schema):
    """`comparisons` by id, or everything that fits `filters`."""

    action: Literal["priority", "votes", "review", "drop"]
    comparisons: list[int] = Field([], max_length=20_000)
    filters: ComparisonFilters | None = None
    value: float | None = Field(None, description="the priority, or how many further votes")
    reason: str = Field("", max_length=250)
    key: str = Field("", max_length=80, description="yours; the same again does nothing more")
    expected: int | None = Field(None, description="refuse unless it changes so many")
    dry_run: bool = Field(False, description="say what it would change, and change nothing")


class BulkOut(Schema):
    action: str
    n_selected: int
    n_changed: int
    left_out: dict[str, int] = Field(description="{why: how many}")


@router.post(
    "/projects/{slug}/comparisons/bulk",
    auth=needs("write"),
    response=BulkOut,
    summary="Act on many comparisons",
)
def comparisons_bulk(request: HttpRequest, slug: str, payload: BulkIn) -> dict[str, Any]:
    """All in one transaction; what the action cannot be done to is left out and counted."""
    project, _ = project_for(request.user, slug, READERS)
    services.bulk_allowed(project=project, action=payload.action, user=request.user)
    if bool(payload.comparisons) == (payload.filters is not None):
        raise DomainError("Give either comparisons or filters.", field="comparisons")
    wanted = payload.filters.wanted() if payload.filters else Wanted()
    ids = services.bulk_selected(project=project, wanted=wanted, only=payload.comparisons)
    if payload.dry_run:
        look = services.bulk_look(ids=ids, action=payload.action, value=payload.value)
        return {
            "action": payload.action,
            "n_selected": look.n_selected,
            "n_changed": len(look.ids),
            "left_out": look.left_out,
        }
    done: BulkAction = services.comparisons_bulk(
        project=project,
        ids=ids,
        by=request.user,
        **payload.dict(include={"action", "value", "reason", "key", "expected"}),
    )
    return {name: getattr(done, name) for name in ("action", "n_selected", "n_changed", "left_out")}


class ViewIn(Schema):
    name: str = Field(max_length=60)
    filters: ComparisonFilters = ComparisonFilters()
    sort: str = finding.NEWEST
    is_shared: bool = Field(False, description="for everybody of the project")


class ViewOut(Schema):
    id: int
    name: str
    query: str = Field(description="of the page's address")
    is_shared: bool
    owner: str


def _view(view: SavedView) -> dict[str, Any]:
    return {
        "id": view.pk,
        "name": view.name,
        "query": view.query,
        "is_shared": view.is_shared,
        "owner": view.owner.username,
    }


@router.get(
    "/projects/{slug}/comparisons/views",
    auth=needs("read"),
    response=list[ViewOut],
    summary="Filters kept under a name: your own and the shared ones",
)
def views_list(request: HttpRequest, slug: str) -> list[dict[str, Any]]:
    project, _ = project_for(request.user, slug, READERS)
    return [_view(view) for view in finding.views_of(project=project, user=request.user)]


@router.post(
    "/projects/{slug}/comparisons/views",
    auth=needs("write"),
    response={201: ViewOut},
    summary="Keep a filter under a name",
)
def view_save(request: HttpRequest, slug: str, payload: ViewIn) -> Status:
    """The same name again replaces what it stood for."""
    project, _ = project_for(request.user, slug, READERS)
    payload.filters.wanted()
    view = services.view_save(
        project=project,
        owner=request.user,
        name=payload.name,
        query=payload.filters.form().address(payload.sort),
        is_shared=payload.is_shared,
    )
    return Status(201, _view(view))


@router.delete(
    "/projects/{slug}/comparisons/views/{view}",
    auth=needs("write"),
    response={204: None},
    summary="Delete a view: your own, or as an admin a shared one",
)
def view_delete(request: HttpRequest, slug: str, view: int = Key) -> Status:
    project, _ = project_for(request.user, slug, READERS)
    services.view_delete(project=project, view=view, by=request.user)
    return Status(204, None)
