"""Telling those who label what concerns them: new guidelines, new work, a ruling on their answer.

Nobody learns of a pair that they have not answered, or what others answered.
"""

from datetime import timedelta

from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext_noop

from apps.accounts.models import Project, Role, User
from apps.accounts.services import notice_give
from apps.labeling.models import (
    Choice,
    Comparison,
    Guideline,
    LabelingSettings,
    Slot,
    Vote,
    WrittenText,
)

_LABELERS = (Role.ANNOTATOR, Role.REVIEWER)
_WORK = (
    gettext_noop("One task came in: there is work"),
    gettext_noop("%(n)s tasks came in: there is work"),
)
_AGAIN = gettext_noop("One task to judge again"), gettext_noop("%(n)s tasks to judge again")
_WORK_EVERY = timedelta(hours=1)  # imports by program come row by row


def guideline_tell(guideline: Guideline, by: User) -> None:
    notice_give(
        project=guideline.project,
        roles=_LABELERS,
        kind="guideline",
        text=gettext_noop(
            "Version %(version)s of the guidelines is out: read it before your next task"
        )
        if guideline.is_major
        else gettext_noop("Version %(version)s of the guidelines is out"),
        values={"version": guideline.version},
        path=reverse("labeling:guidelines", args=[guideline.project.slug]),
        by=by,
    )


def work_tell(project: Project, n: int, *, again: bool = False) -> None:
    """So many pairs have come, or are to be judged again."""
    notice_give(
        project=project,
        roles=_LABELERS,
        kind="work",
        text=_AGAIN[n != 1] if again else _WORK[n != 1],
        values={"n": n},
        path=reverse("labeling:label", args=[project.slug]),
        every=_WORK_EVERY,
    )


_WRITING = (
    gettext_noop("One text is to be written"),
    gettext_noop("%(n)s texts are to be written"),
)


def writing_tell(project: Project, n: int) -> None:
    """So many places to write at have come."""
    notice_give(
        project=project,
        roles=_LABELERS,
        kind="writing",
        text=_WRITING[n != 1],
        values={"n": n},
        path=reverse("labeling:write", args=[project.slug]),
        every=_WORK_EVERY,
    )


def texts_wait_tell(project: Project, by: User) -> None:
    """Somebody has written: there is something to review."""
    notice_give(
        project=project,
        roles=(Role.REVIEWER, Role.ENGINEER, Role.ADMIN),
        kind="written",
        text=gettext_noop("Written texts wait for a review"),
        path=reverse("labeling:write_review", args=[project.slug]),
        by=by,
        every=_WORK_EVERY,
    )


def text_returned_tell(text: WrittenText, author: User, by: User) -> None:
    notice_give(
        project=text.batch.project,
        user=author,
        kind="returned",
        text=gettext_noop("A text of yours was sent back: read why, and write it again"),
        path=reverse("labeling:write_text", args=[text.batch.project.slug, text.pk]),
        by=by,
    )


def ruling_tell(comparison: Comparison, choice: str, by: User) -> None:
    """Those who answered the pair learn what was ruled, on the sides that they saw, where the
    project shows it."""
    shown = LabelingSettings.objects.filter(project=comparison.project_id, show_rulings=True)
    if not shown.exists():
        return
    votes = Vote.objects.filter(
        comparison=comparison, is_current=True, slot__kind=Slot.Kind.REGULAR
    ).exclude(source=Vote.Source.IMPORT)
    for vote in votes.select_related("annotator"):
        ruled, given = _side(choice, vote.left_is), _side(vote.choice, vote.left_is)
        notice_give(
            project=comparison.project,
            user=vote.annotator,
            kind="ruling",
            text=gettext_noop(
                "A reviewer ruled on a pair that you answered: %(ruled)s (as you did)"
            )
            if ruled == given
            else gettext_noop(
                "A reviewer ruled on a pair that you answered: %(ruled)s (you had said: %(given)s)"
            ),
            values={"ruled": [ruled], "given": [given]},
            path=reverse("labeling:answers", args=[comparison.project.slug]),
            by=by,
        )


def _side(choice: str, left_is: str) -> str:
    """The same as a message, which each reader's language fills."""
    with translation.override(None):
        return str(Choice.as_seen(choice, left_is).label)
