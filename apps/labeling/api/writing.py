"""The API of writing work: ask for texts, write them, review them, read what was written."""

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Path, Query, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.models import Project
from apps.accounts.permissions import ADMIN, EVERYONE, READERS, STAFF, project_for
from apps.labeling.api.schemas import MessageOut, NothingOut, SkipIn
from apps.labeling.models import WritingBatch, WrittenText, WrittenVersion
from apps.labeling.models.votes import AnyAnswer
from apps.labeling.selectors import with_whole_results
from apps.labeling.selectors import writing as reads
from apps.labeling.services import LABELERS, NothingReason
from apps.labeling.services import writing as services
from apps.labeling.services.leasing import writing_lease_next
from apps.labeling.services.results import Lease

router = Router(tags=["writing"])
_LARGEST_KEY = 2**63 - 1
Key = Path(ge=1, le=_LARGEST_KEY)
TEXT = "/projects/{slug}/writing/texts/{text}"


class WritingIn(Schema):
    name: str = Field(max_length=120)
    kind: Literal["demonstrations", "prompts"] = "demonstrations"
    instruction: str = Field("", description="Markdown; for prompts, what is wanted")
    prompts: list[dict[str, Any]] = Field(
        [],
        max_length=services.MOST_PLACES,
        description="rows with prompt (text or messages), and perhaps topic, language, licence, "
        "group, id",
    )
    own_prompts: int = Field(
        0,
        ge=0,
        le=services.MOST_PLACES,
        description="instead of rows: so many prompts of the project that no writing work has "
        "asked about, the oldest first",
    )
    own_topic: str = Field("", max_length=200, description="of this topic only")
    n_prompts: int = Field(0, ge=0, description="how many prompts are to be written")
    per_task: int = Field(1, description="answers to each prompt, by different people")
    review: Literal["staff", "peers", "none"] = "staff"
    least_characters: int = 1
    most_characters: int = services.USUAL_MOST
    topic: str = ""
    language: str = ""
    licence: str = ""


class WritingBatchOut(Schema):
    id: str
    name: str
    kind: str
    instruction: str
    per_task: int
    review: str
    least_characters: int
    most_characters: int
    topic: str
    language: str
    licence: str
    is_open: bool
    created_at: datetime
    texts: dict[str, int] = Field(description="texts by state")


class WritingStateIn(Schema):
    is_open: bool


class WrittenTextOut(Schema):
    text: int
    batch: str
    state: str
    prompt: list[MessageOut] = Field(description="empty where prompts are written")
    version: int = Field(description="0: nothing was submitted yet")
    body: str = Field(description="of that version")
    warnings: list[str]
    submitted_at: datetime | None
    author: int | None = Field(description="for admins alone")


class WrittenPageOut(Schema):
    items: list[WrittenTextOut]
    after: int | None = Field(description="ask for the next page with it; null: no more")


class TextToWriteOut(Schema):
    text: int
    batch: str
    kind: str
    instruction: str
    prompt: list[MessageOut]
    key: str = Field(description="the idempotency key to submit with")
    leased_until: datetime
    least_characters: int
    most_characters: int
    draft: str
    draft_number: int
    returned: str = Field(description="why it was sent back; empty otherwise")


class WritingNextOut(Schema):
    """Either a text to write or the reason why there is none."""

    text: TextToWriteOut | None = None
    nothing: NothingOut | None = None


class WritingDraftIn(Schema):
    body: str
    number: int = Field(0, description="of the draft that you have seen; 0: of none")
    editor: str = Field("", max_length=40, description="a mark of your own, to follow yourself")


class WritingDraftOut(Schema):
    number: int
    saved_at: datetime


class WritingSubmitIn(Schema):
    body: str
    idempotency_key: str = Field(max_length=120)
    confirm_personal: bool = Field(
        False, description="what looks like personal data is nobody's: keep it"
    )
    active_ms: int | None = None
    wall_ms: int | None = None


class WrittenVersionOut(Schema):
    text: int
    version: int
    state: str
    replayed: bool = Field(description="this submit had been stored before")


class WritingReviewIn(Schema):
    version: int = Field(ge=1, le=32_767, description="the one that was read")
    verdict: Literal["accepted", "edited", "rejected"]
    body: str = Field("", description="with edited: the text as it should be")
    reason: str = Field("", description="with rejected: what is to be changed")


