"""Pairs for the bias report with nothing wrong with them, and the means to plant a fault.

A text's worth is how many liked words it holds; people choose by it, so a text model can learn the
choice. Length, style, order, origin and time have no part in it.
"""

from dataclasses import replace

import numpy as np

from apps.snapshots.reports import ReportMaterial, ReportPair, ReportVote

START, DAY = 1_760_000_000.0, 86_400.0
N, N_GROUPS, N_PEOPLE = 800, 40, 25
_LIKED = 12  # of 80 words


def texts(rng: np.random.Generator, n: int) -> list[str]:
    sizes = rng.integers(20, 40, size=n)
    return [" ".join(f"word{k}" for k in rng.integers(0, 80, size=size)) for size in sizes]


def worth(text: str) -> float:
    """Liked words, as many as chance would put into a text of this length taken off."""
    words = text.split()
    return sum(int(word[4:]) < _LIKED for word in words) - len(words) * _LIKED / 80


def clean(seed: int = 1, n: int = N) -> ReportMaterial:
    rng = np.random.default_rng(seed)
    one, other = texts(rng, n), texts(rng, n)
    votes: dict[int, ReportVote] = {}
    pairs = []
    for k in range(n):
        better = rng.random() < 1 / (1 + np.exp(-2 * (worth(one[k]) - worth(other[k]))))
        won, lost = (one[k], other[k]) if better else (other[k], one[k])
        people = rng.permutation(N_PEOPLE)[:3]
        at = START + 100 * DAY * rng.random()
        ids = tuple(3 * k + i for i in range(3))
        for number, person in zip(ids, people, strict=True):
            left = bool(rng.random() < 0.5)
            votes[number] = ReportVote(number, int(person), at, True, left)
        pairs.append(
            ReportPair(
                id=k,
                split="train",
                prompt=f"prompt {k % N_GROUPS} about thing {k}",
                chosen=won,
                rejected=lost,
                chosen_key=f"c{k}",
                rejected_key=f"r{k}",
                won_first=bool(rng.random() < 0.5),
                share=1.0,
                votes=ids,
                group=f"group {k % N_GROUPS}",
                topic=f"topic {k % 7}",
                language="en",
                batch=f"batch {k % 2}",
                chosen_from=f"model {rng.integers(3)}",
                rejected_from=f"model {rng.integers(3)}",
            )
        )
    return ReportMaterial(tuple(pairs), votes)


def changed(material: ReportMaterial, change) -> ReportMaterial:
    """`change(k, pair)` gives the pair that stands in for the k-th."""
    pairs = tuple(change(k, pair) for k, pair in enumerate(material.pairs))
    return replace(material, pairs=pairs)


def swapped(pair: ReportPair) -> ReportPair:
    """The label says the opposite."""
    return replace(
        pair,
        chosen=pair.rejected,
        rejected=pair.chosen,
        chosen_key=pair.rejected_key,
        rejected_key=pair.chosen_key,
        chosen_from=pair.rejected_from,
        rejected_from=pair.chosen_from,
        won_first=not pair.won_first,
        gold=None if pair.gold is None else not pair.gold,
    )
