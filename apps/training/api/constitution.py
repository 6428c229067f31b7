"""The API of a project's constitution, and of freezing what was rewritten by it."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.permissions import STAFF, project_for
from apps.snapshots.api import SnapshotOut
from apps.snapshots.models import Snapshot
from apps.training.api.runs import BASE, run_of
from apps.training.models import Constitution
from apps.training.selectors.constitution import constitution_versions
from apps.training.services.constitution import constitution_save
from apps.training.services.revisions import DEFAULT_WEIGHT, revisions_freeze

router = Router(tags=["constitution"])
PATH = "/projects/{slug}/constitution"


class PrincipleIO(Schema):
    name: str = Field(description="by which pairs are counted")
    text: str = Field(description="what a model criticises and rewrites by")


class ConstitutionIn(Schema):
    principles: list[PrincipleIO] = Field(max_length=50)
    hard_rules: dict[str, Any] = Field(
        default_factory=dict, description="a reward that blocks answers; see docs/rewards.md"
    )
    note: str = Field("", max_length=500, description="what changed, and why")
    over: int | None = Field(
        None, description="the version that was changed, 0 for none; a newer one refuses this"
    )


class ConstitutionOut(Schema):
    number: int
    principles: list[PrincipleIO]
    hard_rules: dict[str, Any]
    note: str
    created_by: str
    created_at: datetime

    @classmethod
    def of(cls, row: Constitution) -> "ConstitutionOut":
        return cls(
            number=row.number,
            principles=[PrincipleIO(**one) for one in row.principles],
            hard_rules=row.hard_rules,
            note=row.note,
            created_by=row.created_name,
            created_at=row.created_at,
        )


@router.get(
    PATH,
    auth=needs("read"),
    response=list[ConstitutionOut],
    summary="Versions of the project's constitution, the newest first",
)
def versions(request: HttpRequest, slug: str) -> list[ConstitutionOut]:
    """The first of them is the one that counts; none where nothing was saved."""
    project, _ = project_for(request.user, slug, STAFF)
    return [ConstitutionOut.of(one.row) for one in constitution_versions(project=project)]


@router.post(
    PATH,
    auth=needs("write"),
    response={201: ConstitutionOut},
    summary="Save a version of the constitution",
)
def save(request: HttpRequest, slug: str, payload: ConstitutionIn) -> Status[ConstitutionOut]:
    """The whole document. Where nothing but the note differs, the current version is answered."""
    project, _ = project_for(request.user, slug, STAFF)
    made = constitution_save(project=project, user=request.user, **payload.dict())
    return Status(201, ConstitutionOut.of(made))


class RevisionsIn(Schema):
    name: str = Field("", max_length=120, description="empty: after the run")
    weight: float = Field(
        DEFAULT_WEIGHT, gt=0, le=1, description="of each row in the loss; a person's counts 1"
    )
    label_probability: float = Field(
        1.0, gt=0.5, le=1, description="how sure it is that the rewritten answer is better"
    )


@router.post(
    BASE + "/{run_id}/freeze-revisions",
    auth=needs("train"),
    response={201: SnapshotOut},
    summary="Freeze the rewritten answers of a finished generation as preference pairs",
)
def freeze_revisions(
    request: HttpRequest, slug: str, run_id: str, payload: RevisionsIn
) -> Status[Snapshot]:
    """No person compared them, and every row says so. Once for each run."""
    run = run_of(request, slug, run_id)
    return Status(201, revisions_freeze(run=run, user=request.user, **payload.dict()))
