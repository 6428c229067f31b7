"""Which of a run's checkpoints count, over all its attempts."""

from collections.abc import Iterable
from math import inf

from apps.training.models import Checkpoint, Run, RunAttempt

PREFERENCE = ("final", "best", "last")


def attempt_ends(run: Run) -> dict[int, float]:
    """attempt -> the last step of it that counts: where a later attempt resumed from.

    An attempt that resumed from nothing started over: nothing before it counts any more.
    """
    attempts = RunAttempt.objects.filter(run=run).order_by("-number")
    ends: dict[int, float] = {}
    end = inf
    for number, resumed_from in attempts.values_list("number", "resumed_from_step"):
        ends[number] = end
        end = min(end, resumed_from or 0)
    return ends


def checkpoints(run: Run) -> list[Checkpoint]:
    """Those that count, newest step first. What a superseded attempt saved beyond the step its
    successor resumed from belongs to a past that did not happen."""
    ends = attempt_ends(run)
    rows = Checkpoint.objects.filter(run=run).order_by("-step", "-attempt")
    return [row for row in rows if row.step <= ends.get(row.attempt, inf)]


def checkpoint_for_use(run: Run) -> Checkpoint | None:
    """What others build on: the final model, else the best, else the last one."""
    return _by_tag(checkpoints(run), PREFERENCE)


def _by_tag(rows: Iterable[Checkpoint], tags: Iterable[str]) -> Checkpoint | None:
    rows = list(rows)
    return next((row for tag in tags for row in rows if tag in row.tags), None)
