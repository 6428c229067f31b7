"""Telling those who label what concerns them: new guidelines, new work, a ruling on their answer.

Nobody learns of a pair that they have not answered, or what others answered.
"""

from datetime import timedelta

from django.urls import reverse

from apps.accounts.models import Project, Role, User
from apps.accounts.services import notice_give
from apps.labeling.models import Choice, Comparison, Guideline, LabelingSettings, Slot, Vote

_LABELERS = (Role.ANNOTATOR, Role.REVIEWER)
_WORK_EVERY = timedelta(hours=1)  # imports by program come row by row


def guideline_tell(guideline: Guideline, by: User) -> None:
    text = f"Version {guideline.version} of the guidelines is out" + (
        ": read it before your next pair" if guideline.is_major else ""
    )
    notice_give(
        project=guideline.project,
        roles=_LABELERS,
        kind="guideline",
        text=text,
        path=reverse("labeling:guidelines", args=[guideline.project.slug]),
        by=by,
    )


def work_tell(project: Project, n: int, *, again: bool = False) -> None:
    """So many pairs have come, or are to be judged again."""
    pairs = f"{n:,} {'pair' if n == 1 else 'pairs'}"
    notice_give(
        project=project,
        roles=_LABELERS,
        kind="work",
        text=f"{pairs} to judge again" if again else f"{pairs} came in: there is work",
        path=reverse("labeling:label", args=[project.slug]),
        every=_WORK_EVERY,
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
        said = "as you did" if ruled == given else f"you had said: {given}"
        notice_give(
            project=comparison.project,
            user=vote.annotator,
            kind="ruling",
            text=f"A reviewer ruled on a pair that you answered: {ruled} ({said})",
            path=reverse("labeling:answers", args=[comparison.project.slug]),
            by=by,
        )


def _side(choice: str, left_is: str) -> str:
    """A canonical choice as the annotator's screen called it: the left answer was A there."""
    if choice in (Choice.A, Choice.B):
        return "A is better" if choice == (left_is or Choice.A) else "B is better"
    return str(Choice(choice).label)
