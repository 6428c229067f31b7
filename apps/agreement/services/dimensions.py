"""The ways to slice a project's comparisons: by time, guideline, topic, lengths, sources."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from apps.agreement.selectors.slices import Comparisons, source_words
from apps.agreement.services.statistics import Votes
from measures.voting import CHOICES

Ints = NDArray[np.int64]

MOST_SLICES = 12  # named values of one kind; the rest is "others"
LEAST_NAMED = 10  # comparisons of a value that stands alone: fewer have no interval
BINS = 5


@dataclass(frozen=True, slots=True)
class Dimension:
    """One way to slice. Row r is comparison `of[r]` with votes `counts[r]`, in slice `place[r]`
    (−1: none), which `labels` names. `others`: how many values the last slice holds together, 0
    where it is one like the rest. `unit`: of time, what a slice is ("week")."""

    key: str
    labels: list[str]
    place: Ints
    counts: Ints
    of: Ints
    others: int = 0
    unit: str = ""


def dimensions_of(votes: Votes, about: Comparisons) -> list[Dimension]:
    rows = about.rows_of(votes.ids)
    return [
        by_time(votes),
        by_guideline(votes),
        _by_name("topic", about.topic[rows], votes, _namer(about, "no topic stated")),
        _by_name("language", about.language[rows], votes, _namer(about, "not stated")),
        by_prompt_length(votes, about.prompt_length[rows]),
        by_length_gap(votes, about.length_a[rows], about.length_b[rows]),
        _by_source(votes, about, rows),
    ]


def by_time(votes: Votes) -> Dimension:
    """By when a comparison got its first vote. (Its last one comes later where people differ, so
    going by that would make late weeks look bad.)"""
    first = np.full(len(votes.ids), np.iinfo(np.int64).max)
    np.minimum.at(first, votes.item, votes.columns.cast_at)
    unit, starts = calendar((first // 86_400).astype("datetime64[D]"))
    found, place = np.unique(starts, return_inverse=True)
    labels = [str(day) for day in found]
    return _whole("time", labels, place.reshape(-1), votes, unit=unit)


_MONDAY = np.datetime64("1970-01-05", "D")
_WEEK = np.timedelta64(7, "D")


def calendar(days: NDArray) -> tuple[str, NDArray]:
    """The first day of each day's period, by days, weeks, months, quarters or years: the finest of
    which there are about thirty at most."""
    if not len(days):
        return "day", days
    span = int((days.max() - days.min()).astype(int)) + 1
    if span <= 21:
        return "day", days
    if span <= 7 * 30:
        return "week", _MONDAY + (days - _MONDAY) // _WEEK * _WEEK
    months = days.astype("datetime64[M]")
    if span <= 31 * 30:
        return "month", months.astype("datetime64[D]")
    if span <= 92 * 30:
        quarters = (months.astype(int) // 3 * 3).astype("datetime64[M]")
        return "quarter", quarters.astype("datetime64[D]")
    return "year", days.astype("datetime64[Y]").astype("datetime64[D]")


def by_guideline(votes: Votes) -> Dimension:
    """By the version votes were cast under; two votes count together where it was the same."""
    base = int(votes.columns.guideline.max(initial=0)) + 1
    names, row = np.unique(votes.item * base + votes.columns.guideline, return_inverse=True)
    cells = row.reshape(-1) * len(CHOICES) + votes.columns.choice
    counts = np.bincount(cells, minlength=len(names) * len(CHOICES))
    versions, place = np.unique(names % base, return_inverse=True)
    labels = [f"version {v}" if v else "none on record" for v in versions.tolist()]
    return Dimension(
        "guideline",
        labels,
        place.reshape(-1),
        counts.reshape(len(names), len(CHOICES)),
        names // base,
    )


def by_prompt_length(votes: Votes, length: Ints) -> Dimension:
    """By fifths of the comparisons."""
    longest = int(length.max(initial=0))
    edges = np.zeros(0, dtype=np.int64)
    if len(length):
        edges = np.unique(np.quantile(length, np.arange(1, BINS) / BINS).astype(np.int64))
    bounds = [0, *edges[edges < longest].tolist(), longest]
    labels = [_between(low, high) for low, high in pairwise(bounds)]
    place = np.searchsorted(np.array(bounds[1:-1], dtype=np.int64), length, side="left")
    return _filled("prompt_length", labels, place, votes)


def _between(low: int, high: int) -> str:
    if not low:
        return f"up to {high:,} characters"
    return f"{high:,} characters" if low + 1 == high else f"{low + 1:,}–{high:,} characters"


# The longer answer is at most so many times as long as the shorter one.
RATIOS = (1.1, 1.5, 2.0, 4.0)
RATIO_LABELS = [
    "about equal (up to 1.1 times)",
    "up to 1.5 times as long",
    "up to 2 times as long",
    "up to 4 times as long",
    "over 4 times as long",
]


def by_length_gap(votes: Votes, a: Ints, b: Ints) -> Dimension:
    ratio = np.maximum(a, b) / np.maximum(np.minimum(a, b), 1)
    place = np.searchsorted(np.array(RATIOS), ratio, side="left")
    return _filled("length_gap", RATIO_LABELS, place, votes)


def _by_source(votes: Votes, about: Comparisons, rows: Ints) -> Dimension:
    """By the two sources compared, whichever of them was A."""
    both = np.concatenate([about.source_a[rows], about.source_b[rows]])
    codes, index = np.unique(both, return_inverse=True)
    a, b = index.reshape(2, -1)
    n = max(len(codes), 1)
    words = [source_words(about.names.get(code, "")) for code in codes.tolist()]

    def name(key: int) -> str:
        first, second = sorted((words[key // n], words[key % n]))
        return f"both {first}" if first == second else f"{first} and {second}"

    return _by_name("source", np.minimum(a, b) * n + np.maximum(a, b), votes, name)


def _namer(about: Comparisons, missing: str) -> Callable[[int], str]:
    return lambda key: about.names.get(key) or missing


def _by_name(key: str, values: Ints, votes: Votes, name: Callable[[int], str]) -> Dimension:
    """The commonest values stand alone, the others together, as do those with few comparisons."""
    paired = votes.counts.sum(axis=1) >= 2
    found, place = np.unique(values, return_inverse=True)
    place = place.reshape(-1)
    n = np.bincount(place, weights=paired, minlength=len(found))
    order = [int(i) for i in np.argsort(-n, kind="stable") if n[i]]
    alone = [i for i in order if n[i] >= LEAST_NAMED or len(order) == 1][:MOST_SLICES]
    rest = order[len(alone) :]
    rank = np.full(len(found), -1, dtype=np.int64)
    rank[alone] = np.arange(len(alone))
    rank[rest] = len(alone)
    labels = [name(int(found[i])) for i in alone]
    if len(rest) == 1:
        labels.append(name(int(found[rest[0]])))
    elif rest:
        labels.append(f"{len(rest):,} others" if alone else f"{len(rest):,} values, all rare")
    others = len(rest) if len(rest) > 1 else 0
    return _whole(key, labels, rank[place], votes, others=others)


def _filled(key: str, labels: list[str], place: Ints, votes: Votes) -> Dimension:
    """Without the slices that hold nothing."""
    present = np.unique(place)
    kept = [labels[i] for i in present.tolist()]
    return _whole(key, kept, np.searchsorted(present, place), votes)


def _whole(
    key: str, labels: list[str], place: Ints, votes: Votes, *, others: int = 0, unit: str = ""
) -> Dimension:
    """A dimension in which every comparison is one row."""
    return Dimension(key, labels, place, votes.counts, np.arange(len(votes.ids)), others, unit)
