"""Computing and storing a project's agreement report."""

import time
from dataclasses import asdict
from typing import Any

import numpy as np
from django.utils import timezone

from apps.accounts.models import Project
from apps.agreement.models import AgreementReport
from apps.agreement.reports.published import ANCHORS
from apps.agreement.selectors import votes
from apps.agreement.selectors.slices import comparisons_read
from apps.agreement.selectors.votes import counted_votes
from apps.agreement.services.models import model_figures
from apps.agreement.services.pairing import matrix_figures, slice_figures
from apps.agreement.services.statistics import (
    cost_figures,
    position_figures,
    statistics_figures,
    votes_indexed,
)
from apps.labeling.models import Slot
from measures.agreement import clustering
from measures.intervals import dyadic_interval
from measures.voting import CHOICES, Rule, chance_keep_rate, decide_many, posterior_keep_rate
from workers.contract.reasons import in_words


def report_refresh(*, project: Project) -> AgreementReport:
    """Compute every figure of the agreement pages from the current votes and store it."""
    began = time.monotonic()
    newest = votes.newest_vote_id(project=project)
    columns = votes.vote_columns(project=project)
    settings, rule = votes.settings_of(project=project), votes.rule_of(project=project)
    table = votes.vote_table(project=project, columns=columns)
    counted = counted_votes(columns, settings)
    indexed = votes_indexed(columns.only(counted.rows))
    about = comparisons_read(project=project)
    rows = about.rows_of(indexed.ids)
    clusters = clustering(about.group[rows], (about.answer_a[rows], about.answer_b[rows]))
    offered = votes.offered_columns(project=project, counts=indexed.counts)
    regular = columns.kind == votes.KINDS.index(Slot.Kind.REGULAR)
    figures = statistics_figures(indexed, clusters, offered)
    figures |= {
        "version": votes.FIGURES_VERSION,
        "counted": {
            "n_votes": len(indexed.columns),
            "n_comparisons": len(indexed.ids),
            "n_annotators": len(indexed.people),
            "left_out": counted.left_out,
        },
        "choices": {
            str(choice): int(table.counts[:, place].sum()) for place, choice in enumerate(CHOICES)
        },
        "splits": splits(table.counts, rule),
        "decisions": decision_figures(table, rule),
        "rule": asdict(rule),
        "chance": _chance(rule, figures["two_way"]),
        "anchors": [asdict(anchor) for anchor in ANCHORS],
        "n_annotators": table.n_annotators,
        "position": position_figures(columns.only(regular)),
        "cost": cost_figures(columns, project=project, settings=settings),
        "slices": slice_figures(indexed, about),
        "matrix": matrix_figures(indexed),
        "models": model_figures(indexed.columns, about),
    }
    figures["seconds"] = round(time.monotonic() - began, 2)
    report, _ = AgreementReport.objects.update_or_create(
        project=project,
        defaults={
            "computed_at": timezone.now(),
            "last_vote_id": newest,
            "n_votes": int(table.counts.sum()),
            "n_comparisons": len(table.ids),
            "figures": in_words(figures),
        },
    )
    return report


def splits(counts: np.ndarray, rule: Rule) -> list[dict[str, Any]]:
    """How votes on a comparison split, most agreeing first: the agreement page's chart.

    A row per pattern such as "4–1": votes sorted, largest first, whatever they were for.
    `accepted` counts the comparisons of the pattern that the rule accepts.
    """
    if not len(counts):
        return []
    ordered = -np.sort(-counts, axis=1)
    accepted = decide_many(counts, rule).winner >= 0
    patterns, place = np.unique(ordered, axis=0, return_inverse=True)
    place = place.reshape(-1)
    rows = []
    for number, pattern in enumerate(patterns.tolist()):
        here = place == number
        total = sum(pattern)
        rows.append(
            {
                "pattern": "–".join(str(n) for n in pattern if n),
                "n_votes": total,
                "share": pattern[0] / total,
                "comparisons": int(here.sum()),
                "accepted": int(accepted[here].sum()),
            }
        )
    return sorted(rows, key=lambda row: (-row["share"], -row["n_votes"], row["pattern"]))


def decision_figures(table: votes.VoteTable, rule: Rule) -> dict[str, Any]:
    """How many comparisons the rule keeps, and how the kept ones compare with gold labels.

    Vote ties count ½ in `majority` (accuracy of the plain majority against gold); `kept` counts
    accepted decisions only.
    """
    decisions = decide_many(table.counts, rule)
    accepted = decisions.winner >= 0
    figures: dict[str, Any] = {
        "outcomes": {str(outcome): n for outcome, n in decisions.tally().items()},
        "kept": int(accepted.sum()),
        "n": len(table.ids),
    }
    names = [str(choice) for choice in CHOICES]
    with_gold = np.array([gold in names for gold in table.golds], dtype=bool)
    if not with_gold.any():
        figures["gold"] = None
        return figures
    gold = np.array([names.index(g) if g in names else -1 for g in table.golds])
    counts = table.counts[with_gold]
    top = counts.max(axis=1, keepdims=True)
    leaders = counts == top
    right = leaders[np.arange(len(counts)), gold[with_gold]] / leaders.sum(axis=1)
    kept = accepted & with_gold
    figures["gold"] = {
        "n": int(with_gold.sum()),
        "majority": float(right.mean()),
        "kept_n": int(kept.sum()),
        "kept": _accuracy(table, kept, decisions.winner == gold) if kept.any() else None,
    }
    return figures


def _accuracy(table: votes.VoteTable, rows: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """Share of `rows` that are right. An answer stands in many comparisons, so rows are not
    independent: the interval is the one for pairs of recurring units."""
    pairs = [pair for pair, wanted in zip(table.responses, rows, strict=True) if wanted]
    first, second = zip(*pairs, strict=True)
    return asdict(dyadic_interval(right[rows].astype(float), first, second))


POSTERIOR = 0.9


def _chance(rule: Rule, two_way: dict[str, Any]) -> dict[str, Any]:
    """What a crowd of random voters would get through the same rule, two-way and three-way.

    Beside it, what it would get through "posterior at least 0.9" (one-coin model), where the
    annotators' accuracy q is the one their two-way agreement implies.
    """
    n_votes = rule.max_votes or max(rule.least_votes, rule.least_agreeing)
    figures: dict[str, Any] = {
        "n_votes": n_votes,
        "two_way": chance_keep_rate(rule, n_votes, 2),
        "with_ties": chance_keep_rate(rule, n_votes, 3),
        "posterior": None,
        "accuracy": None,
    }
    accuracy = (two_way.get("ceiling") or {}).get("annotator_accuracy")
    if accuracy is not None and 0.5 < accuracy < 1:
        figures["posterior"] = posterior_keep_rate(accuracy, POSTERIOR, n_votes)
        figures["accuracy"] = accuracy
    return figures
