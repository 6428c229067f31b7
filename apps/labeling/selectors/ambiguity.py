"""Reads: the prompts, or topics, that annotators disagree about most."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import numpy as np
from django.db.models import Count, QuerySet, Window
from django.db.models.functions import RowNumber
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.labeling.models import Comparison, Decision, Prompt, Skip, Slot, Vote
from apps.labeling.texts import excerpt
from measures.ambiguity import disagreement_evidence, prompt_ambiguity

Floats = NDArray[np.float64]
By = Literal["prompt", "topic"]
_COLUMN = {"prompt": "comparison__prompt_id", "topic": "comparison__prompt__topic"}
UNCLEAR_FLAG = "prompt_unclear"
UNCLEAR_SKIP = "Prompt is unclear"
MOST_LISTED = 500
MOST_PAIRS = 6  # of one prompt, linked from its row
_PIECE = 20_000  # comparisons read at once


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One prompt or topic of a ranking: `key` is the prompt's id or the topic.

    expected, low, high: the chance that two annotators of a pair choose differently, drawn
    towards the project's mean, with its 95 % interval (see `measures.ambiguity`); observed: the
    share as counted. n_pairs: comparisons with two votes or more; n_votes: the votes on them.
    """

    key: int | str
    expected: float
    low: float
    high: float
    observed: float
    n_pairs: int
    n_votes: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """The most ambiguous first; `mean` is the project's share, `n` how many were ranked."""

    rows: list[Disagreement] = field(default_factory=list)
    mean: float = 0.0
    n: int = 0


def ranking(*, project: Project, by: By = "prompt", only: Collection[int] | None = None) -> Ranking:
    """Prompts (or topics) by disagreement, at most MOST_LISTED; `only` keeps these prompts.

    From current votes of the queue's regular and gold slots, as counted in decisions; dropped
    comparisons and those with fewer than two votes are left out. The prior is that of the whole
    project, whatever is kept.
    """
    keys, votes = _counted(project, by)
    if not len(keys):
        return Ranking()
    names, index = np.unique(keys, return_inverse=True)
    differing, evidence = disagreement_evidence(votes)

    def added(values: Floats) -> Floats:
        """Sums over the comparisons of each name that have two votes or more."""
        return np.bincount(index, weights=np.where(evidence > 0, values, 0.0)).astype(np.float64)

    found = prompt_ambiguity(added(differing), added(evidence))
    n_pairs, n_votes = added(np.ones(len(votes))), added(votes.sum(axis=1))
    kept = n_pairs > 0
    if only is not None:
        kept &= np.isin(names, np.array(list(only), dtype=names.dtype))
    order = [i for i in np.argsort(-found.expected, kind="stable") if kept[i]]
    rows = [
        Disagreement(
            key=names[i].item(),
            expected=float(found.expected[i]),
            low=float(found.low[i]),
            high=float(found.high[i]),
            observed=float(found.observed[i]),
            n_pairs=int(n_pairs[i]),
            n_votes=int(n_votes[i]),
        )
        for i in order[:MOST_LISTED]
    ]
    return Ranking(rows, found.mean, len(order))


def _counted(project: Project, by: By) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """(n,) prompts or topics and (n, 4) votes, a row a comparison; read in pieces, since a big
    project has a million of them."""
    decisions = Decision.objects.filter(project=project)
    decisions = decisions.exclude(comparison__state=Comparison.State.DROPPED)
    if by == "topic":
        decisions = decisions.exclude(comparison__prompt__topic="")
    rows = decisions.order_by().values_list(_COLUMN[by], "n_a", "n_b", "n_tie", "n_both_bad")
    stream = rows.iterator(chunk_size=_PIECE)
    keys, votes = [], []
    while piece := list(islice(stream, _PIECE)):
        keys.append(np.array([row[0] for row in piece]))
        votes.append(np.array([row[1:] for row in piece], dtype=np.int32))
    if not keys:
        return np.empty(0), np.empty((0, 4), dtype=np.int32)
    return np.concatenate(keys), np.concatenate(votes)


def prompts_matching(*, project: Project, topic: str = "", search: str = "") -> list[int] | None:
    """The prompts a filter keeps; None when it keeps all."""
    if not topic and not search:
        return None
    found = Prompt.objects.filter(project=project)
    if topic:
        found = found.filter(topic=topic)
    if search:
        found = found.filter(brief__icontains=search)
    return list(found.values_list("pk", flat=True))


@dataclass(slots=True)
class PromptDetails:
    """What the page shows of a prompt besides its numbers."""

    text: str = ""
    topic: str = ""
    pairs: list[Decision] = field(default_factory=list)  # the most split first, some of them
    n_flagged: int = 0  # answers with the flag "prompt unclear"
    n_skipped: int = 0  # skips because the prompt is unclear


def prompt_details(*, prompts: Collection[int]) -> dict[int, PromptDetails]:
    """Texts, comparisons and complaints of these prompts (those of one page)."""
    details: dict[int, PromptDetails] = defaultdict(PromptDetails)
    for prompt in Prompt.objects.filter(pk__in=prompts):
        details[prompt.pk].text = excerpt(prompt.brief)
        details[prompt.pk].topic = prompt.topic
    decisions = (
        Decision.objects.filter(comparison__prompt__in=prompts)
        .exclude(comparison__state=Comparison.State.DROPPED)
        .select_related("comparison")
        .annotate(
            place=Window(
                RowNumber(),
                partition_by="comparison__prompt",
                order_by=("share", "comparison_id"),
            )
        )
        .filter(place__lte=MOST_PAIRS)
        .order_by("share", "comparison_id")
    )
    for decision in decisions:
        details[decision.comparison.prompt_id].pairs.append(decision)
    flagged = Vote.objects.filter(
        comparison__prompt__in=prompts, is_current=True, flags__contains=[UNCLEAR_FLAG]
    ).exclude(slot__kind=Slot.Kind.DISCARD)
    for pk, n in _by_prompt(flagged):
        details[pk].n_flagged = n
    skipped = Skip.objects.filter(task__prompt__in=prompts, reason=UNCLEAR_SKIP)
    for pk, n in _by_prompt(skipped, "task__prompt"):
        details[pk].n_skipped = n
    return dict(details)


def _by_prompt(
    rows: QuerySet[Vote] | QuerySet[Skip], prompt: str = "comparison__prompt"
) -> list[tuple[int, int]]:
    grouped = rows.order_by().values(prompt).annotate(n=Count("id"))
    return list(grouped.values_list(prompt, "n"))
