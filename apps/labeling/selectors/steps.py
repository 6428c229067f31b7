"""The steps of runs of agents that people judged by naming the first wrong one."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from django.db.models import QuerySet

from apps.accounts.models import Project
from apps.labeling.models import Comparison, Response, RunAnswer, Slot
from measures.messages import Messages
from measures.runs import steps_of

_PART = 1_000
_DECIDING = (Slot.Kind.REGULAR, Slot.Kind.GOLD)


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """One side of a comparison whose first wrong step most people agree on. `asked`: the prompt up
    to its last question; `turns`: all that followed, each with whether it is right in `labels`,
    None where nobody knows; `votes`: (vote, person) of everybody who said something of it, of whom
    `n_agreeing` named that step."""

    comparison: Comparison
    side: str
    response: Response
    asked: Messages
    turns: Messages
    labels: tuple[bool | None, ...]
    votes: tuple[tuple[int, int], ...]
    n_agreeing: int


def judged_answers(project: Project) -> QuerySet[RunAnswer]:
    """Of votes that stand, on comparisons that were not dropped."""
    answers = RunAnswer.objects.filter(
        answer__project=project, answer__is_current=True, answer__slot__kind__in=_DECIDING
    )
    return answers.exclude(first_error={})


def judged_runs(project: Project, found: QuerySet[Comparison]) -> Iterator[JudgedRun]:
    """Of these comparisons, in their order; read in parts."""
    judged = judged_answers(project)
    found = found.filter(pk__in=judged.values("answer__task"))
    found = found.select_related("prompt", "response_a", "response_b").order_by("pk")
    last = 0
    while part := list(found.filter(pk__gt=last)[:_PART]):
        last = part[-1].pk
        said = defaultdict(list)
        names = ("answer__task", "answer_id", "answer__annotator", "first_error")
        of = judged.filter(answer__task__in=[one.pk for one in part]).order_by("answer_id")
        for task, *row in of.values_list(*names):
            said[task].append(row)
        for one in part:
            yield from _judged(one, said[one.pk])


def _judged(
    comparison: Comparison, said: Iterable[tuple[int, int, dict[str, int]]]
) -> Iterator[JudgedRun]:
    prompt = comparison.prompt.messages
    asked = 1 + max((n for n, m in enumerate(prompt) if m["role"] == "user"), default=-1)
    if not asked:  # nobody asked anything
        return
    for side, response in (("a", comparison.response_a), ("b", comparison.response_b)):
        of = [(vote, person, first[side]) for vote, person, first in said if side in first]
        if not of:
            continue
        ((wrong, n),) = Counter(step for _, _, step in of).most_common(1)
        if 2 * n <= len(of):  # no step that most people name
            continue
        turns = [*prompt[asked:], *response.messages]
        numbers = _step_numbers(turns, first=len(steps_of(prompt[:asked])) + 1)
        labels = tuple(
            _is_right(number, wrong) if turn["role"] == "assistant" else None
            for turn, number in zip(turns, numbers, strict=True)
        )
        votes = tuple((vote, person) for vote, person, _ in of)
        yield JudgedRun(comparison, side, response, prompt[:asked], turns, labels, votes, n)


def _step_numbers(turns: Messages, *, first: int) -> list[int]:
    """Of each turn the step that it belongs to."""
    steps = steps_of(turns, first=first)
    return [step.number for step in steps for _ in range(1 + len(step.results))]


def _is_right(step: int, wrong: int) -> bool | None:
    """Nothing is known of the steps behind the first wrong one."""
    if not wrong or step < wrong:
        return True
    return False if step == wrong else None
