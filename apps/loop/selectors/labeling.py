"""The pairs that a round generated, and how far people are with them."""

from dataclasses import dataclass

from django.db.models import F, Q, QuerySet

from apps.labeling.models import Comparison, Decision
from apps.loop import selectors
from apps.loop.models import Round
from apps.training.models import Run

_Outcome = Decision.Outcome
_DISPUTED = (_Outcome.CONTESTED, _Outcome.NEEDS_REVIEW)


@dataclass(frozen=True, slots=True)
class Labeled:
    """n: pairs that the round put into the label queue; voted: those with all votes they ask for,
    or decided. disputed: those of them that wait for a reviewer; where the round generates nothing,
    those of the project."""

    n: int
    voted: int
    disputed: int

    @property
    def share(self) -> float:
        return self.voted / self.n if self.n else 0.0


def generations_of(row: Round) -> QuerySet[Run]:
    """The runs of the round's step `generate`, all attempts."""
    return Run.objects.filter(
        project=row.project_id, launch_key__startswith=f"round:{row.pk}:generate:"
    )


def generation_of(row: Round) -> Run | None:
    """The run whose pairs the round labels: that of its last attempt."""
    step = row.steps.filter(key="generate").select_related("run").first()
    return step.run if step is not None else None


def pairs_of(row: Round) -> QuerySet[Comparison]:
    """What the round's generation put into the label queue."""
    run = generation_of(row)
    batch = selectors.batch_of(run) if run is not None else ""
    rows = Comparison.objects.filter(project=row.project_id, batch=batch)
    return rows if batch else rows.none()


def labeled(row: Round) -> Labeled:
    pairs, every = pairs_of(row), Comparison.objects.filter(project=row.project_id)
    among = pairs if generation_of(row) is not None else every
    decided = Q(decision__isnull=False) & ~Q(decision__outcome=_Outcome.NEEDS_VOTES)
    return Labeled(
        n=pairs.count(),
        voted=pairs.filter(Q(n_votes__gte=F("overlap")) | decided).count(),
        disputed=among.filter(decision__outcome__in=_DISPUTED).count(),
    )
