"""The API of imports from files: upload, check, start, look, cancel."""

from datetime import date, datetime
from itertools import islice
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, File, Form, Query, Router, Schema, Status
from ninja.files import UploadedFile

from apps.accounts.api_auth import needs
from apps.accounts.permissions import ADMIN, STAFF, project_for
from apps.common.errors import DomainError
from apps.labeling import services
from apps.labeling.models import ImportJob
from apps.labeling.screens import imports as import_jobs

router = Router(tags=["labeling"])
MOST_LISTED = 200
_FILE = File(None, description="required")


class ImportOut(Schema):
    id: str
    makes: str = Field(description="comparisons, or the kind of dataset")
    file_name: str
    file_size: int = Field(description="bytes")
    file_sha256: str
    stage: Literal["check", "import", "undo"]
    state: Literal[
        "draft", "queued", "running", "done", "failed", "cancelled", "interrupted", "undone"
    ]
    settings: dict[str, Any]
    preview: dict[str, Any] = Field(description="container, layout, columns, mapping, first rows")
    check_report: dict[str, Any] = Field(description="what an import would do; empty before")
    result: dict[str, Any] = Field(
        description="what the import did, with the `snapshot` that it made; empty before"
    )
    error: str
    due_on: date | None = Field(description="the last day for votes on its comparisons")
    people: list[int] = Field(description="ids of who alone labels it; empty: everybody")
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @staticmethod
    def resolve_people(job: ImportJob) -> list[int]:
        return sorted(user.pk for user in job.people.all())


class ImportSettingsIn(Schema):
    """What is left out is recognised, or goes back to its default."""

    container: str | None = None
    layout: str | None = None
    split: str | None = None
    encoding: str | None = None
    delimiter: str | None = None
    mapping: dict[str, str] | None = Field(None, description="field to column; '' for none")
    constants: dict[str, str] | None = Field(None, description="field to the value of every row")
    pairing: str | None = Field(None, description="of N answers: pairs, or rank or grade together")
    grade_low: int | None = None
    grade_high: int | None = None
    grade_low_label: str | None = None
    grade_high_label: str | None = None
    preference: bool | None = None
    votes: bool | None = None
    rest: str | None = None
    seed: int | None = None
    identical_answers: str | None = None
    half: Literal["", "first", "second"] | None = Field(
        None, description="of a dataset's prompts: one for a reward model, the other for its judge"
    )


class ImportStartIn(Schema):
    on_error: Literal["refuse", "skip"] = "refuse"
    overlap: Literal["refuse", "skip"] = Field(
        "refuse", description="of training rows whose prompts another dataset holds out"
    )
    name: str = Field("", max_length=120, description="of the dataset; else the file's")


class ImportDueIn(Schema):
    due_on: date | None = None


class ImportPeopleIn(Schema):
    people: list[int] = Field(max_length=10_000)


class FindingOut(Schema):
    level: Literal["error", "warning"]
    row: int
    field: str
    message: str
    kind: str = ""


@router.post(
    "/projects/{slug}/imports",
    auth=needs("write"),
    response={201: ImportOut},
    summary="Upload a file of comparisons, or of rows for a dataset",
)
def import_create(
    request: HttpRequest,
    slug: str,
    file: UploadedFile | None = _FILE,
    settings: str = Form("", description="JSON"),
    makes: Literal[
        "comparisons", "prompts", "demonstrations", "preferences", "unpaired", "stepwise"
    ] = Form("comparisons", description="comparisons to vote on, or a dataset"),
) -> Status:
    """Container, layout and columns are recognised; `settings` is the JSON of what to read
    otherwise (as for `POST …/imports/{job}/settings`). Nothing is checked or written yet."""
    project, _ = project_for(request.user, slug, STAFF)
    chosen = _chosen(settings)
    if file is None:
        raise DomainError("Send the file as multipart/form-data.", field="file")
    job = services.import_job_create(
        project=project,
        by=request.user,
        file_name=file.name or "",
        chunks=file.chunks(),
        makes=makes,
    )
    if chosen:
        services.import_job_configure(job=job, **chosen)
    return Status(201, job)


