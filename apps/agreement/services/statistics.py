"""The project's statistics of agreement and cost, from the votes that count for them."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.agreement.reports.reading import NAMES, estimate_said, position_said
from apps.agreement.selectors.votes import KINDS, STRATA, VoteColumns
from apps.labeling.models import Comparison, Decision, LabelingSettings, Slot
from measures.agreement import (
    Clustering,
    Level,
    count_matrix,
    fleiss_kappa,
    gwet_ac1,
    krippendorff_alpha,
    mean_cohen_kappa,
    pair_counts,
    pair_votes,
    percent_agreement,
    reading,
)
from measures.agreement.pairs import PairCounts, PairVotes
from measures.ceiling import ceiling_from_agreement
from measures.cost import label_cost
from measures.estimate import Estimate
from measures.position import SMALL, position_bias
from measures.voting import CHOICES

Ints = NDArray[np.int64]

STATISTICS = (
    ("percent", percent_agreement),
    ("alpha", krippendorff_alpha),
    ("fleiss", fleiss_kappa),
    ("ac1", gwet_ac1),
)


@dataclass(frozen=True, slots=True)
class Votes:
    """The counted votes by index: vote v is on comparison `ids[item[v]]` by `people[person[v]]`;
    `counts` (comparisons, 4) per choice, `pairs` every two votes on one comparison."""

    columns: VoteColumns
    ids: Ints
    item: Ints
    people: Ints
    person: Ints
    counts: Ints
    pairs: PairVotes
    of_people: PairCounts


def votes_indexed(columns: VoteColumns) -> Votes:
    ids, item = np.unique(columns.comparison, return_inverse=True)
    people, person = np.unique(columns.annotator, return_inverse=True)
    item, person = item.reshape(-1), person.reshape(-1)
    pairs = pair_votes(item, person, columns.choice)
    return Votes(
        columns=columns,
        ids=ids,
        item=item,
        people=people,
        person=person,
        counts=count_matrix(item, columns.choice, n_items=len(ids), n_categories=len(CHOICES)),
        pairs=pairs,
        of_people=pair_counts(pairs, n_annotators=len(people)),
    )


def statistics_figures(
    votes: Votes, clusters: Clustering, offered: NDArray[np.bool_]
) -> dict[str, Any]:
    """Every statistic with its interval, what the intervals rest on, and the ceiling.

    offered: (4,) the choices there were, which AC1 depends on.
    """
    counts = votes.counts[:, offered]
    cohen = mean_cohen_kappa(
        votes.pairs, votes.of_people, n_categories=len(CHOICES), **clusters.how()
    )
    found = {name: function(counts, **clusters.how()) for name, function in STATISTICS}
    statistics = {name: estimate_figures(estimate) for name, estimate in found.items()}
    if statistics["alpha"]["level"] == Level.CRITICAL:
        statistics["ac1"] = _no_comfort(statistics["ac1"])
    two_way = _two_way(votes.counts, clusters)
    statistics["percent"] = _ties_apart(statistics["percent"], two_way["percent"])
    return {
        "statistics": statistics | {"cohen": estimate_figures(cohen.estimate)},
        "cohen_pairs": {
            "used": cohen.n_pairs,
            "sparse": cohen.n_sparse,
            "undefined": cohen.n_undefined,
        },
        "clustering": _clustering(clusters, found["percent"], counts),
        "two_way": two_way,
    }


def estimate_figures(estimate: Estimate) -> dict[str, Any]:
    return asdict(estimate) | {
        "statistic": NAMES[estimate.statistic],
        "level": str(reading(estimate)),
        "sentence": estimate_said(estimate),
    }


def _no_comfort(ac1: dict[str, Any]) -> dict[str, Any]:
    """AC1 takes what chance gives from the number of choices offered, so two-way coins look better
    than chance as soon as a tie was on offer. Where alpha sees chance, it must not reassure."""
    if ac1["level"] != Level.NO_ALARM:
        return ac1
    numbers = ac1["sentence"].split("): ", 1)[0]
    return ac1 | {
        "level": str(Level.UNSURE),
        "sentence": f"{numbers}): above 0 though alpha is not. AC1 counts choices that hardly "
        "anybody made as part of chance; go by alpha here.",
    }


def _ties_apart(percent: dict[str, Any], two_way: dict[str, Any]) -> dict[str, Any]:
    """60 % is little where two choices are offered. With ties and both-bad as choices of their own
    less is to be expected, so it is an alarm only where votes for A or B agree no better."""
    if percent["level"] != Level.BAD or two_way["level"] not in (Level.NO_ALARM, Level.UNSURE):
        return percent
    numbers = percent["sentence"].split("): ", 1)[0]
    return percent | {
        "level": str(Level.UNSURE),
        "sentence": f"{numbers}): under 60 % because ties and both-bad count as disagreement here; "
        f"among votes for A or B it is {100 * two_way['value']:.1f} %.",
    }


def _clustering(clusters: Clustering, percent: Estimate, counts: Ints) -> dict[str, Any]:
    """What was taken as independent, and how much wider that makes percent agreement's interval."""
    figures: dict[str, Any] = {
        "by": clusters.by,
        "n_groups": clusters.n_groups,
        "n_answers": clusters.n_answers,
        "reason": clusters.reason,
        "wider": None,
    }
    if clusters.by != "comparisons" and percent.low is not None and percent.high is not None:
        alone = percent_agreement(counts)
        if alone.low is not None and alone.high is not None:
            figures["wider"] = (percent.high - percent.low) / (alone.high - alone.low)
    return figures


