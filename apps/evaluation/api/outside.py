"""The API of results that another program measured."""

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, File, Query, Router, Schema, Status
from ninja.files import UploadedFile

from apps.accounts.api_auth import needs
from apps.accounts.permissions import READERS, STAFF, project_for
from apps.common.errors import DomainError
from apps.evaluation.formats.outside import LARGEST
from apps.evaluation.models import OutsideResult
from apps.evaluation.selectors import outside as selectors
from apps.evaluation.services import outside as services
from apps.training.selectors.pages import checkpoint_get

router = Router(tags=["evaluation"])
BASE = "/projects/{slug}/outside-results"
_FILE = File(None, description="required")


class OutsideMetricOut(Schema):
    name: str = Field(description="as its program calls it, with the filter or scorer")
    value: float
    stderr: float | None = Field(description="standard error; null: the file gives none")
    n: int | None = Field(description="samples behind it; null: the file does not say")
    higher_is_better: bool | None


class OutsideResultOut(Schema):
    id: str
    model: str = Field(description="the checkpoint that the person chose")
    program: Literal["lm-evaluation-harness", "inspect"]
    task: str
    metrics: list[OutsideMetricOut]
    protocol: dict[str, Any] = Field(description="by what it was measured, the model left out")
    protocol_sha256: str = Field(description="of the canonical JSON of `protocol`")
    system: dict[str, Any] = Field(description="what the file says of the model")
    measured_at: str = Field(description="as the file writes it")
    file_name: str
    file_sha256: str
    imported_by: str
    created_at: datetime


class OutsideResultPage(Schema):
    count: int
    items: list[OutsideResultOut]


class OutsideLineOut(Schema):
    path: str
    one: Any
    other: Any


class OutsideDiffOut(Schema):
    one: str
    other: str
    same: bool = Field(description="whether both may stand on one axis")
    differences: list[OutsideLineOut]


def _out(row: OutsideResult) -> OutsideResultOut:
    kept = ("id", "program", "task", "protocol", "protocol_sha256", "system", "measured_at")
    return OutsideResultOut(
        **{name: getattr(row, name) for name in (*kept, "file_name", "file_sha256", "created_at")},
        model=row.checkpoint_id,
        metrics=[OutsideMetricOut(**one) for one in row.metrics],
        imported_by=row.imported_name,
    )


@router.get(
    BASE, auth=needs("read"), response=OutsideResultPage, summary="Results measured elsewhere"
)
def outside_results(
    request: HttpRequest,
    slug: str,
    model: str = Query("", description="only of this checkpoint"),
    limit: int = Query(50, ge=1, le=500),
    offset: int = Query(0, ge=0, le=10**9),
) -> OutsideResultPage:
    """Of lm-evaluation-harness and Inspect, newest first. Compare only those of one
    `protocol_sha256`."""
    project, _ = project_for(request.user, slug, READERS)
    rows = selectors.outside_results(project=project, checkpoint_id=model)
    return OutsideResultPage(
        count=rows.count(), items=[_out(row) for row in rows[offset : offset + limit]]
    )


@router.post(
    "/projects/{slug}/models/{checkpoint_id}/outside-results",
    auth=needs("train"),
    response={201: list[OutsideResultOut]},
    summary="Import a result file of another program",
)
def outside_results_import(
    request: HttpRequest, slug: str, checkpoint_id: str, file: UploadedFile | None = _FILE
) -> Status:
    """results_*.json of lm-evaluation-harness or a zip of its folder, or a log of Inspect (.json,
    .eval): a result for each task. All of them or none."""
    project, _ = project_for(request.user, slug, STAFF)
    model = checkpoint_get(project=project, checkpoint_id=checkpoint_id)
    if file is None:
        raise DomainError("Send the file as multipart/form-data.", field="file")
    made = services.outside_results_import(
        checkpoint=model, file_name=file.name or "", data=file.read(LARGEST + 1), user=request.user
    )
    return Status(201, [_out(row) for row in made])


@router.get(
    BASE + "/{result}/differences/{other}",
    auth=needs("read"),
    response=OutsideDiffOut,
    summary="What differs between two of them",
)
def outside_differences(request: HttpRequest, slug: str, result: str, other: str) -> OutsideDiffOut:
    """The lines in which their protocols differ; none where they may be compared."""
    project, _ = project_for(request.user, slug, READERS)
    one, two = (
        selectors.outside_result_get(project=project, result_id=key) for key in (result, other)
    )
    lines = selectors.outside_differences(one, two)
    return OutsideDiffOut(
        one=one.protocol_sha256,
        other=two.protocol_sha256,
        same=not lines,
        differences=[OutsideLineOut(**line._asdict()) for line in lines],
    )


@router.delete(
    BASE + "/{result}", auth=needs("train"), response={204: None}, summary="Delete one of them"
)
def outside_result_delete(request: HttpRequest, slug: str, result: str) -> Status:
    """What promotions froze of it stays with them."""
    project, _ = project_for(request.user, slug, STAFF)
    services.outside_result_delete(project=project, result_id=result, user=request.user)
    return Status(204, None)
