"""Pairs for datasets, made of what people graded or ranked.

An answer to K responses says which of each two is better. What the answers to a finished task say
together becomes a comparison of its own with a decision and without votes: it enters datasets as
what people ruled does, and no statistic of votes ever counts it. Where it comes from stands on it:
its batch, the task and the answers in its metadata, and the reason of its decision.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.labeling.models import (
    RATED,
    Answer,
    Comparison,
    Decision,
    LabelingSettings,
    Slot,
    Task,
    TaskItem,
)
from apps.labeling.services.projects import labeling_set_up
from measures.ratings import pairs_of_grades, pairs_of_ranking

BATCHES = {Task.Kind.GRADE.value: "from grades", Task.Kind.RANK.value: "from ranking"}
_COUNTED = (Slot.Kind.REGULAR, Slot.Kind.GOLD)


@dataclass(frozen=True, slots=True)
class Derived:
    """What the answers to one task say about two of its responses, by their stored places."""

    task: Task
    a: int
    b: int
    counts: Counter[str]
    answers: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"task-{self.task.pk}-{self.a}-{self.b}"

    def winner(self, least_share: float) -> str:
        """What more than half, and the project's share, of the people said; "" where too few."""
        choice, n = self.counts.most_common(1)[0]
        share = n / self.counts.total()
        return choice if share > 0.5 and share >= least_share else ""

    def decision(self, winner: str) -> dict[str, Any]:
        n = self.counts
        said = f"{n[winner]} of {n.total()} people"
        return {
            "outcome": Decision.Outcome.ADJUDICATED,
            "winner": winner,
            "reason": f"{BATCHES[self.task.kind]}, task {self.task.pk}: {said}",
        }

    @property
    def origin(self) -> dict[str, Any]:
        counts = {f"n_{choice}": self.counts[choice] for choice in ("a", "b", "tie")}
        own = self.task.metadata or {}
        return own | {
            "made": BATCHES[self.task.kind],
            "task": self.task.external_id or self.task.pk,
            "answers": list(self.answers),
            **counts,
        }


@dataclass(frozen=True, slots=True)
class PairsReport:
    """In numbers: tasks looked at, pairs made and changed, pairs that people do not agree on."""

    n_tasks: int
    n_created: int
    n_changed: int
    n_undecided: int


@transaction.atomic
def pairs_make(*, project: Project, by: User) -> PairsReport:
    """Make the pairs of every finished task of the project, or bring them up to date.

    A pair that a person has ruled on, or sent to annotators, since is left as it is.
    """
    labeling_set_up(project=project)
    # As an import: one after another.
    settings = LabelingSettings.objects.select_for_update(no_key=True).get(project=project)
    tasks = Task.objects.filter(project=project, state=Task.State.DECIDED)
    finished = list(tasks.filter(kind__in=RATED).exclude(stratum=Task.Stratum.GOLD))
    items = _items(finished)
    known = _known(project)
    n = Counter[str]()
    for derived in _derived(finished):
        winner = derived.winner(settings.least_share)
        if not winner:
            n["undecided"] += 1
        elif derived.name not in known:
            _write(project, derived, items[derived.task.pk], winner)
            n["created"] += 1
        elif (found := known[derived.name]) is not None and found.winner != winner:
            Decision.objects.filter(pk=found.pk).update(**derived.decision(winner))
            Comparison.objects.filter(pk=found.pk).update(metadata=derived.origin)
            n["changed"] += 1
    report = PairsReport(len(finished), n["created"], n["changed"], n["undecided"])
    audit_record(
        action="pairs.made",
        actor=by,
        project=project,
        subject=f"{report.n_created} pairs",
        details={"tasks": report.n_tasks, "changed": report.n_changed},
    )
    return report


def _derived(tasks: list[Task]) -> Iterator[Derived]:
    by_task: dict[int, list[tuple[int, list[int]]]] = defaultdict(list)
    current = Answer.objects.filter(task__in=tasks, is_current=True, slot__kind__in=_COUNTED)
    for of, pk, values in current.order_by("pk").values_list("task_id", "pk", "values"):
        by_task[of].append((pk, values))
    for task in tasks:
        said: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
        for _, values in by_task[task.pk]:
            ranking = task.kind == Task.Kind.RANK
            for pair in pairs_of_ranking(values) if ranking else pairs_of_grades(values):
                said[pair.a + 1, pair.b + 1][pair.choice.value] += 1
        answers = tuple(pk for pk, _ in by_task[task.pk])
        for (a, b), counts in sorted(said.items()):
            yield Derived(task, a, b, counts, answers)


def _items(tasks: list[Task]) -> dict[int, dict[int, int]]:
    """{task: {place: response}}."""
    found: dict[int, dict[int, int]] = defaultdict(dict)
    rows = TaskItem.objects.filter(task__in=tasks).values_list("task_id", "position", "response_id")
    for task, place, response in rows:
        found[task][place] = response
    return found


def _known(project: Project) -> dict[str, Decision | None]:
    """{name: its decision while it is the one made here, else None}."""
    made = Comparison.objects.filter(project=project, batch__in=BATCHES.values())
    ours = tuple(BATCHES.values())
    return {
        one.external_id: one.decision
        if hasattr(one, "decision") and one.decision.reason.startswith(ours)
        else None
        for one in made.select_related("decision")
    }


def _write(project: Project, derived: Derived, places: dict[int, int], winner: str) -> None:
    made = Comparison.objects.create(
        project=project,
        prompt_id=derived.task.prompt_id,
        response_a_id=places[derived.a],
        response_b_id=places[derived.b],
        external_id=derived.name,
        batch=BATCHES[derived.task.kind],
        state=Comparison.State.DECIDED,
        shuffle=derived.task.shuffle,
        warning=derived.task.warning,
        metadata=derived.origin,
    )
    Decision.objects.create(project=project, comparison=made, **derived.decision(winner))
