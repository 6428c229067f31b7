"""Agreement by time, guideline version, topic, language, lengths and sources."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.agreement.selectors.slices import Comparisons, source_words
from apps.agreement.services.statistics import Votes
from measures.agreement import clustering, krippendorff_alpha, percent_agreement
from measures.agreement.slices import Gap, holm, item_agreement, slice_gaps
from measures.estimate import Estimate
from measures.voting import CHOICES

Ints = NDArray[np.int64]

MOST_SLICES = 12  # named values of one kind; the rest is "others"
REPLICATES = 1_000  # a page of eighty intervals; the project's own have twice as many
BINS = 5


@dataclass(frozen=True, slots=True)
class Dimension:
    """One way to slice. Row r has votes `counts[r]` and lies in slice `place[r]` (−1: none);
    `group[r]` is what it hangs together with. `labels[s]` names a slice, `starts[s]` is its first
    day for time. The last slice is a mixture where `others` says how many values it holds."""

    key: str
    labels: list[str]
    place: Ints
    counts: Ints
    group: Ints
    others: int = 0
    unit: str = ""


def slice_figures(votes: Votes, about: Comparisons) -> dict[str, Any]:
    """Each dimension's slices with percent agreement and alpha, and which slices stand out."""
    rows = about.rows_of(votes.ids)
    group = about.group[rows]
    dimensions = [
        _time(votes, group),
        _guideline(votes, group),
        _named("topic", about.topic[rows], votes, group, _namer(about, "no topic stated")),
        _named("language", about.language[rows], votes, group, _namer(about, "not stated")),
        _prompt_length(about.prompt_length[rows], votes, group),
        _length_gap(about.length_a[rows], about.length_b[rows], votes, group),
        _sources(about, rows, votes, group),
    ]
    gaps = [_gaps(dimension) for dimension in dimensions]
    settled = iter(holm([gap for part in gaps for gap in part]))
    tested = [[next(settled) for _ in part] for part in gaps]
    return {
        "dimensions": [
            {
                "key": dimension.key,
                "unit": dimension.unit,
                "others": dimension.others,
                "slices": [_slice(dimension, number, gap) for number, gap in enumerate(gaps_of_it)],
            }
            for dimension, gaps_of_it in zip(dimensions, tested, strict=True)
        ],
        "n_tested": sum(gap.p is not None for part in tested for gap in part),
    }


def _gaps(dimension: Dimension) -> list[Gap]:
    n = len(dimension.labels)
    if n < 2:
        return [Gap(None, None, None, None, 0, untested="nothing to compare with")] * n
    inside = dimension.place >= 0
    found = slice_gaps(
        item_agreement(dimension.counts[inside]),
        dimension.place[inside],
        n_slices=n,
        groups=dimension.group[inside],
    )
    if dimension.others:
        found[-1] = replace(found[-1], p=None, untested="a mixture of values")
    return found


def _slice(dimension: Dimension, number: int, gap: Gap) -> dict[str, Any]:
    here = dimension.place == number
    counts = dimension.counts[here]
    groups = clustering(dimension.group[here]).groups
    percent = percent_agreement(counts, groups=groups, replicates=REPLICATES)
    alpha = krippendorff_alpha(counts, groups=groups, replicates=REPLICATES)
    return {
        "label": dimension.labels[number],
        "n_items": percent.n_items,
        "n_votes": percent.n_votes,
        "percent": _short(percent),
        "alpha": _short(alpha),
        "gap": asdict(gap) | {"is_worse": gap.is_worse},
    }


def _short(estimate: Estimate) -> dict[str, Any]:
    kept = ("value", "low", "high", "undefined", "no_interval")
    return {name: getattr(estimate, name) for name in kept}


