"""Reads of comments: a comparison's thread, and questions with their answers."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Prefetch, QuerySet

from apps.accounts.models import Project, Role, User
from apps.common.errors import Missing
from apps.labeling.models import Comment, Comparison


@dataclass(frozen=True, slots=True)
class ShownComment:
    """`who`: annotators have no name for reviewers. mine: may be changed; mine or an admin's to
    delete. replies: of a question."""

    comment: Comment
    who: str
    mine: bool
    deletable: bool
    replies: list["ShownComment"]


def comment_get(*, project: Project, comment: int) -> Comment:
    rows = Comment.objects.select_related("author", "project", "comparison", "answers")
    found = rows.filter(project=project, pk=comment).first()
    if found is None:
        raise Missing("There is no such comment in this project.", field="comment")
    return found


def thread_of(*, comparison: Comparison, reader: User, role: str) -> list[ShownComment]:
    """Oldest first, each question with its answers."""
    rows = _with_replies(Comment.objects.filter(comparison=comparison)).order_by("pk")
    return shown(rows, reader, role)


def questions_open(*, project: Project) -> QuerySet[Comment]:
    """Questions that nobody has answered, oldest first."""
    rows = Comment.objects.filter(
        project=project, kind=Comment.Kind.QUESTION, answered_at__isnull=True
    )
    return _with_replies(rows.select_related("comparison__prompt")).order_by("pk")


def questions_of(*, project: Project, annotator: User) -> QuerySet[Comment]:
    """What a person asked, newest first, with the answers."""
    rows = Comment.objects.filter(project=project, kind=Comment.Kind.QUESTION, author=annotator)
    return _with_replies(rows.select_related("comparison__prompt")).order_by("-pk")


def _with_replies(rows: QuerySet[Comment]) -> QuerySet[Comment]:
    replies = Comment.objects.select_related("author").order_by("pk")
    return (
        rows.exclude(kind=Comment.Kind.ANSWER)
        .select_related("author")
        .prefetch_related(Prefetch("replies", queryset=replies))
    )


def shown(rows: Iterable[Comment], reader: User, role: str) -> list[ShownComment]:
    return [
        ShownComment(
            comment=row,
            who=_who(row, role),
            mine=row.author_id == reader.pk,
            deletable=row.author_id == reader.pk or role == Role.ADMIN,
            replies=[] if row.answers_id else shown(row.replies.all(), reader, role),
        )
        for row in rows
    ]


def _who(row: Comment, role: str) -> str:
    if row.kind == Comment.Kind.QUESTION and role != Role.ADMIN:
        return "An annotator"
    return str(row.author) if row.author else "Somebody who has left"
