"""Crowds for the tests of the models of the voters: real ones, and simulated with known truths."""

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from measures.consensus import Votes, share_right, votes_from

DATA = Path(__file__).parent / "data"
CODE = {"a": 0, "b": 1, "t": 2, "tie": 2}


def real_crowd(name: str) -> tuple[Votes, NDArray[np.int64]]:
    """Votes and gold (−1 where unknown) of the crowd "ukp" or "rte" (see data/README.md)."""
    items, annotators, choices, gold = [], [], [], []
    with (DATA / f"{name}_votes.csv").open() as file:
        for number, (truth, votes) in enumerate(list(csv.reader(file))[1:]):
            gold.append(CODE.get(truth, -1))
            for vote in votes.split():
                items.append(number)
                annotators.append(int(vote[:-1]))
                choices.append(CODE[vote[-1]])
    return votes_from(items, annotators, choices, n_items=len(gold)), np.array(gold)


def simulated(
    seed: int,
    matrices: NDArray[np.float64],
    *,
    n_items: int = 400,
    per_item: int = 5,
    balance: tuple[float, ...] | None = None,
) -> tuple[Votes, NDArray[np.int64]]:
    """Votes drawn as Dawid–Skene says, everybody equally busy; and the truths.

    matrices: (J, K, K) P(vote | truth). balance: how often each truth occurs, even if None.
    """
    rng = np.random.default_rng(seed)
    n_annotators, k, _ = matrices.shape
    shares = np.ones(k) / k if balance is None else np.array(balance)
    truth = rng.choice(k, size=n_items, p=shares)
    who = np.argsort(rng.random((n_items, n_annotators)), axis=1)[:, :per_item]
    steps = matrices[who, truth[:, None]].cumsum(axis=2)[:, :, :-1]
    cast = (rng.random((n_items, per_item, 1)) > steps).sum(axis=2)
    votes = votes_from(
        np.repeat(np.arange(n_items), per_item),
        who.ravel(),
        cast.ravel(),
        n_items=n_items,
        n_annotators=n_annotators,
    )
    return votes, truth


def coins(*accuracies: float, k: int = 2) -> NDArray[np.float64]:
    """(J, K, K) one-coin matrices of people with these accuracies."""
    q = np.array(accuracies)[:, None, None]
    return q * np.eye(k) + (1 - q) / (k - 1) * (1 - np.eye(k))


def people(seed: int, n: int, k: int = 2) -> NDArray[np.float64]:
    """(n, K, K) of people whose accuracies are Beta(8, 3): 73 % on average."""
    return coins(*np.random.default_rng(seed).beta(8, 3, size=n), k=k)


def accuracy(scores: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    """Per cent right; a tie of m counts 1/m where it holds the truth; unknown truths left out."""
    return 100 * float(np.nanmean(share_right(scores, truth)))
