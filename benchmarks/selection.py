"""Whether choosing pairs, or one vote each on more of them, saves votes on the argument pairs.

The replays that *Data readiness* offers, on data/pairs.jsonl.xz, whole debates held out, 20 paired
seeds. Which pairs (measures/selection.py): one label is one of the votes that a pair got, 1,000
votes, the regulariser tuned for random first; the named alternative is drawing pairs at random.
Votes a pair (measures/depth.py): up to 4,000 votes, the regulariser tuned for every way; the named
alternative is one vote each.

Run: python -m benchmarks.selection [pairs]
"""

import os

# One core: set before numpy is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import lzma
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.report import print_report, print_table, versions
from measures.depth import Depth, replay_depth
from measures.estimate import Interval
from measures.selection import Pool, pool_of, replay

PAIRS = Path(__file__).parent.parent / "data" / "pairs.jsonl.xz"


def pool_read(most: int) -> Pool:
    """The first `most` pairs, each with its winner first or second by a fair coin."""
    with lzma.open(PAIRS, "rt") as lines:
        rows = [json.loads(line) for line in lines][:most]
    numbers: dict[str, int] = {}
    won = np.array([numbers.setdefault(row["chosen"], len(numbers)) for row in rows])
    lost = np.array([numbers.setdefault(row["rejected"], len(numbers)) for row in rows])
    votes = np.array([row["votes"] for row in rows])
    for_won = np.array([row["votes_for_chosen"] for row in rows])
    turned = np.random.default_rng(0).random(len(rows)) < 0.5
    return pool_of(
        list(numbers),
        np.where(turned, lost, won),
        np.where(turned, won, lost),
        np.where(turned, votes - for_won, for_won),
        votes,
        groups=[row["debate"] for row in rows],
        prompts=[row["prompt"] for row in rows],
        prompt_texts=[row["prompt"] for row in rows],
    )


def main() -> None:
    pool = pool_read(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
    begun = time.perf_counter()
    depth = replay_depth(pool)
    depth_seconds = time.perf_counter() - begun
    print_table("votes a pair", depth_rows(depth))
    begun = time.perf_counter()
    found = replay(pool)
    rows = [
        {
            "strategy": one.strategy,
            "log loss": f"{one.log_loss[-1]:.4f}",
            "accuracy": f"{one.accuracy[-1]:.4f}",
            "calibration error": f"{one.calibration_error[-1]:.4f}",
            "saved, log loss": _shown(one.saved),
            "saved, accuracy": _shown(one.saved_accuracy),
            "log loss above random, second half": _shown(one.worse, 4),
            "verdict": one.verdict,
        }
        for one in found.curves
    ]
    summary = {
        "pairs": found.n,
        "votes": found.n_votes,
        "groups": found.n_groups,
        "seeds": found.seeds,
        "votes_replayed": found.points[-1] if found.points else 0,
        "ridge": found.ridge,
        "verdict": found.verdict,
        "refused": found.refused,
        "saved_of_randoms_votes": {
            one.strategy: one.saved.value for one in found.curves if one.saved
        },
        "seconds": round(time.perf_counter() - begun, 1),
        "depth": {
            "verdict": depth.verdict,
            "refused": depth.refused,
            "single_votes_reached": depth.room,
            "log_loss_above_one_vote_each": {
                f"{one.way} {one.votes}": one.log_loss_above.value
                for one in depth.cells
                if one.log_loss_above
            },
            "seconds": round(depth_seconds, 1),
        },
        "versions": versions("numpy", "scipy"),
    }
    print_report("selection", rows, summary)


def depth_rows(depth: Depth) -> list[dict[str, object]]:
    return [
        {
            "votes": one.votes,
            "way": one.way,
            "pairs": one.pairs,
            "with a label": f"{one.labelled:.2f}",
            "log loss": f"{one.log_loss:.4f}",
            "above one vote each": _shown(one.log_loss_above, 4),
            "accuracy": f"{one.accuracy:.4f}",
            "accuracy above": _shown(one.accuracy_above, 4),
            "calibration error": f"{one.calibration_error:.4f}",
            "calibration above": _shown(one.calibration_error_above, 4),
            "L2": " ".join(f"{ridge:g}" for ridge in one.ridges),
            "verdict": "under-tuned" if one.under_tuned else one.verdict,
        }
        for one in sorted(depth.cells, key=lambda cell: cell.votes)
    ]


def _shown(of: Interval | None, places: int = 2) -> str:
    if of is None or of.value is None:
        return ""
    if of.low is None or of.high is None:
        return f"{of.value:.{places}f}"
    return f"{of.value:.{places}f} ({of.low:.{places}f} to {of.high:.{places}f})"


if __name__ == "__main__":
    main()
