"""Reading rating tasks and ratings: one's own, and for readers what they amount to.

Scores put grades and ranks on one footing: a grade as its place on the task's scale from 0 to 1, a
rank as the share of the other responses it beats (`measures.ratings.rank_scores`). Spread is shown
in points of the task's scale for grades, and in shares beaten for rankings.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from apps.accounts.models import Project, User
from apps.common.errors import Missing
from apps.labeling.models import RATED, Answer, Slot, Task, TaskItem
from apps.labeling.selectors import CLOSED
from measures.ratings import (
    Normalised,
    Spread,
    normalise_by_rater,
    pairs_of_grades,
    pairs_of_ranking,
    rank_scores,
    spread_of,
)
from measures.voting import Choice


def has_rating_tasks(project: Project) -> bool:
    """Whether the project has any at all: pages for them are shown only then."""
    return _tasks(project).exists()


def _tasks(project: Project) -> QuerySet[Task]:
    return Task.objects.filter(project=project, kind__in=RATED)


def _counted() -> QuerySet[Answer]:
    """Answers that count: not hidden repeats and audits, which measure people."""
    return Answer.objects.filter(
        is_current=True, slot__kind__in=(Slot.Kind.REGULAR, Slot.Kind.GOLD)
    )


def ratings_of(*, project: Project, annotator: User, search: str = "") -> QuerySet[Answer]:
    """A person's own current ratings, newest first."""
    mine = Answer.objects.filter(project=project, annotator=annotator, is_current=True)
    found = mine.filter(kind__in=RATED).exclude(slot__kind__in=CLOSED)
    if search:
        found = found.filter(task__prompt__brief__icontains=search)
    return found.select_related("task__prompt").order_by("-cast_at", "-pk")


def rating_get(*, project: Project, annotator: User, rating: int) -> Answer:
    """A current rating of one's own; `Missing` for all others."""
    found = ratings_of(project=project, annotator=annotator).filter(pk=rating).first()
    if found is None:
        raise Missing("There is no such rating of yours.", field="rating")
    return found


def task_get(*, project: Project, task: int) -> Task:
    tasks = _tasks(project).select_related("prompt")
    # addresses from before tasks of all kinds had one number
    found = tasks.filter(pk=task).first() or tasks.filter(batch=f"rating task {task}").first()
    if found is None:
        raise Missing("There is no such rating task.", field="task")
    return found


def responses_of(task: Task) -> list[TaskItem]:
    """The items in their stored order, with their responses."""
    return list(task.items.select_related("response").order_by("position"))


def tasks_list(
    *, project: Project, kind: str = "", state: str = "", search: str = ""
) -> QuerySet[Task]:
    """Tasks of a project, newest first."""
    found = _tasks(project).select_related("prompt").order_by("-pk")
    if kind:
        found = found.filter(kind=kind)
    if state:
        found = found.filter(state=state)
    if search:
        found = found.filter(Q(external_id__icontains=search) | Q(prompt__brief__icontains=search))
    return found


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One task and how its ratings lie: grades in points of its scale, ranks in shares beaten."""

    task: Task
    spread: Spread


def results_of(tasks: Iterable[Task]) -> list[TaskResult]:
    """The spread of each task, in their order; one query for all ratings."""
    tasks = list(tasks)
    rows: dict[int, list[list[float]]] = defaultdict(list)
    kinds = {task.pk: task.kind for task in tasks}
    current = _counted().filter(task__in=kinds).order_by("pk")
    for task, values in current.values_list("task_id", "values"):
        rows[task].append(scores_of(kinds[task], values))
    return [TaskResult(task, _spread(rows[task.pk])) for task in tasks]


def pair_counts(tasks: Iterable[Task]) -> dict[int, list[dict[str, int]]]:
    """{task: for each pair of places a < b, how many ratings put a first, b first, or both}."""
    kinds = {task.pk: task.kind for task in tasks}
    counts: dict[int, Counter[tuple[int, int, Choice]]] = {task: Counter() for task in kinds}
    current = _counted().filter(task__in=kinds)
    for task, values in current.values_list("task_id", "values"):
        ranking = kinds[task] == Task.Kind.RANK
        pairs = pairs_of_ranking(values) if ranking else pairs_of_grades(values)
        counts[task].update((pair.a, pair.b, pair.choice) for pair in pairs)
    return {
        task: [
            {
                "a": a + 1,
                "b": b + 1,
                "n_a": found[a, b, Choice.A],
                "n_b": found[a, b, Choice.B],
                "n_tie": found[a, b, Choice.TIE],
            }
            for a, b in sorted({(a, b) for a, b, _ in found})
        ]
        for task, found in counts.items()
    }


def results_sorted(results: list[TaskResult], by: str) -> list[TaskResult]:
    """Largest first; tasks that have no such number yet come last, in the order they had."""
    value = {
        "spread": lambda r: r.spread.between_responses,
        "disagreement": lambda r: r.spread.between_raters,
        "mean": lambda r: r.spread.mean,
        "ratings": lambda r: r.spread.n_ratings,
    }.get(by)
    if value is None:
        return results
    return sorted(results, key=lambda r: (value(r) is None, -(value(r) or 0.0)))


def scores_of(kind: str, values: Sequence[int]) -> list[float]:
    """One rating as numbers of which more is better."""
    return rank_scores(values) if kind == Task.Kind.RANK else [float(v) for v in values]


def _spread(rows: list[list[float]]) -> Spread:
    return spread_of(rows) if rows else Spread(0, 0, None, (), None, None)


@dataclass(frozen=True, slots=True)
class RaterScales:
    """How the raters of a project use its scales, and each graded response normalised.

    z: {(task, place): mean z over the raters who have one}; n_left_out: raters without a deviation.
    by_rater: mean and deviation of each rater, as shares of the scale.
    """

    by_rater: Normalised
    z: dict[tuple[int, int], float]
    n_raters: int

    @property
    def n_left_out(self) -> int:
        return len(self.by_rater.constant)


def rater_scales(*, project: Project) -> RaterScales:
    """Normalised grades over all graded tasks of a project; each grade first as a share of its
    task's scale, so that tasks with different scales can be put together."""
    grades: list[float] = []
    raters: list[int] = []
    places: list[tuple[int, int]] = []
    current = _counted().filter(project=project, kind=Task.Kind.GRADE).order_by("pk")
    for task, low, high, who, values in current.values_list(
        "task_id", "task__low", "task__high", "annotator_id", "values"
    ):
        if low is None or high is None:  # a pair has no scale
            continue
        for place, value in enumerate(values, start=1):
            grades.append((value - low) / (high - low))
            raters.append(who)
            places.append((task, place))
    normalised = normalise_by_rater(grades, raters)
    sums: dict[tuple[int, int], list[float]] = defaultdict(list)
    for key, z in zip(places, normalised.z, strict=True):
        if z == z:  # a rater without a deviation has none
            sums[key].append(float(z))
    means = {key: sum(found) / len(found) for key, found in sums.items()}
    return RaterScales(normalised, means, n_raters=len(normalised.means))


def ratings_shown(*, task: Task, with_names: bool) -> list[dict[str, Any]]:
    """The current ratings of a task, oldest first; annotators as numbers unless names are due."""
    current = _counted().filter(task=task).select_related("annotator").order_by("pk")
    return [
        {
            "who": str(rating.annotator) if with_names else f"annotator {number}",
            "values": rating.values,
            "note": rating.rationale,
            "rating": rating,
        }
        for number, rating in enumerate(current, start=1)
    ]
