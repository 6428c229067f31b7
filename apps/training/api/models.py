"""The API of models: the checkpoints that runs leave, to list, to read and to take out."""

from datetime import datetime
from typing import Literal

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import Field, Query, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.permissions import STAFF, project_for
from apps.common.row_files import resumable_response
from apps.training.api.runs import CheckpointOut, RunOut
from apps.training.formats import python_lines, readme_text, serve_line
from apps.training.models import Checkpoint, Run
from apps.training.selectors import pages
from apps.training.selectors.cards import model_card
from apps.training.services.downloads import member_of, model_archive, model_push, parts_of
from apps.training.services.sharing import model_copy
from workers.artifacts import MERGED

router = Router(tags=["models"])
BASE = "/projects/{slug}/models"


class SavedModelOut(CheckpointOut):
    run: str
    name: str = Field(description="of its run")
    kind: str = Field(description="of its run: sft, dpo, reward, register_policy …")
    created_at: datetime

    @classmethod
    def of(cls, row: Checkpoint) -> "SavedModelOut":
        named = {"run": row.run_id, "name": row.run.name, "kind": row.run.kind}
        own = {n: getattr(row, n) for n in cls.model_fields if n not in named}
        return cls(**named, **own)


class SavedModelPage(Schema):
    count: int
    items: list[SavedModelOut]


class UseOut(Schema):
    part: str = Field(description="merged, or of a LoRA also adapter")
    python: str = Field(description="lines that load the unpacked folder and ask it")
    serve: str = Field(description="`vllm serve` for a policy, else empty")


class SavedModelDetailOut(SavedModelOut):
    card: str = Field(description="its card, Markdown")
    parts: list[UseOut] = Field(description="what can be downloaded; empty when its files are gone")


@router.get(BASE, auth=needs("read"), response=SavedModelPage, summary="Models, newest first")
def model_list(
    request: HttpRequest,
    slug: str,
    search: str = Query("", description="part of the run's name, or how an id begins"),
    kind: Run.Kind | None = None,
    status: Checkpoint.Status | None = None,
    limit: int = Query(50, ge=1, le=500),
    offset: int = Query(0, ge=0, le=10**9),
) -> SavedModelPage:
    """The best, last and final checkpoints of runs, and registered models."""
    project, _ = project_for(request.user, slug, STAFF)
    rows = pages.models_for_list(
        project=project, search=search, kind=kind or "", status=status or ""
    )
    items = [SavedModelOut.of(row) for row in rows[offset : offset + limit]]
    return SavedModelPage(count=rows.count(), items=items)


def model_of(request: HttpRequest, slug: str, checkpoint_id: str) -> Checkpoint:
    project, _ = project_for(request.user, slug, STAFF)
    return pages.checkpoint_get(project=project, checkpoint_id=checkpoint_id)


@router.get(
    BASE + "/{checkpoint_id}", auth=needs("read"), response=SavedModelDetailOut, summary="One model"
)
def model_get(request: HttpRequest, slug: str, checkpoint_id: str) -> SavedModelDetailOut:
    """With its card, and how each part of it is loaded."""
    model = model_of(request, slug, checkpoint_id)
    card, parts = model_card(model), parts_of(model)
    member = member_of(model) if parts else ""
    return SavedModelDetailOut(
        **SavedModelOut.of(model).dict(),
        card=readme_text(card, member=member),
        parts=[
            UseOut(
                part=part,
                python=python_lines(card, part, member=member),
                serve=serve_line(card, part),
            )
            for part in parts
        ],
    )


@router.get(
    BASE + "/{checkpoint_id}/download",
    auth=needs("read"),
    summary="Its files as a tar",
    openapi_extra={
        "responses": {
            200: {
                "description": "The tar; 206 for the rest of one, from the byte that `Range` names",
                "content": {
                    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
                },
            }
        }
    },
)
def model_download(
    request: HttpRequest, slug: str, checkpoint_id: str, part: Literal["merged", "adapter"] = MERGED
) -> HttpResponseBase:
    """Safetensors, tokenizer, template and card, without the trainer's state. A download that broke
    off continues with `Range: bytes=N-`, and `If-Range` with the `ETag` it began with."""
    model = model_of(request, slug, checkpoint_id)
    sent = model_archive(model=model, part=part, user=request.user)
    return resumable_response(
        request, name=sent.name, size=sent.size, etag=sent.etag, chunks=sent.chunks
    )


class PushIn(Schema):
    repo: str = Field(max_length=193, description="on the hub: organisation/name")
    part: Literal["merged", "adapter"] = MERGED
    private: bool = Field(True, description="of a repository that is made now")
    idempotency_key: str = Field("", max_length=80)


@router.post(
    BASE + "/{checkpoint_id}/push",
    auth=needs("train"),
    response={201: RunOut},
    summary="Upload it to a hub",
)
def model_push_run(request: HttpRequest, slug: str, checkpoint_id: str, payload: PushIn) -> Status:
    """A run of the kind `push`, on a worker that holds the token; its `summary` has the address."""
    model = model_of(request, slug, checkpoint_id)
    return Status(201, RunOut.of(model_push(model=model, user=request.user, **payload.dict())))


class CopyIn(Schema):
    project: str = Field(max_length=60, description="slug of the project to copy it into")
    name: str = Field("", max_length=120, description="of the run there; the model's unless given")
    idempotency_key: str = Field("", max_length=80)


@router.post(
    BASE + "/{checkpoint_id}/copy",
    auth=needs("train"),
    response={201: RunOut},
    summary="Copy it into another project",
)
def model_copy_run(request: HttpRequest, slug: str, checkpoint_id: str, payload: CopyIn) -> Status:
    """For whoever administers both. A run of the kind `register_*` in the other project makes a
    model of its own there, with the lineage of this one and without an approval."""
    model = model_of(request, slug, checkpoint_id)
    run = model_copy(
        model=model,
        slug=payload.project,
        name=payload.name,
        user=request.user,
        idempotency_key=payload.idempotency_key,
    )
    return Status(201, RunOut.of(run))