@router.get(
    "/projects/{slug}/writing",
    auth=needs("read"),
    response=list[WritingBatchOut],
    summary="Writing work with its progress, newest first",
)
def writing_list(request: HttpRequest, slug: str) -> list[dict[str, Any]]:
    project, _ = project_for(request.user, slug, READERS)
    return [_batch(one) for one in reads.progress_of(reads.batches(project=project))]


@router.post(
    "/projects/{slug}/writing",
    auth=needs("write"),
    response={201: WritingBatchOut},
    summary="Ask people for answers to prompts, or for prompts",
)
def writing_create(request: HttpRequest, slug: str, payload: WritingIn) -> Status:
    """All rows or none; a bad one is named."""
    project, _ = project_for(request.user, slug, STAFF)
    given = payload.dict()
    most, topic = given.pop("own_prompts"), given.pop("own_topic")
    if most:
        given["prompt_ids"] = reads.prompts_free(project=project, topic=topic, most=most)
    batch = services.writing_batch_create(project=project, by=request.user, **given)
    return Status(201, _read(batch))


@router.get(
    "/projects/{slug}/writing/batches/{batch}",
    auth=needs("read"),
    response=WritingBatchOut,
    summary="One batch of writing work with its progress",
)
def writing_get(request: HttpRequest, slug: str, batch: str) -> dict[str, Any]:
    project, _ = project_for(request.user, slug, READERS)
    return _read(reads.batch_get(project=project, batch=batch))


@router.patch(
    "/projects/{slug}/writing/batches/{batch}",
    auth=needs("write"),
    response=WritingBatchOut,
    summary="Hand out no more of its texts, or again",
)
def writing_change(
    request: HttpRequest, slug: str, batch: str, payload: WritingStateIn
) -> dict[str, Any]:
    """What people hold stays theirs."""
    project, _ = project_for(request.user, slug, STAFF)
    found = reads.batch_get(project=project, batch=batch)
    services.writing_batch_open(batch=found, is_open=payload.is_open, by=request.user)
    return _read(reads.batch_get(project=project, batch=batch))


@router.get(
    "/projects/{slug}/writing/texts",
    auth=needs("read"),
    response=WrittenPageOut,
    summary="Texts, each in its newest version",
)
def writing_texts(
    request: HttpRequest,
    slug: str,
    batch: str = Query("", max_length=16),
    state: Literal["", "open", "writing", "waiting", "accepted", "rejected", "withdrawn"] = "",
    after: int = Query(0, ge=0, le=_LARGEST_KEY),
    limit: int = Query(200, ge=1, le=1000),
) -> dict[str, Any]:
    """By their numbers, so that a page never repeats or misses one."""
    project, role = project_for(request.user, slug, READERS)
    of = reads.batch_get(project=project, batch=batch) if batch else None
    found = list(
        reads.texts_list(project=project, batch=of, state=state).filter(pk__gt=after)[:limit]
    )
    versions = reads.current_bodies(found)
    return {
        "items": [_text(one, versions.get(one.pk), named=role == ADMIN) for one in found],
        "after": found[-1].pk if len(found) == limit else None,
    }


@router.post(
    "/projects/{slug}/writing/next",
    auth=needs("label"),
    response=WritingNextOut,
    summary="The text you write on, else the next one",
)
def writing_next(request: HttpRequest, slug: str) -> dict[str, Any]:
    """Asking again returns the same text and prolongs your lease."""
    project, _ = project_for(request.user, slug, LABELERS)
    got = writing_lease_next(project=project, annotator=request.user)
    if isinstance(got, NothingReason):
        return {"nothing": NothingOut(code=got.code, message=got.text, back_at=got.back_at)}
    return {"text": _to_write(got, services.text_of_lease(got), request.user)}


@router.put(
    f"{TEXT}/draft",
    auth=needs("label"),
    response=WritingDraftOut,
    summary="Keep what you have typed so far",
)
def writing_draft(request: HttpRequest, slug: str, payload: WritingDraftIn, text: int = Key) -> Any:
    """409 (`draft_newer`) where somebody, perhaps you elsewhere, saved a draft that you have not
    seen: its number is in the details."""
    _of(request, slug, text, LABELERS)
    return services.draft_save(text=text, author=request.user, **payload.dict())


