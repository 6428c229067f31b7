"""The words of comparisons that came in thousands at once: written by a worker, in parts.

A part is a transaction; what a worker that ended had begun, another continues. Until then the
list finds these comparisons by everything but their words, topic and models, and says so.
"""

import time

from django.db import connection, transaction

from apps.common.transactions import WORTH_IT, plans_renew
from apps.labeling.models import Facet, SearchDocument, SearchPending

_PART = 2_000  # comparisons: under half a second
_SECONDS = 30.0


def comparisons_index(*, seconds: float = _SECONDS) -> int:
    """Write what is pending, for so many seconds at most; how many comparisons were looked at."""
    until, n = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        done = _part_index()
        if done is None:
            break
        n += done
    if n >= WORTH_IT:
        plans_renew(SearchDocument, Facet)
    return n


@transaction.atomic
def _part_index() -> int | None:
    """One part of what nobody else is writing; None where there is none."""
    found = SearchPending.objects.select_for_update(skip_locked=True).order_by("pk").first()
    if found is None:
        return None
    last = min(found.last, found.first + _PART - 1)
    with connection.cursor() as cursor:
        cursor.execute(
            "select concord_comparisons_index(array("
            "select id from labeling_comparison where id between %s and %s))",
            [found.first, last],
        )
    if last == found.last:
        found.delete()
    else:
        found.first = last + 1
        found.save(update_fields=["first"])
    return last - found.first + 1 if last == found.last else _PART