def _chosen(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        return ImportSettingsIn.model_validate_json(text).dict(exclude_none=True)
    except ValueError as error:
        raise DomainError(
            f"This is not JSON of import settings: {error}", field="settings"
        ) from None


@router.get(
    "/projects/{slug}/imports",
    auth=needs("read"),
    response=list[ImportOut],
    summary="Imports, newest first",
)
def imports(request: HttpRequest, slug: str, limit: int = Query(50, ge=1, le=200)) -> Any:
    project, _ = project_for(request.user, slug, STAFF)
    return list(import_jobs.import_jobs_list(project=project)[:limit])


@router.get(
    "/projects/{slug}/imports/{job}",
    auth=needs("read"),
    response=ImportOut,
    summary="One import",
)
def import_get(request: HttpRequest, slug: str, job: str) -> Any:
    return _job(request, slug, job)


@router.get(
    "/projects/{slug}/imports/{job}/findings",
    auth=needs("read"),
    response=list[FindingOut],
    summary="Errors and warnings by row",
)
def import_findings(
    request: HttpRequest,
    slug: str,
    job: str,
    after: int = Query(0, ge=0, le=2**31, description="how many to pass over"),
) -> Any:
    """Errors first; at most 200 an answer."""
    return list(islice(import_jobs.findings(_job(request, slug, job)), after, after + MOST_LISTED))


@router.post(
    "/projects/{slug}/imports/{job}/settings",
    auth=needs("write"),
    response=ImportOut,
    summary="Read the file another way",
)
def import_settings(request: HttpRequest, slug: str, job: str, payload: ImportSettingsIn) -> Any:
    return services.import_job_configure(
        job=_job(request, slug, job), **payload.dict(exclude_none=True)
    )


@router.post(
    "/projects/{slug}/imports/{job}/check",
    auth=needs("write"),
    response={202: ImportOut},
    summary="Check the whole file; nothing is written",
)
def import_check(request: HttpRequest, slug: str, job: str) -> Status:
    found = _job(request, slug, job)
    services.import_job_check(job=found)
    return Status(202, found)


@router.post(
    "/projects/{slug}/imports/{job}/start",
    auth=needs("write"),
    response={202: ImportOut},
    summary="Bring the checked file in",
)
def import_start(request: HttpRequest, slug: str, job: str, payload: ImportStartIn) -> Status:
    """Also continues one that was interrupted; rows already imported change nothing."""
    found = _job(request, slug, job)
    services.import_job_start(job=found, **payload.dict())
    return Status(202, found)


@router.post(
    "/projects/{slug}/imports/{job}/cancel",
    auth=needs("write"),
    response=ImportOut,
    summary="Cancel an import, or discard its file",
)
def import_cancel(request: HttpRequest, slug: str, job: str) -> Any:
    found = _job(request, slug, job)
    services.import_job_cancel(job=found, by=request.user)
    found.refresh_from_db()
    return found


@router.post(
    "/projects/{slug}/imports/{job}/undo",
    auth=needs("write"),
    response=ImportOut,
    summary="Take back what an import brought",
)
def import_undo(request: HttpRequest, slug: str, job: str) -> Any:
    """Its comparisons, prompts, answers and past votes are deleted, as long as nobody has voted on
    them (409, `import_voted`) and nothing else refers to them (409, `import_used`).

    With more than 1,000 comparisons a worker does it: the stage is `undo` until it is done, or
    `import` again with the reason in `error`. Posted again it continues one that was interrupted;
    `cancel` keeps the import."""
    found = _job(request, slug, job)
    services.import_job_undo(job=found, by=request.user)
    found.refresh_from_db()
    return found


@router.post(
    "/projects/{slug}/imports/{job}/due",
    auth=needs("write"),
    response=ImportOut,
    summary="Say until when its comparisons are to be voted on",
)
def import_due(request: HttpRequest, slug: str, job: str, payload: ImportDueIn) -> Any:
    """Annotators see the day under My work while pairs of it are open; null takes it away."""
    found = _job(request, slug, job)
    return services.import_due_set(job=found, due_on=payload.due_on, by=request.user)


@router.post(
    "/projects/{slug}/imports/{job}/people",
    auth=needs("write"),
    response=ImportOut,
    summary="Say who labels its comparisons",
)
def import_people(request: HttpRequest, slug: str, job: str, payload: ImportPeopleIn) -> Any:
    """These people alone get its pairs; an empty list: everybody who labels here."""
    project, _ = project_for(request.user, slug, frozenset({ADMIN}))
    found = import_jobs.import_job_get(project=project, job=job)
    return services.import_people_set(job=found, people=payload.people, by=request.user)


def _job(request: HttpRequest, slug: str, job: str) -> ImportJob:
    project, _ = project_for(request.user, slug, STAFF)
    return import_jobs.import_job_get(project=project, job=job)
