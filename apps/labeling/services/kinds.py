"""The kinds of tasks: what an answer to each is, and how far two answers agree.

Leasing, gates, caps and statements know none of this. A new kind needs an entry here, a row of the
import (`task_rows`), a screen (`screens.label`) and its line in the constraints of `Task`. Writing
is of the queue and no judgement: its texts are in `services.writing`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

from django.utils.translation import gettext

from apps.common.errors import DomainError
from apps.labeling.models import Task
from measures.ratings import competition_ranks

# Two answers are the same judgement from here on: a grade within a sixth of the scale on average
# (one point of 1 to 7), a ranking with five of six pairs in the same order.
AGREES_FROM = 5 / 6 - 1e-9


class Shown(Protocol):
    """What an answer is checked against."""

    @property
    def task_kind(self) -> str: ...
    @property
    def shown(self) -> list[int]: ...
    @property
    def low(self) -> int | None: ...
    @property
    def high(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class ValuesKind:
    """A kind that is answered by one whole number for each response.

    old_name: what the API has called it since 0.2; canonical: the one form of values by stored
    place; agreement: from 0 to 1, of two of them on a scale of so many steps.
    """

    old_name: str
    canonical: Callable[[Sequence[int]], list[int]]
    agreement: Callable[[Sequence[int], Sequence[int], int], float]


def _grades_agree(one: Sequence[int], other: Sequence[int], steps: int) -> float:
    """1 − the mean distance of the grades, as a share of the scale."""
    apart = sum(abs(x - y) for x, y in zip(one, other, strict=True))
    return 1 - apart / (len(one) * max(steps, 1))


def _ranks_agree(one: Sequence[int], other: Sequence[int], _steps: int) -> float:
    """The share of pairs of responses that both put in the same order; half where one ties them."""
    signs = [
        ((one[a] > one[b]) - (one[a] < one[b]), (other[a] > other[b]) - (other[a] < other[b]))
        for a, b in combinations(range(len(one)), 2)
    ]
    return sum(1 - abs(x - y) / 2 for x, y in signs) / len(signs)


KINDS = {
    Task.Kind.GRADE.value: ValuesKind("graded", list, _grades_agree),
    Task.Kind.RANK.value: ValuesKind("ranking", competition_ranks, _ranks_agree),
}
OLD_NAMES = {kind.old_name: name for name, kind in KINDS.items()}


def canonical(values: Sequence[int], given: Shown) -> list[int]:
    """By stored place, in the one form of an order; errors name the response as it was shown."""
    n = len(given.shown)
    if len(values) != n:
        raise DomainError(
            f"{len(values)} values for {n} response{'s' if n > 1 else ''}.", field="values"
        )
    for number, value in enumerate(values, start=1):
        if not (given.low or 0) <= value <= (given.high or 0):
            raise DomainError(
                gettext("Response %(number)s has %(value)s; from %(low)s to %(high)s is asked.")
                % {"number": number, "value": value, "low": given.low, "high": given.high},
                field="values",
            )
    by_place = [value for _, value in sorted(zip(given.shown, values, strict=True))]
    return KINDS[given.task_kind].canonical(by_place)


def agree(kind: str, one: Sequence[int], other: Sequence[int], steps: int) -> bool:
    """Whether two stored answers to one task, or one and its gold, are the same judgement."""
    return KINDS[kind].agreement(one, other, steps) >= AGREES_FROM
