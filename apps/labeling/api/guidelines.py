"""The API of guidelines: read them, and say that one has."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema

from apps.accounts.api_auth import needs
from apps.accounts.models import Project, User
from apps.accounts.permissions import project_for
from apps.common.errors import Missing
from apps.labeling import selectors, services
from apps.labeling.services import LABELERS

router = Router(tags=["labeling"])


class GuidelineOut(Schema):
    version: int
    body: str = Field(description="Markdown")
    is_major: bool
    published_at: datetime
    acknowledged_version: int = Field(
        description="the last version you said you have read; 0: none"
    )
    must_acknowledge: bool = Field(description="`next` gives nothing until you acknowledge it")


class AcknowledgeIn(Schema):
    version: int = Field(ge=1, le=2**31 - 1, description="the version you have read")


@router.get(
    "/projects/{slug}/guidelines",
    auth=needs("read"),
    response=GuidelineOut,
    summary="The current guidelines",
)
def guidelines_get(request: HttpRequest, slug: str) -> dict[str, Any]:
    project, role = project_for(request.user, slug)
    return _shown(project, request.user, role)


@router.post(
    "/projects/{slug}/guidelines/acknowledge",
    auth=needs("label"),
    response=GuidelineOut,
    summary="Say that you have read the guidelines",
)
def guidelines_acknowledge(
    request: HttpRequest, slug: str, payload: AcknowledgeIn
) -> dict[str, Any]:
    """Saying it again is harmless; a version that a newer major one replaced is refused."""
    project, role = project_for(request.user, slug, LABELERS)
    services.guideline_acknowledge(project=project, user=request.user, version=payload.version)
    return _shown(project, request.user, role)


def _shown(project: Project, user: User, role: str) -> dict[str, Any]:
    current = selectors.guideline_current(project=project)
    if current is None:
        raise Missing("This project has no guidelines yet.", field="version")
    read = selectors.guideline_read(project=project, user=user)
    due = False
    if role in LABELERS:
        eligibility = services.labeling_status(project=project, annotator=user).eligibility
        due = eligibility.guideline_due is not None
    return {
        "version": current.version,
        "body": current.body,
        "is_major": current.is_major,
        "published_at": current.created_at,
        "acknowledged_version": read.version if read else 0,
        "must_acknowledge": due,
    }
