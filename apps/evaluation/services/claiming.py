"""One person at a time: whoever opens an answer has it for some minutes.

A claim is a conditional update of one row, so two people never both get it. It is a courtesy and no
lock: it ends by itself, and a verdict is checked again where it is stored.
"""

from datetime import timedelta
from typing import TypeVar

from django.db.models import Model, Q, QuerySet
from django.utils import timezone

from apps.accounts.models import User
from apps.evaluation.models import FlaggedAnswer, SheetItem
from apps.evaluation.selectors.inbox import open_by

CLAIM = timedelta(minutes=5)
M = TypeVar("M", bound=Model)


def unclaimed(rows: QuerySet[M], user: User) -> QuerySet[M]:
    """Those that nobody else has open."""
    return rows.filter(
        Q(claimed_until=None) | Q(claimed_until__lte=timezone.now()) | Q(claimed_by=user)
    )


def claim(rows: QuerySet[M], key: int | str, user: User) -> bool:
    """Take one of `rows`, and let go of the others that this person has. False where somebody else
    has it open."""
    taken = unclaimed(rows.filter(pk=key), user).update(
        claimed_by=user, claimed_until=timezone.now() + CLAIM
    )
    if taken:
        rows.filter(claimed_by=user).exclude(pk=key).update(claimed_by=None, claimed_until=None)
    return bool(taken)


def held_by_other(row: FlaggedAnswer | SheetItem, user: User) -> str:
    """The name of whoever else has it open; "" where nobody has."""
    return "" if row.claimed_by == user else open_by(row)
