"""Comments on comparisons, mentions in them, and questions of those who label."""

import re

from django.db import transaction
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop

from apps.accounts.models import Membership, Project, Role, User
from apps.accounts.services import audit_record, notice_give
from apps.common.errors import Conflict, DomainError, Missing, Refused
from apps.common.numbers import count
from apps.labeling.models import Comment, Comparison, Slot

LONGEST_COMMENT = 4_000
READERS = (Role.REVIEWER, Role.ADMIN)  # of a comparison's thread
_MENTION = re.compile(r"(?<![\w@.+-])@([\w@.+-]+)")
_ENDS = ".+-@"  # of a sentence, more often than of a name
_MOST_MENTIONS = 20
_MOST_SHOWN = 450  # characters of an answer in the bell


@transaction.atomic
def comment_add(
    *, comparison: Comparison, author: User, text: str, answers: int | None = None
) -> Comment:
    """Say something about a comparison, or answer a question that was asked about it.

    People of the project who may read it and are mentioned (`@username`) hear of it. Whoever asked
    reads the answer and nothing else of the thread.
    """
    project = comparison.project
    _role_check(project, author)
    question = _question(comparison, answers) if answers is not None else None
    made = Comment.objects.create(
        project=project,
        comparison=comparison,
        author=author,
        kind=Comment.Kind.ANSWER if question else Comment.Kind.COMMENT,
        answers=question,
        text=_checked(text),
    )
    if question is not None:
        Comment.objects.filter(pk=question.pk).update(answered_at=timezone.now())
        if question.author is not None:
            notice_give(
                project=project,
                user=question.author,
                kind="answer",
                text=gettext_noop("Answer to your question about a pair: %(answer)s"),
                values={"answer": made.text[:_MOST_SHOWN]},
                path=reverse("labeling:questions", args=[project.slug]) + f"#q-{question.pk}",
                by=author,
            )
    _mentions_tell(made, set())
    return made


@transaction.atomic
def question_ask(*, project: Project, annotator: User, slot: int, text: str) -> Comment:
    """Ask the reviewers about a pair that one holds or has answered."""
    found = (
        Slot.objects.filter(
            pk=slot,
            project=project,
            annotator=annotator,
            state__in=(Slot.State.LEASED, Slot.State.DONE),
        )
        .select_related("task__project")
        .first()
    )
    if found is None:
        raise Missing(gettext("You neither hold this pair nor have answered it."), field="slot")
    pair = Comparison.objects.filter(pk=found.task_id).select_related("project").first()
    if pair is None:
        raise Missing(gettext("There is no such pair."), field="slot")
    made = Comment.objects.create(
        project=project,
        comparison=pair,
        author=annotator,
        kind=Comment.Kind.QUESTION,
        text=_checked(text),
    )
    notice_give(
        project=project,
        roles=READERS,
        kind="question",
        text=gettext_noop("A question about %(comparison)s"),
        values={"comparison": _name(pair)},
        path=_thread(pair),
        by=annotator,
    )
    return made


@transaction.atomic
def comment_edit(*, comment: Comment, by: User, text: str) -> Comment:
    """One's own; who is mentioned only now hears of it."""
    _role_check(comment.project, by)
    if comment.author_id != by.pk:
        raise Refused("Only who wrote a comment changes it.")
    before = _mentioned(comment)
    comment.text, comment.edited_at = _checked(text), timezone.now()
    comment.save(update_fields=["text", "edited_at", "updated_at"])
    _mentions_tell(comment, before)
    return comment


@transaction.atomic
def comment_delete(*, comment: Comment, by: User) -> None:
    """One's own; an admin's of everybody. A question goes with its answers."""
    role = _role_check(comment.project, by)
    if comment.author_id != by.pk and role != Role.ADMIN:
        raise Refused("Only who wrote a comment deletes it, or an admin.")
    if comment.answers is not None and comment.answers.replies.count() == 1:
        Comment.objects.filter(pk=comment.answers.pk).update(answered_at=None)
    audit_record(
        action="comment.deleted",
        actor=by,
        project=comment.project,
        subject=_name(comment.comparison),
        details={"author": comment.author or "", "kind": comment.kind},
    )
    comment.delete()


def _role_check(project: Project, user: User) -> str:
    role = Membership.objects.filter(project=project, user=user).values_list("role", flat=True)
    found = role.first()
    if found not in READERS:
        raise Refused("Comments are for reviewers and admins.")
    return found


def _question(comparison: Comparison, pk: int) -> Comment:
    found = (
        Comment.objects.select_for_update(of=("self",))
        .select_related("author")
        .filter(pk=pk, comparison=comparison)
        .first()
    )
    if found is None:
        raise Missing("There is no such question about this comparison.", field="answers")
    if found.kind != Comment.Kind.QUESTION:
        raise Conflict("Only questions are answered.", code="no_question", field="answers")
    return found


def _checked(text: str) -> str:
    found = text.replace("\r\n", "\n").strip()
    if not found:
        raise DomainError(gettext("Write something."), field="text")
    if len(found) > LONGEST_COMMENT:
        raise DomainError(
            gettext("At most %(n)s characters.") % {"n": count(LONGEST_COMMENT)}, field="text"
        )
    if "\x00" in found:
        raise DomainError(gettext("A NUL character cannot be stored."), field="text")
    return found


def _mentioned(comment: Comment) -> set[str]:
    """Names after an @, in small letters."""
    found = {name.rstrip(_ENDS).lower() for name in _MENTION.findall(comment.text)}
    return found - {""}


def _mentions_tell(comment: Comment, before: set[str]) -> None:
    names = _mentioned(comment) - before
    if not names:
        return
    people = User.objects.filter(
        memberships__project=comment.project_id,
        memberships__role__in=READERS,
        is_active=True,
        username__iregex=f"^({'|'.join(map(re.escape, sorted(names)[:_MOST_MENTIONS]))})$",
    ).exclude(pk=comment.author_id or 0)
    for person in people:
        notice_give(
            project=comment.project,
            user=person,
            kind="mention",
            text=gettext_noop("%(person)s mentioned you in a comment on %(comparison)s"),
            values={"person": str(comment.author), "comparison": _name(comment.comparison)},
            path=_thread(comment.comparison),
            by=comment.author,
            mail=True,
        )


def _name(comparison: Comparison) -> str:
    return comparison.external_id or str(comparison.pk)


def _thread(comparison: Comparison) -> str:
    slug = comparison.project.slug
    return reverse("labeling:comparison", args=[slug, comparison.pk]) + "#comments"
