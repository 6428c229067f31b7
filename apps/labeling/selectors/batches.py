"""What became of comparisons that came in together."""

from dataclasses import dataclass

from django.db.models import Count, Q, Sum
from django.db.models.functions import Coalesce

from apps.labeling.models import Comparison, PairSelection


@dataclass(frozen=True, slots=True)
class SentPairs:
    """Of a batch in the label queue: how many pairs, how many of them somebody voted on, and the
    votes cast and asked for."""

    n: int = 0
    voted: int = 0
    votes: int = 0
    asked: int = 0


def batch_sent(*, project_id: str, batch: str) -> SentPairs:
    rows = Comparison.objects.filter(project=project_id, batch=batch)
    return SentPairs(
        **rows.aggregate(
            n=Count("pk"),
            voted=Count("pk", filter=Q(n_votes__gt=0)),
            votes=Coalesce(Sum("n_votes"), 0),
            asked=Coalesce(Sum("overlap"), 0),
        )
    )


def selection_of(*, project_id: str, batch: str) -> PairSelection | None:
    """How the pairs of a batch were chosen; None where all of it went to people, or none."""
    return PairSelection.objects.filter(project=project_id, batch=batch).first()