def _time(votes: Votes, group: Ints) -> Dimension:
    """By when a comparison got its first vote. (Its last one comes later where people differ, so
    going by that would make late weeks look bad.)"""
    first = np.full(len(votes.ids), np.iinfo(np.int64).max)
    np.minimum.at(first, votes.item, votes.columns.cast_at)
    days = (first // 86_400).astype("datetime64[D]")
    unit, starts = _calendar(days)
    found, place = np.unique(starts, return_inverse=True)
    labels = [str(day) for day in found.astype("datetime64[D]")]
    return Dimension("time", labels, place.reshape(-1), votes.counts, group, unit=unit)


MONDAY = np.datetime64("1970-01-05", "D")


def _calendar(days: NDArray) -> tuple[str, NDArray]:
    """Days, weeks, months, quarters or years: the finest with at most about thirty of them."""
    if not len(days):
        return "day", days
    span = int((days.max() - days.min()).astype(int)) + 1
    if span <= 21:
        return "day", days
    if span <= 7 * 30:
        return "week", MONDAY + (days - MONDAY) // np.timedelta64(7, "D") * np.timedelta64(7, "D")
    months = days.astype("datetime64[M]")
    if span <= 31 * 30:
        return "month", months.astype("datetime64[D]")
    if span <= 92 * 30:
        quarters = (months.astype(int) // 3 * 3).astype("datetime64[M]")
        return "quarter", quarters.astype("datetime64[D]")
    return "year", days.astype("datetime64[Y]").astype("datetime64[D]")


def _guideline(votes: Votes, group: Ints) -> Dimension:
    """By the version votes were cast under; two votes count together where it was the same."""
    key = votes.item * (int(votes.columns.guideline.max(initial=0)) + 1) + votes.columns.guideline
    names, row = np.unique(key, return_inverse=True)
    base = int(votes.columns.guideline.max(initial=0)) + 1
    counts = np.zeros((len(names), len(CHOICES)), dtype=np.int64)
    np.add.at(counts, (row.reshape(-1), votes.columns.choice), 1)
    versions, place = np.unique(names % base, return_inverse=True)
    labels = [f"version {v}" if v else "before any" for v in versions.tolist()]
    return Dimension("guideline", labels, place.reshape(-1), counts, group[names // base])


def _namer(about: Comparisons, missing: str) -> Callable[[int], str]:
    return lambda key: about.names.get(key) or missing


def _named(
    key: str, values: Ints, votes: Votes, group: Ints, name: Callable[[int], str]
) -> Dimension:
    """By a name; the commonest stand alone, the rest together."""
    paired = votes.counts.sum(axis=1) >= 2
    found, place = np.unique(values, return_inverse=True)
    place = place.reshape(-1)
    n = np.bincount(place, weights=paired, minlength=len(found))
    order = [int(i) for i in np.argsort(-n, kind="stable") if n[i]]
    kept, rest = order, []
    if len(order) > MOST_SLICES:
        kept, rest = order[: MOST_SLICES - 1], order[MOST_SLICES - 1 :]
    rank = np.full(len(found), -1, dtype=np.int64)
    rank[kept] = np.arange(len(kept))
    rank[rest] = len(kept)
    labels = [name(int(found[i])) for i in kept]
    if rest:
        labels.append(f"{len(rest)} others")
    return Dimension(key, labels, rank[place], votes.counts, group, others=len(rest))


def _prompt_length(length: Ints, votes: Votes, group: Ints) -> Dimension:
    """By fifths of the comparisons."""
    edges = np.unique(np.quantile(length, np.arange(1, BINS) / BINS).astype(np.int64))
    edges = edges[edges < length.max(initial=0)] if len(length) else edges
    place = np.searchsorted(edges, length, side="left")
    bounds = [0, *edges.tolist(), int(length.max(initial=0))]
    labels = [
        f"{low + 1:,}–{high:,} characters" if low else f"up to {high:,} characters"
        for low, high in pairwise(bounds)
    ]
    return Dimension("prompt_length", labels, place, votes.counts, group)


# The longer answer is at most so many times as long as the shorter one.
RATIOS = (1.1, 1.5, 2.0, 4.0)
RATIO_LABELS = [
    "about equal (up to 1.1 times)",
    "up to 1.5 times as long",
    "up to 2 times as long",
    "up to 4 times as long",
    "over 4 times as long",
]


def _length_gap(a: Ints, b: Ints, votes: Votes, group: Ints) -> Dimension:
    ratio = np.maximum(a, b) / np.maximum(np.minimum(a, b), 1)
    place = np.searchsorted(np.array(RATIOS), ratio, side="left")
    return _without_empty("length_gap", RATIO_LABELS, place, votes, group)


def _without_empty(
    key: str, labels: list[str], place: Ints, votes: Votes, group: Ints
) -> Dimension:
    present = np.unique(place)
    return Dimension(
        key,
        [labels[i] for i in present.tolist()],
        np.searchsorted(present, place),
        votes.counts,
        group,
    )


def _sources(about: Comparisons, rows: Ints, votes: Votes, group: Ints) -> Dimension:
    """By the two sources compared, whichever of them was A."""
    codes, index = np.unique(
        np.concatenate([about.source_a[rows], about.source_b[rows]]), return_inverse=True
    )
    a, b = index.reshape(2, -1)
    n = max(len(codes), 1)
    pair = np.minimum(a, b) * n + np.maximum(a, b)
    words = [source_words(about.names.get(code, "")) for code in codes.tolist()]

    def name(key: int) -> str:
        first, second = sorted((words[key // n], words[key % n]))
        return f"both {first}" if first == second else f"{first} and {second}"

    return _named("source", pair, votes, group, name)
