"""The pairs that a round generated, and how far people are with them."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import F, Q, QuerySet

from apps.labeling.models import Comparison, Task
from apps.loop import selectors
from apps.loop.models import Round
from apps.training.models import Run

_State = Task.State
_DISPUTED = (_State.CONTESTED, _State.REVIEW)


@dataclass(frozen=True, slots=True)
class Labeled:
    """n: pairs that the round put into the label queue; voted: those that ask nobody any more, as
    they have their votes or nobody is left who may vote; disputed: those of them that wait for a
    reviewer. Where the round generates nothing, the disputed ones are the project's."""

    n: int
    voted: int
    disputed: int

    @property
    def share(self) -> float:
        return self.voted / self.n if self.n else 0.0


def generations_of(rows: Sequence[Round]) -> QuerySet[Run]:
    """The runs of the step `generate` of rounds of one project, all attempts."""
    wanted = Q(round_steps__round__in=rows, round_steps__key="generate")
    for row in rows:
        wanted |= Q(launch_key__startswith=f"round:{row.pk}:generate:")
    return Run.objects.filter(wanted, project=rows[0].project_id).distinct()


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
    return Labeled(
        n=pairs.count(),
        voted=pairs.filter(~Q(state=_State.OPEN) | Q(n_votes__gte=F("overlap"))).count(),
        disputed=among.filter(state__in=_DISPUTED).count(),
    )
