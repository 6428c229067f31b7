"""What labeling does when a person is erased: their votes, their texts, and what they wrote about
pairs."""

from typing import Any

from django.db import connection

from apps.accounts.models import Project, User
from apps.common.errors import Conflict
from apps.common.registry import ErasureWish
from apps.labeling.models import Annotator, Answer, Comment, SavedView, Skip, Slot
from apps.labeling.selectors.person_votes import COUNTED
from apps.labeling.services import statements as sql
from apps.labeling.services.discarding import Discarded, votes_discard
from apps.labeling.services.writing import writing_erase

REASON = "the person was erased"
REMOVED = "(removed)"


def labeling_erase(user: User, by: User | None, wish: ErasureWish) -> dict[str, int]:
    """Votes by choice, remarks by choice; always what they chose not to see, and saved views."""
    done = {"discarded": _votes_discard(user, by) if wish.discards else 0, "remarks": 0}
    if wish.removes:
        done["remarks"] = Comment.objects.filter(author=user).update(text=REMOVED)
        written = Answer.objects.filter(annotator=user).exclude(rationale="")
        done["remarks"] += written.update(rationale="")
        Skip.objects.filter(annotator=user).update(reason="")
    done |= writing_erase(user, discards=wish.discards, removes=wish.removes)
    SavedView.objects.filter(owner=user).delete()
    Annotator.objects.filter(user=user).update(
        avoids_topics=[], avoids_sensitive=False, topics=[], languages=[]
    )
    return done


def _votes_discard(user: User, by: User | None) -> int:
    """Each project's, so that its decisions are made again without them."""
    n = 0
    for project in projects_answered(user):
        try:
            done = votes_discard(project=project, annotator=user, by=by, reason=REASON, most=None)
            n += done.n_votes
        except Conflict as error:
            if error.code != "nothing_to_discard":
                raise
    rated = Slot.objects.filter(answers__annotator=user, answers__is_current=True, kind__in=COUNTED)
    tasks = sorted(set(rated.values_list("task_id", flat=True)))
    n += rated.update(kind=Slot.Kind.DISCARD)
    with connection.cursor() as cursor:
        for task in tasks:
            cursor.execute(sql.ANSWERS, {"task": task})
            cursor.execute(sql.COUNT_ANSWERS, {"task": task, "n": cursor.fetchone()[0]})
    return n


def projects_answered(user: User) -> list[Project]:
    answered = Answer.objects.filter(annotator=user).values("project")
    return list(Project.objects.filter(pk__in=answered))


def discard_looked_at(user: User) -> dict[str, Discarded]:
    """{project: what discarding all of the person's votes would do there}."""
    found: dict[str, Any] = {}
    for project in projects_answered(user):
        try:
            found[project.pk] = votes_discard(
                project=project, annotator=user, by=None, most=None, dry_run=True
            )
        except Conflict as error:
            if error.code != "nothing_to_discard":
                raise
    return found
