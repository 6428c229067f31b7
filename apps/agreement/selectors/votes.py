"""Reading votes for statistics, and the stored report."""

from dataclasses import dataclass

import numpy as np
from django.db.models import Max
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.agreement.models import AgreementReport
from apps.labeling.models import Comparison, LabelingSettings, Slot, Vote
from measures.agreement import count_matrix
from measures.voting import CHOICES, Rule


@dataclass(frozen=True, slots=True)
class VoteTable:
    """Current votes as counts. `counts[i, c]`: votes for choice c (order of
    `measures.voting.CHOICES`) on comparison `ids[i]`; `golds[i]` its gold label or "";
    `responses[i]` its two responses' text hashes (the same answer recurs in many comparisons)."""

    ids: NDArray[np.int64]
    counts: NDArray[np.int64]
    responses: list[tuple[str, str]]
    golds: list[str]
    n_annotators: int
    last_vote_id: int


def vote_table(*, project: Project) -> VoteTable:
    """The random stratum's regular votes: what agreement is computed on.

    Priority and gold comparisons are chosen, repeats and audits are second looks: none of them is
    a random sample of the project's pairs.
    """
    rows = list(
        Vote.objects.filter(
            project=project,
            is_current=True,
            slot__kind=Slot.Kind.REGULAR,
            comparison__stratum=Comparison.Stratum.RANDOM,
        ).values_list("comparison_id", "choice", "annotator_id", "id")
    )
    ids, items = np.unique(np.array([row[0] for row in rows], dtype=np.int64), return_inverse=True)
    columns = {str(choice): place for place, choice in enumerate(CHOICES)}
    about = {
        row[0]: row[1:]
        for row in Comparison.objects.filter(id__in=ids.tolist()).values_list(
            "id", "gold", "response_a__text_hash", "response_b__text_hash"
        )
    }
    return VoteTable(
        ids=ids,
        counts=count_matrix(
            items,
            np.array([columns[row[1]] for row in rows], dtype=np.int64),
            n_items=len(ids),
            n_categories=len(CHOICES),
        ),
        responses=[about[i][1:] for i in ids.tolist()],
        golds=[about[i][0] for i in ids.tolist()],
        n_annotators=len({row[2] for row in rows}),
        last_vote_id=max((row[3] for row in rows), default=0),
    )


def rule_of(*, project: Project) -> Rule:
    """The project's decision rule, as `measures.voting` takes it."""
    settings = LabelingSettings.objects.filter(project=project).first() or LabelingSettings()
    return Rule(
        least_votes=settings.least_votes,
        least_agreeing=settings.least_agreeing,
        least_share=settings.least_share,
        max_votes=settings.max_overlap,
    )


def offered_columns(*, project: Project, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(4,) which choices annotators have: A and B, what the project shows, what has votes."""
    settings = LabelingSettings.objects.filter(project=project).first() or LabelingSettings()
    shown = {"a": True, "b": True, "tie": settings.show_tie, "both_bad": settings.show_both_bad}
    return np.array([shown[str(choice)] for choice in CHOICES]) | (counts.sum(axis=0) > 0)


def newest_vote_id(*, project: Project) -> int:
    return Vote.objects.filter(project=project).aggregate(newest=Max("id"))["newest"] or 0


def report_get(*, project: Project) -> AgreementReport | None:
    """The stored report, or None before the first vote was computed on."""
    return AgreementReport.objects.filter(project=project).first()


def stale_projects() -> list[Project]:
    """Projects whose newest vote is newer than their report (or that have none yet)."""
    newest = dict(
        Vote.objects.values_list("project_id")
        .annotate(newest=Max("id"))
        .values_list("project_id", "newest")
    )
    seen = dict(AgreementReport.objects.values_list("project_id", "last_vote_id"))
    behind = [key for key, vote in newest.items() if seen.get(key, 0) < vote]
    return list(Project.objects.filter(id__in=behind, archived_at__isnull=True))
