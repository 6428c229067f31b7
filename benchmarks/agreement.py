"""Krippendorff's alpha with 2,000 bootstrap replicates at 1,000,000 votes.

The named alternative is a plain Python loop over items, the way the definition reads: it builds one
dictionary per item, and a bootstrap replicate draws the items again. It runs in the same process on
the same votes; since 2,000 of its replicates would take a quarter of an hour, three are timed and
the ratio is per replicate.

Run: python -m benchmarks.agreement
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from benchmarks.report import print_report, versions
from measures.agreement import count_matrix, krippendorff_alpha
from measures.bootstrap import REPLICATES

ITEMS, VOTES_PER_ITEM, CATEGORIES = 200_000, 5, 4
LOOP_REPLICATES = 3

T = TypeVar("T")


def main() -> None:
    items, categories = simulated_votes(seed=1)
    n_votes = len(items)

    counts, build_s = best_of(3, lambda: matrix(items, categories))
    alpha, alpha_s = best_of(3, lambda: krippendorff_alpha(counts, replicates=0))
    estimate, both_s = best_of(3, lambda: krippendorff_alpha(counts, seed=1))
    resample_s = both_s - alpha_s

    long_items, long_categories = items.tolist(), categories.tolist()
    table, loop_build_s = best_of(1, lambda: votes_by_item(long_items, long_categories))
    loop_alpha, loop_alpha_s = best_of(2, lambda: alpha_of(table))
    loop_draws, loop_draws_s = best_of(1, lambda: resampled_alphas(table, LOOP_REPLICATES))

    # Two implementations, one number; and the loop's few replicates fall where ours say.
    assert abs(alpha.value - loop_alpha) < 1e-9
    half = estimate.high - estimate.low
    assert all(estimate.low - half < draw < estimate.high + half for draw in loop_draws)

    per_replicate_s = resample_s / REPLICATES
    loop_per_replicate_s = loop_draws_s / LOOP_REPLICATES
    print_report(
        f"Krippendorff's alpha, {n_votes:,} votes on {ITEMS:,} comparisons",
        [
            row("votes to count matrix", build_s, loop_build_s),
            row("alpha", alpha_s, loop_alpha_s),
            row("one bootstrap replicate", per_replicate_s, loop_per_replicate_s),
            row(f"{REPLICATES:,} replicates", resample_s, loop_per_replicate_s * REPLICATES)
            | {"note": f"loop extrapolated from {LOOP_REPLICATES}"},
        ],
        {
            "votes": n_votes,
            "comparisons": ITEMS,
            "replicates": REPLICATES,
            "alpha": round(estimate.value, 6),
            "alpha_95": [round(estimate.low, 6), round(estimate.high, 6)],
            "count_matrix_s": round(build_s, 5),
            "alpha_s": round(alpha_s, 5),
            "alpha_and_bootstrap_s": round(both_s, 5),
            "alternative": "plain Python loop over items, same run",
            "alternative_alpha_s": round(loop_alpha_s, 4),
            "alternative_replicate_s": round(loop_per_replicate_s, 4),
            "ratio_alpha": round(loop_alpha_s / alpha_s, 1),
            "ratio_replicate": round(loop_per_replicate_s / per_replicate_s, 1),
            "versions": versions("numpy", "scipy"),
        },
    )


def row(step: str, ours: float, loop: float) -> dict[str, object]:
    """One line of the table: seconds, and how many times faster."""
    return {"step": step, "measures (s)": ours, "Python loop (s)": loop, "times": loop / ours}


def simulated_votes(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Shuffled item and category of each vote: 63 % of votes for the item's own best answer."""
    rng = np.random.default_rng(seed)
    items = rng.permutation(np.repeat(np.arange(ITEMS), VOTES_PER_ITEM))
    best = rng.integers(0, 2, size=ITEMS)[items]
    chances = np.array([[0.63, 0.22, 0.12, 0.03], [0.22, 0.63, 0.12, 0.03]])
    drawn = rng.random(len(items))[:, None]
    return items, (drawn > chances[best].cumsum(axis=1)[:, :-1]).sum(axis=1)


def matrix(items: np.ndarray, categories: np.ndarray) -> np.ndarray:
    """Long votes to the count matrix that `measures` works on."""
    return count_matrix(items, categories, n_items=ITEMS, n_categories=CATEGORIES)


def votes_by_item(items: Sequence[int], categories: Sequence[int]) -> list[Counter[int]]:
    """The loop's data structure: a counter of choices per item."""
    table: list[Counter[int]] = [Counter() for _ in range(ITEMS)]
    for item, category in zip(items, categories, strict=True):
        table[item][category] += 1
    return table


def alpha_of(table: Sequence[Counter[int]]) -> float:
    """Nominal alpha, one pass of plain Python over the items."""
    agreeing, totals = 0.0, Counter()
    for counts in table:
        n = sum(counts.values())
        if n < 2:
            continue
        agreeing += sum(k * (k - 1) for k in counts.values()) / (n - 1)
        totals.update(counts)
    votes = sum(totals.values())
    by_chance = sum(k * (k - 1) for k in totals.values())
    return 1 - (1 - agreeing / votes) / (1 - by_chance / (votes * (votes - 1)))


def resampled_alphas(table: Sequence[Counter[int]], replicates: int) -> list[float]:
    """Alpha over items drawn with replacement."""
    draw = random.Random(1)
    return [alpha_of(draw.choices(table, k=len(table))) for _ in range(replicates)]


def best_of(times: int, work: Callable[[], T]) -> tuple[T, float]:
    """The result and the seconds of the fastest of several runs."""
    seconds = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        result = work()
        seconds = min(seconds, time.perf_counter() - start)
    return result, seconds


if __name__ == "__main__":
    main()
