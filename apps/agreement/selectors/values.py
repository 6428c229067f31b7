"""How one person's gradings and rankings hold up: against gold, their own repeats, audits."""

from collections.abc import Iterable
from typing import Any

from django.db.models import F

from apps.accounts.models import Project, User
from apps.labeling.models import RATED, Answer, Slot
from apps.labeling.services.kinds import agree
from measures.estimate import Interval
from measures.intervals import wilson

Row = tuple[str, list[int], list[int], int]  # kind, one judgement, the other, steps of the scale


def values_controls(*, project: Project, user: User) -> dict[str, Interval]:
    """{gold, repeats, audits}: the share of this person's gradings and rankings that is the same
    judgement (`kinds.agree`) as the known answer, as their own of before, as a reviewer's."""
    answers = Answer.objects.filter(project=project, is_current=True, kind__in=RATED)
    mine = answers.filter(annotator=user)
    asked = mine.filter(slot__kind__in=(Slot.Kind.REGULAR, Slot.Kind.GOLD))
    return {
        "gold": _share(asked.exclude(task__gold_values=[]), F("task__gold_values")),
        "repeats": _share(mine.filter(slot__kind=Slot.Kind.REPEAT), F("slot__measures__values")),
        "audits": _share(
            answers.filter(slot__kind=Slot.Kind.AUDIT, slot__measures__annotator=user),
            F("slot__measures__values"),
        ),
    }


def _share(answers: Any, other: F) -> Interval:
    steps = F("task__high") - F("task__low")
    rows: Iterable[Row] = answers.values_list("kind", "values", other, steps)
    same = [agree(kind, one, two, n) for kind, one, two, n in rows]
    return wilson(sum(same), len(same))