@router.post(
    f"{TEXT}/submit",
    auth=needs("label"),
    response=WrittenVersionOut,
    summary="Submit a text that you hold",
)
def writing_submit(
    request: HttpRequest, slug: str, payload: WritingSubmitIn, text: int = Key
) -> dict[str, Any]:
    """Sending the same again is harmless: it is stored once. 409 (`personal_data`) where it holds
    what looks like personal data and that is not confirmed."""
    _of(request, slug, text, LABELERS)
    given = payload.dict()
    confirmed = given.pop("confirm_personal")
    done = services.text_submit(
        text=text,
        author=request.user,
        confirmed=confirmed,
        source=AnyAnswer.Source.API,
        **given,
    )
    state = WrittenText.objects.values_list("state", flat=True).get(pk=text)
    return {
        "text": text,
        "version": done.version.number,
        "state": state,
        "replayed": done.replayed,
    }


@router.post(
    f"{TEXT}/skip",
    auth=needs("label"),
    response={204: None},
    summary="Pass on a text that you hold; it goes to others",
)
def writing_skip(request: HttpRequest, slug: str, payload: SkipIn, text: int = Key) -> Status:
    _of(request, slug, text, LABELERS)
    services.text_pass_on(text=text, author=request.user, reason=payload.reason)
    return Status(204, None)


@router.post(
    f"{TEXT}/review",
    auth=needs("label"),
    response=WrittenTextOut,
    summary="Accept another person's text, accept it with an edit, or send it back",
)
def writing_review(
    request: HttpRequest, slug: str, payload: WritingReviewIn, text: int = Key
) -> dict[str, Any]:
    """Never one's own. 409 (`reviewed_already`) where somebody else was first."""
    _project, role = _of(request, slug, text, EVERYONE)
    done = services.text_review(text=text, reviewer=request.user, **payload.dict())
    return _text(done, reads.current_bodies([done]).get(done.pk), named=role == ADMIN)


def _of(request: HttpRequest, slug: str, text: int, roles: frozenset[Any]) -> tuple[Project, str]:
    """The project and the person's role, if the text is of it."""
    project, role = project_for(request.user, slug, roles)
    reads.text_get(project=project, text=text)
    return project, role


def _batch(progress: reads.Progress) -> dict[str, Any]:
    batch = progress.batch
    names = [name for name in WritingBatchOut.model_fields if name != "texts"]
    return {name: getattr(batch, name) for name in names} | {"texts": progress.counts}


def _read(batch: WritingBatch) -> dict[str, Any]:
    return _batch(reads.progress_of([batch])[0])


def _prompt(text: WrittenText) -> list[dict[str, str]]:
    asks = text.batch.kind == WritingBatch.Kind.PROMPTS
    return [] if asks else text.slot.task.prompt.messages


def _text(text: WrittenText, version: WrittenVersion | None, *, named: bool) -> dict[str, Any]:
    return {
        "text": text.pk,
        "batch": text.batch_id,
        "state": reads.state_of(text),
        "prompt": _prompt(text),
        "version": text.n_versions,
        "body": version.body if version else "",
        "warnings": [services.warning_words(one) for one in version.warnings] if version else [],
        "submitted_at": text.submitted_at,
        "author": text.author_id if named else None,
    }


def _to_write(lease: Lease, text: WrittenText, user: Any) -> dict[str, Any]:
    draft = reads.draft_of(text=text, author=user)
    batch = text.batch
    (prompt,) = with_whole_results(lease.project, lease.prompt)
    last = text.versions.order_by("-number").first()
    back = last.reason if last and text.state == WrittenText.State.REJECTED else ""
    return {
        "text": text.pk,
        "batch": batch.pk,
        "kind": batch.kind,
        "instruction": batch.instruction,
        "prompt": [] if batch.kind == WritingBatch.Kind.PROMPTS else prompt,
        "key": f"{lease.key}.{text.n_versions}",
        "leased_until": lease.leased_until,
        "least_characters": batch.least_characters,
        "most_characters": batch.most_characters,
        "draft": draft.body if draft else "",
        "draft_number": draft.number if draft else 0,
        "returned": back,
    }
