"""Computing and storing a project's agreement report."""

from dataclasses import asdict
from typing import Any

import numpy as np
from django.utils import timezone

from apps.accounts.models import Project
from apps.agreement.models import AgreementReport
from apps.agreement.selectors import votes
from measures.agreement import (
    fleiss_kappa,
    gwet_ac1,
    krippendorff_alpha,
    percent_agreement,
    reading,
)
from measures.ceiling import ANCHORS, ceiling_from_agreement
from measures.estimate import Estimate
from measures.intervals import dyadic_interval
from measures.voting import CHOICES, Rule, chance_keep_rate, decide_many, posterior_keep_rate

STATISTICS = (
    ("percent", percent_agreement),
    ("alpha", krippendorff_alpha),
    ("fleiss", fleiss_kappa),
    ("ac1", gwet_ac1),
)


def report_refresh(*, project: Project) -> AgreementReport:
    """Compute every figure of the agreement page from the current votes and store it."""
    newest = votes.newest_vote_id(project=project)
    table = votes.vote_table(project=project)
    rule = votes.rule_of(project=project)
    # AC1 depends on how many categories there were to choose from.
    offered = table.counts[:, votes.offered_columns(project=project, counts=table.counts)]
    two_way = _two_way(table.counts)
    figures = {
        "statistics": {name: _estimate(function(offered)) for name, function in STATISTICS},
        "two_way": two_way,
        "choices": {
            str(choice): int(table.counts[:, place].sum()) for place, choice in enumerate(CHOICES)
        },
        "splits": splits(table.counts, rule),
        "decisions": decision_figures(table, rule),
        "rule": asdict(rule),
        "chance": _chance(rule, two_way),
        "anchors": [asdict(anchor) for anchor in ANCHORS],
        "n_annotators": table.n_annotators,
    }
    report, _ = AgreementReport.objects.update_or_create(
        project=project,
        defaults={
            "computed_at": timezone.now(),
            "last_vote_id": newest,
            "n_votes": int(table.counts.sum()),
            "n_comparisons": len(table.ids),
            "figures": figures,
        },
    )
    return report


def _estimate(estimate: Estimate) -> dict[str, Any]:
    what = reading(estimate)
    return asdict(estimate) | {"level": str(what.level), "sentence": what.sentence}


def _two_way(counts: np.ndarray) -> dict[str, Any]:
    """Agreement on A-or-B votes only, and the ceiling it implies (defined for two-way votes)."""
    estimate = percent_agreement(counts[:, :2])
    figures: dict[str, Any] = {"percent": _estimate(estimate)}
    if estimate.value is not None:
        figures["ceiling"] = asdict(ceiling_from_agreement(estimate.value))
    return figures


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
    """What a crowd of coin-flippers would get through the same rule, two-way and three-way.

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
