"""Outputs that people grade: how far they are, and whether the model ranks them as people do."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from django.db.models import Exists, OuterRef, QuerySet

from apps.common.errors import Missing
from apps.evaluation.findings import people_rank
from apps.evaluation.models import OutputRanking, RankedOutput
from apps.evaluation.selectors.assessments import assess_runs
from apps.evaluation.selectors.outputs import IS_FILE
from apps.labeling.models import Answer, Task, TaskItem, whole_response
from apps.training.models import Artifact, Checkpoint, Run
from measures.messages import Messages
from measures.trust.findings import Finding, unmeasured
from measures.trust.people import LEAST_OUTPUTS

LINE = "people_rank"
# Outputs are handed out in random order, so the first nine tenths are a random sample of all; the
# last few may wait for somebody who is away. Before that there is no verdict, so that nobody can
# stop looking on the day the figure suits.
ENOUGH = 0.9
SECONDS_A_GRADE = 15  # until people have graded here
_LEAST_TIMES = 20

State = Task.State


@dataclass(frozen=True, slots=True)
class Graded:
    """One output: what the model scored it, and what people gave it so far."""

    number: int
    task: Task
    prompt: Messages
    response: Messages
    score: float
    grades: tuple[int, ...]

    @property
    def mean(self) -> float | None:
        return sum(self.grades) / len(self.grades) if self.grades else None

    @property
    def is_done(self) -> bool:
        """Nobody is asked about it any more, and somebody was."""
        return self.task.state == State.DECIDED and bool(self.grades)

    @property
    def is_out(self) -> bool:
        """It left the queue without an answer: dropped, or a person must look at it first."""
        return self.task.state in (State.DROPPED, State.REVIEW)


@dataclass(frozen=True, slots=True)
class RankingProgress:
    """n: outputs sent; done: graded by everybody asked; out: left the queue; grades: so far, of
    those wanted."""

    n: int
    done: int
    out: int
    grades: int
    wanted: int

    @property
    def is_enough(self) -> bool:
        return self.done >= max(LEAST_OUTPUTS, ENOUGH * (self.n - self.out))


def rankings_of(checkpoint: Checkpoint) -> QuerySet[OutputRanking]:
    """Newest first."""
    rows = OutputRanking.objects.filter(checkpoint=checkpoint)
    return rows.select_related("assessment", "created_by").order_by("-created_at", "-pk")


def ranking_get(*, checkpoint: Checkpoint, ranking_id: str) -> OutputRanking:
    """`Missing` for one that is not of this model."""
    found = rankings_of(checkpoint).filter(pk=ranking_id).first()
    if found is None:
        raise Missing("There is no such ranking of this model's outputs.", field="ranking")
    return found


def graded_outputs(ranking: OutputRanking) -> list[Graded]:
    """Every output that was sent, highest score first, with its current grades."""
    rows = list(
        RankedOutput.objects.filter(ranking=ranking)
        .select_related("task__prompt")
        .order_by("-score", "pk")
    )
    tasks = [row.task_id for row in rows]
    grades: dict[int, list[int]] = defaultdict(list)
    current = Answer.objects.filter(task__in=tasks, is_current=True).order_by("pk")
    for task, values in current.values_list("task_id", "values"):
        grades[task].append(values[0])
    items = TaskItem.objects.filter(task__in=tasks).values_list(
        "task_id", whole_response("response")
    )
    answers = dict(items)
    return [
        Graded(
            number=number,
            task=row.task,
            prompt=row.task.prompt.messages,
            response=answers[row.task_id],
            score=row.score,
            grades=tuple(grades[row.task_id]),
        )
        for number, row in enumerate(rows, start=1)
    ]


def progress_of(ranking: OutputRanking, outputs: list[Graded]) -> RankingProgress:
    return RankingProgress(
        n=len(outputs),
        done=sum(one.is_done for one in outputs),
        out=sum(one.is_out for one in outputs),
        grades=sum(len(one.grades) for one in outputs),
        wanted=sum(one.task.overlap for one in outputs if not one.is_out),
    )


def people_rank_finding(checkpoint: Checkpoint) -> Finding:
    """The line "people_rank", from the newest outputs that were sent to people."""
    ranking = rankings_of(checkpoint).first()
    if ranking is None:
        return unmeasured(
            LINE,
            "Not measured: no outputs were sent to people. Assess the model with a policy, then "
            "send its answers to the label queue.",
        )
    return finding_of(ranking, graded_outputs(ranking))


def finding_of(ranking: OutputRanking, outputs: list[Graded]) -> Finding:
    progress = progress_of(ranking, outputs)
    if not progress.is_enough:
        return unmeasured(LINE, _waiting(progress))
    done = [(one, one.mean) for one in outputs if one.is_done]
    return people_rank(
        [one.score for one, _ in done],
        [(mean, len(one.grades)) for one, mean in done if mean is not None],
        single_grades=[one.grades for one, _ in done],
    )


def _waiting(progress: RankingProgress) -> str:
    said = f"Not measured yet: sent to people, {progress.done} of {progress.n} graded"
    if progress.out:
        said += f", {progress.out} out of the queue"
    if progress.n - progress.out < LEAST_OUTPUTS:
        return f"{said}. {LEAST_OUTPUTS} are needed: assess the model with more prompts."
    return f"{said}. The figure appears when nine in ten are."


def sendable(checkpoint: Checkpoint) -> Run | None:
    """The newest finished assessment of the model that kept a policy's answers."""
    finished = assess_runs(checkpoint).filter(state=Run.State.FINISHED)
    kept = Artifact.objects.filter(IS_FILE, run=OuterRef("pk"))
    return finished.filter(Exists(kept)).order_by("-ended_at", "-pk").first()


def seconds_a_grade(checkpoint: Checkpoint) -> float:
    """How long people here take for one graded answer: their median, or 15 s before 20 grades."""
    times = Answer.objects.filter(
        project=checkpoint.project,
        is_current=True,
        active_ms__gt=0,
        values__len=1,
        kind=Task.Kind.GRADE,
    ).order_by("-pk")
    found = np.array(list(times.values_list("active_ms", flat=True)[:500]), dtype=float)
    return float(np.median(found)) / 1000 if len(found) >= _LEAST_TIMES else SECONDS_A_GRADE
