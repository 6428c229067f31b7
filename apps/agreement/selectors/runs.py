"""What people said about runs of agents, as counts for agreement statistics.

Two answers about one run lean on the same reading of it, so intervals are over comparisons and
never over steps: a run of 40 steps is one observation, not 40.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from apps.accounts.models import Project
from apps.labeling.models import RunAnswer
from apps.labeling.services.answers import OUTCOME, OUTCOMES
from measures.agreement.coefficients import krippendorff_alpha, percent_agreement
from measures.agreement.reading import count_matrix
from measures.estimate import Estimate

WRONG_FROM = "first_error"
STEPS = "steps"
_BETTER = ("a", "tie", "b")


@dataclass(frozen=True, slots=True)
class RunAgreement:
    """Of one question: items are runs, or steps of runs; `n_runs` comparisons are the units that
    the intervals are over."""

    question: str
    percent: Estimate
    alpha: Estimate
    n_items: int
    n_comparisons: int


# (comparison, what was judged there, category)
Said = tuple[int, tuple[Any, ...], int]


def agreement_on_runs(*, project: Project) -> list[RunAgreement]:
    """Of every question that two people answered about one run at least once."""
    said: dict[str, list[Said]] = defaultdict(list)
    categories: dict[str, int] = {}
    for comparison, stored in _answers(project):
        for question, item, category, n in _judgements(stored):
            said[question].append((comparison, (comparison, *item), category))
            categories[question] = n
    order = [*OUTCOME, WRONG_FROM, STEPS]
    return [_agreement(name, said[name], categories[name]) for name in order if said[name]]


def _answers(project: Project) -> Iterator[tuple[int, dict[str, Any]]]:
    """Standing answers that count."""
    rows = (
        RunAnswer.objects.filter(
            answer__project=project,
            answer__is_current=True,
            answer__slot__kind__in=("regular", "gold"),
        )
        .order_by("answer_id")
        .values_list("answer__task_id", "outcome", "first_error", "steps")
    )
    for comparison, outcome, first_error, steps in rows.iterator(2_000):
        yield comparison, {"outcome": outcome, WRONG_FROM: first_error, STEPS: steps}


def _judgements(stored: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, ...], int, int]]:
    """(question, what was judged, category, how many there are). Of the first wrong step the
    category is its number, 0 where none is wrong: only the same step agrees."""
    for side, answers in stored["outcome"].items():
        for question, value in answers.items():
            yield question, (side,), OUTCOMES.index(value), len(OUTCOMES)
    for side, step in stored[WRONG_FROM].items():
        yield WRONG_FROM, (side,), step, step + 1
    for places, better in stored[STEPS].items():
        yield STEPS, (places,), _BETTER.index(better), len(_BETTER)


def _agreement(question: str, said: list[Said], n_categories: int) -> RunAgreement:
    items = {item: place for place, item in enumerate(dict.fromkeys(item for _, item, _ in said))}
    clusters = {items[item]: comparison for comparison, item, _ in said}
    if question == WRONG_FROM:
        n_categories = 1 + max(category for _, _, category in said)
    counts = count_matrix(
        [items[item] for _, item, _ in said],
        [category for _, _, category in said],
        n_items=len(items),
        n_categories=n_categories,
    )
    groups = [clusters[place] for place in range(len(items))]
    return RunAgreement(
        question,
        percent_agreement(counts, groups=groups),
        krippendorff_alpha(counts, groups=groups),
        len(items),
        len(set(groups)),
    )
