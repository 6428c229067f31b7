"""The API of comments on comparisons and of questions from the pair."""

from datetime import datetime

from django.http import HttpRequest
from ninja import Field, Path, Query, Router, Schema, Status

from apps.accounts.api_auth import needs
from apps.accounts.permissions import JUDGES, project_for
from apps.labeling import selectors
from apps.labeling.selectors import comments as reads
from apps.labeling.services import LABELERS
from apps.labeling.services import comments as services
from apps.labeling.services.comments import LONGEST_COMMENT

router = Router(tags=["labeling"])
LARGEST_KEY = 2**63 - 1
Key = Path(ge=1, le=LARGEST_KEY)


class CommentIn(Schema):
    text: str = Field(min_length=1, max_length=LONGEST_COMMENT, description="plain text")
    answers: int | None = Field(None, ge=1, le=LARGEST_KEY, description="a question's id")


class CommentChangeIn(Schema):
    text: str = Field(min_length=1, max_length=LONGEST_COMMENT)


class QuestionIn(Schema):
    slot: int = Field(ge=1, le=LARGEST_KEY, description="that you hold or have answered")
    text: str = Field(min_length=1, max_length=LONGEST_COMMENT)


class CommentOut(Schema):
    id: int
    comparison: int
    kind: str = Field(description="comment, question or answer")
    who: str = Field(description="a name; reviewers are given none for annotators")
    text: str
    created_at: datetime
    edited_at: datetime | None
    answered_at: datetime | None
    replies: list["CommentOut"]


def _comment(shown: reads.ShownComment) -> CommentOut:
    row = shown.comment
    return CommentOut(
        id=row.pk,
        comparison=row.comparison_id,
        kind=row.kind,
        who=shown.who,
        text=row.text,
        created_at=row.created_at,
        edited_at=row.edited_at,
        answered_at=row.answered_at,
        replies=[_comment(reply) for reply in shown.replies],
    )


@router.get(
    "/projects/{slug}/comparisons/{comparison}/comments",
    auth=needs("read"),
    response=list[CommentOut],
    summary="A comparison's comments",
)
def comment_list(request: HttpRequest, slug: str, comparison: int = Key) -> list[CommentOut]:
    project, role = project_for(request.user, slug, JUDGES)
    found = selectors.comparison_get(project=project, comparison=comparison)
    thread = reads.thread_of(comparison=found, reader=request.user, role=role)
    return [_comment(shown) for shown in thread]


@router.post(
    "/projects/{slug}/comparisons/{comparison}/comments",
    auth=needs("write"),
    response={201: CommentOut},
    summary="Comment on a comparison, or answer a question about it",
)
def comment_create(
    request: HttpRequest, slug: str, payload: CommentIn, comparison: int = Key
) -> Status:
    """`@username` tells a reviewer or an admin of the project."""
    project, role = project_for(request.user, slug, JUDGES)
    found = selectors.comparison_get(project=project, comparison=comparison)
    made = services.comment_add(comparison=found, author=request.user, **payload.dict())
    return Status(201, _comment(reads.shown([made], request.user, role)[0]))


@router.patch(
    "/projects/{slug}/comments/{comment}",
    auth=needs("write"),
    response=CommentOut,
    summary="Change your comment",
)
def comment_change(
    request: HttpRequest, slug: str, payload: CommentChangeIn, comment: int = Key
) -> CommentOut:
    project, role = project_for(request.user, slug, JUDGES)
    found = reads.comment_get(project=project, comment=comment)
    changed = services.comment_edit(comment=found, by=request.user, text=payload.text)
    return _comment(reads.shown([changed], request.user, role)[0])


@router.delete(
    "/projects/{slug}/comments/{comment}",
    auth=needs("write"),
    response={204: None},
    summary="Delete a comment",
)
def comment_delete(request: HttpRequest, slug: str, comment: int = Key) -> Status:
    """Your own; an admin's of everybody. A question goes with its answers."""
    project, _ = project_for(request.user, slug, JUDGES)
    found = reads.comment_get(project=project, comment=comment)
    services.comment_delete(comment=found, by=request.user)
    return Status(204, None)


@router.get(
    "/projects/{slug}/questions",
    auth=needs("read"),
    response=list[CommentOut],
    summary="Open questions; of annotators, their own with the answers",
)
def question_list(
    request: HttpRequest, slug: str, limit: int = Query(100, ge=1, le=1000)
) -> list[CommentOut]:
    project, role = project_for(request.user, slug, LABELERS)
    rows = (
        reads.questions_open(project=project)
        if role in JUDGES
        else reads.questions_of(project=project, annotator=request.user)
    )
    return [_comment(shown) for shown in reads.shown(rows[:limit], request.user, role)]


@router.post(
    "/projects/{slug}/questions",
    auth=needs("label"),
    response={201: CommentOut},
    summary="Ask the reviewers about a pair",
)
def question_create(request: HttpRequest, slug: str, payload: QuestionIn) -> Status:
    """The pair stays with you; the answer comes as a notification."""
    project, role = project_for(request.user, slug, LABELERS)
    made = services.question_ask(project=project, annotator=request.user, **payload.dict())
    return Status(201, _comment(reads.shown([made], request.user, role)[0]))