def _two_way(counts: Ints, clusters: Clustering) -> dict[str, Any]:
    """Agreement on A-or-B votes only, and the ceiling it implies (defined for two-way votes)."""
    estimate = percent_agreement(counts[:, :2], **clusters.how())
    figures: dict[str, Any] = {"percent": estimate_figures(estimate)}
    if estimate.value is not None:
        figures["ceiling"] = asdict(ceiling_from_agreement(estimate.value))
    return figures


A, B = 0, 1  # places in CHOICES


def position_figures(columns: VoteColumns) -> dict[str, Any]:
    """The pull of the left side over these votes."""
    chose_left = np.where(columns.choice == A, columns.left, 1 - columns.left)
    chose_left = np.where((columns.choice <= B) & (columns.left >= 0), chose_left, -1)
    bias = position_bias(columns.comparison, columns.annotator, chose_left, columns.left == 1)
    level = "undefined" if bias.value is None else "too_few"
    if bias.value is not None and bias.low is not None and bias.high is not None:
        none_shown = bias.low <= 0.5 <= bias.high or abs(bias.value - 0.5) < SMALL
        level = "no_alarm" if none_shown else "unsure"
    return asdict(bias) | {"sentence": position_said(bias), "level": level}


# What the labels of a project cost.

KEPT = (Decision.Outcome.ACCEPTED, Decision.Outcome.ADJUDICATED)


def cost_figures(
    columns: VoteColumns, *, project: Project, settings: LabelingSettings
) -> dict[str, Any]:
    timed = columns.active_ms >= 0
    cost = label_cost(
        votes_by_purpose(columns),
        n_kept=Decision.objects.filter(project=project, outcome__in=KEPT).count(),
        active_seconds=float(columns.active_ms[timed].sum()) / 1000,
        timed=int(timed.sum()),
        vote_price=settings.vote_price,
    )
    return asdict(cost) | {"currency": settings.currency, "vote_price": settings.vote_price}


def votes_by_purpose(columns: VoteColumns) -> dict[str, int]:
    """Current votes by why they were asked for; each has one purpose."""

    def kind(name: str) -> np.ndarray:
        return columns.kind == KINDS.index(name)

    sent_again = np.isin(columns.comparison, np.unique(columns.comparison[kind(Slot.Kind.FORMER)]))
    chosen = (Comparison.Stratum.GOLD, Comparison.Stratum.PRACTICE)
    gold = kind(Slot.Kind.GOLD) | np.isin(columns.stratum, [STRATA.index(s) for s in chosen])
    purposes = {
        "repeat": kind(Slot.Kind.REPEAT),
        "audit": kind(Slot.Kind.AUDIT),
        "gold": gold,
        "round": kind(Slot.Kind.REGULAR) & sent_again,
        "extra": columns.extra,
    }
    found, left = {}, np.ones(len(columns), dtype=bool)
    for name, hit in purposes.items():
        found[name] = int((left & hit).sum())
        left &= ~hit
    return {"first": int(left.sum())} | found
