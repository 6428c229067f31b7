"""Real votes as count matrices (see data/README.md) and simulated ones."""

import csv
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"
COLUMN = {"a": 0, "b": 1, "tie": 2, "both_bad": 3}


def counts_of(name: str) -> np.ndarray:
    """(items, 4) votes per choice of the crowd "ukp" or "rte"."""
    return np.loadtxt(DATA / f"{name}_counts.csv", dtype=int, delimiter=",", skiprows=1)


def pandalm_votes() -> np.ndarray:
    """(999, 3) choice columns, one per annotator."""
    with (DATA / "pandalm_votes.csv").open() as file:
        return np.array([[COLUMN[word] for word in row] for row in list(csv.reader(file))[1:]])


def pandalm_counts() -> np.ndarray:
    """(999, 4) votes per choice."""
    return np.stack([np.bincount(row, minlength=4) for row in pandalm_votes()])


def crowd(seed: int, n_items: int, n_votes: int, accuracy: float) -> np.ndarray:
    """(n_items, 2) votes of equally good, independent annotators; A or B is right evenly often."""
    rng = np.random.default_rng(seed)
    right = rng.binomial(n_votes, accuracy, size=n_items)
    first = np.where(rng.random(n_items) < 0.5, right, n_votes - right)
    return np.column_stack([first, n_votes - first])
