"""The API of evaluation protocols: by what results were measured, and what differs between two."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from apps.accounts.api_auth import needs
from apps.accounts.permissions import STAFF, project_for
from apps.evaluation.models import EvaluationProtocol
from apps.evaluation.selectors import protocols as selectors

router = Router(tags=["evaluation"])
BASE = "/projects/{slug}/evaluation-protocols"
_MOST_RUNS = 500


class ProtocolOut(Schema):
    sha256: str = Field(description="of the canonical JSON of its content")
    created_at: datetime
    n_runs: int = Field(description="evaluations that it measured")


class ProtocolPage(Schema):
    count: int
    items: list[ProtocolOut]


class ProtocolDetailOut(ProtocolOut):
    content: dict[str, Any]
    runs: list[str] = Field(description="ids, newest first, at most 500")


class ProtocolLineOut(Schema):
    path: str = Field(description="names from the outside in; of a text with the number of a line")
    one: Any
    other: Any


class ProtocolDiffOut(Schema):
    one: str
    other: str
    same: bool = Field(description="whether results under both may stand on one axis")
    differences: list[ProtocolLineOut]


def _protocol(request: HttpRequest, slug: str, sha256: str) -> EvaluationProtocol:
    project, _ = project_for(request.user, slug, STAFF)
    return selectors.protocol_get(project=project, sha256=sha256)


@router.get(BASE, auth=needs("read"), response=ProtocolPage, summary="Protocols of evaluations")
def protocol_list(
    request: HttpRequest,
    slug: str,
    limit: int = Query(50, ge=1, le=500),
    offset: int = Query(0, ge=0, le=10**9),
) -> ProtocolPage:
    """By what the project's evaluations were measured, newest first."""
    project, _ = project_for(request.user, slug, STAFF)
    rows = selectors.protocols(project=project)
    found = rows[offset : offset + limit]
    items = [
        ProtocolOut(sha256=row.sha256, created_at=row.created_at, n_runs=row.n_runs)
        for row in found
    ]
    return ProtocolPage(count=rows.count(), items=items)


@router.get(
    BASE + "/{sha256}", auth=needs("read"), response=ProtocolDetailOut, summary="One protocol"
)
def protocol_get(request: HttpRequest, slug: str, sha256: str) -> ProtocolDetailOut:
    """With its content and the runs that used it; the first 12 characters of a hash will do."""
    row = _protocol(request, slug, sha256)
    runs = selectors.runs_by(row)
    return ProtocolDetailOut(
        sha256=row.sha256,
        created_at=row.created_at,
        n_runs=runs.count(),
        content=row.content,
        runs=list(runs.values_list("pk", flat=True)[:_MOST_RUNS]),
    )


@router.get(
    BASE + "/{sha256}/differences/{other}",
    auth=needs("read"),
    response=ProtocolDiffOut,
    summary="What differs between two protocols",
)
def protocol_diff(request: HttpRequest, slug: str, sha256: str, other: str) -> ProtocolDiffOut:
    """Every line that differs. Results under different hashes are never on one axis."""
    one, two = _protocol(request, slug, sha256), _protocol(request, slug, other)
    lines = selectors.protocol_differences(one, two)
    return ProtocolDiffOut(
        one=one.sha256,
        other=two.sha256,
        same=one.sha256 == two.sha256,
        differences=[ProtocolLineOut(**line._asdict()) for line in lines],
    )
