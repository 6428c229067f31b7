"""What the world says of models in service, as series."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.utils import timezone

from apps.accounts.models import Project
from apps.monitoring.models import Outcome, ProbeResult, Watch
from apps.monitoring.selectors.checks import REWARD
from measures.outcomes import FIRST, NEWEST, Measured, share_deviation

WINDOW = timedelta(days=90)
_SHARES = {"%": 100.0, "percent": 100.0, "share": 1.0}


@dataclass(frozen=True, slots=True)
class Scope:
    """Whom measurements are about: a watch, else a checkpoint, else the project as a whole."""

    watch: str | None = None
    checkpoint: str | None = None

    @classmethod
    def of(cls, outcome: Outcome) -> "Scope":
        if outcome.watch_id:
            return cls(watch=outcome.watch_id)
        return cls(checkpoint=outcome.checkpoint_id)

    @property
    def key(self) -> str:
        return self.watch or self.checkpoint or "project"


@dataclass(frozen=True, slots=True)
class Series:
    """`points` in order of time; of a long series the middle may be left out."""

    name: str
    unit: str
    higher_is_better: bool
    points: tuple[tuple[datetime, Measured], ...]

    @property
    def measured(self) -> list[Measured]:
        return [point for _, point in self.points]

    def since(self, at: datetime | None) -> "Series":
        if at is None:
            return self
        return replace(self, points=tuple(point for point in self.points if point[0] > at))


def outcomes_of(project: Project, scope: Scope | None = None) -> QuerySet[Outcome]:
    """Newest first; of everything where no scope is given."""
    rows = Outcome.objects.filter(project=project).select_related("watch", "checkpoint__run")
    if scope is None:
        pass
    elif scope.watch:
        rows = rows.filter(watch=scope.watch)
    else:
        rows = rows.filter(watch__isnull=True, checkpoint=scope.checkpoint)
    return rows.order_by("-at", "-pk")


def scopes_of(project: Project) -> list[Scope]:
    """Everything measured in the window, watches first."""
    rows = Outcome.objects.filter(project=project, at__gte=timezone.now() - WINDOW)
    found = {
        Scope(watch=watch) if watch else Scope(checkpoint=checkpoint)
        for watch, checkpoint in rows.values_list("watch", "checkpoint").distinct().order_by()
    }
    return sorted(found, key=lambda one: (one.watch is None, one.checkpoint is None, one.key))


def outcome_series(
    *, project: Project, scope: Scope, since: datetime | None = None, most: int | None = None
) -> list[Series]:
    """Every name measured in the window or since; `most` newest points of each, or all."""
    start = max(timezone.now() - WINDOW, since) if since else timezone.now() - WINDOW
    found: dict[str, list[Outcome]] = {}
    for row in outcomes_of(project, scope).filter(at__gte=start).iterator():
        rows = found.setdefault(row.name, [])
        if most is None or len(rows) < most:
            rows.append(row)
    return [_series(name, rows[::-1]) for name, rows in sorted(found.items())]


def reward_series(
    watch: Watch, *, since: datetime | None = None, most: int = NEWEST
) -> Series | None:
    """Mean reward of a policy's probes, by the reward model that scores them today: the first and
    the newest (`most`) of the window; a comparison reads no more. None where there is none."""
    if watch.kind != Watch.Kind.POLICY:
        return None
    start = max(timezone.now() - WINDOW, since) if since else timezone.now() - WINDOW
    rows = ProbeResult.objects.filter(
        watch=watch, at__gte=start, details__reward=watch.reward_id
    ).exclude(figures={})
    newest = list(rows.order_by("-at", "-pk")[:most])[::-1]
    first = list(rows.order_by("at", "pk")[:FIRST])
    points = {row.pk: reward_point(row) for row in [*first, *newest]}
    known = sorted(point for point in points.values() if point is not None)
    return Series("reward", "", True, tuple(known)) if known else None


def reward_point(result: ProbeResult) -> tuple[datetime, Measured] | None:
    figure = result.figures.get(REWARD)
    if figure is None:
        return None
    return result.at, Measured(figure["mean"], int(figure["n"]), figure["deviation"])


def _series(name: str, rows: Sequence[Outcome]) -> Series:
    last = rows[-1]
    return Series(
        name,
        last.unit,
        last.higher_is_better,
        tuple((row.at, measured(row)) for row in rows),
    )


def measured(row: Outcome) -> Measured:
    """Of a share of n cases the deviation is known."""
    deviation = row.deviation
    whole = _SHARES.get(row.unit.strip().lower())
    if deviation is None and row.n and whole:
        share = share_deviation(row.value / whole)
        deviation = None if share is None else share * whole
    return Measured(row.value, row.n, deviation)
