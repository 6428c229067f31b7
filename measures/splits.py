"""Splits and hold-outs that never move: each key is hashed on its own.

A key's place depends on the key, the salt and the shares only: not on the machine, the run, the
order, or which other keys exist. So a later snapshot with more data keeps every earlier assignment,
and nothing that was tested on is ever trained on. Change the salt and everything moves.

The price is chance: with few groups the shares come out uneven, and `assign_splits` says where a
split is too small to be measured on.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from measures.bootstrap import LEAST_UNITS
from measures.duplicates import normalise
from measures.estimate import Quantity, reason

__all__ = [
    "Assignment",
    "Overlap",
    "assign_splits",
    "effective_sample_size",
    "fold_of",
    "normalise",
    "overlap_containment",
    "split_of",
    "unit_hash",
]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The split of each row, the groups per split, and the splits of too few groups."""

    splits: tuple[str, ...]
    n_groups: Mapping[str, int]
    few: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overlap:
    """Distinct normalised texts on both sides; containment = n_both / n_rl."""

    n_sft: int
    n_rl: int
    n_both: int
    containment: float | None
    undefined: str | None = None


def unit_hash(key: str, salt: str) -> float:
    """A number in [0, 1) from key and salt: the top 53 bits of a SHA-256, evenly spread.

    The salt's length is hashed too, so that ("ab", "c") and ("a", "bc") differ.
    """
    digest = hashlib.sha256(f"{len(salt)}:{salt}:{key}".encode("utf-8", "surrogatepass")).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def split_of(group_key: str, shares: Mapping[str, float], salt: str) -> str:
    """The split of a group: the first whose cumulative share exceeds the key's `unit_hash`.

    group_key: what must stay together (a debate, a prompt in `normalise`d form), never a row.
    shares: split to share of groups, in order, summing to 1; the order is part of the assignment.
    Where text recurs across groups the split still leaks: choose a coarser key.
    """
    _check_shares(shares)
    place = unit_hash(group_key, salt)
    for split, edge in _edges(shares):
        if place < edge:
            return split
    raise AssertionError("unreachable: the last edge is 1")


def fold_of(annotator_key: str, share: float, salt: str) -> bool:
    """Is this annotator held out? True for about `share` of all annotators.

    Raising the share only adds annotators: whoever was held out stays so. The key must name a
    person for good; an import without annotator ids cannot be held out by annotator.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must lie between 0 and 1, not {share}")
    return unit_hash(f"annotator:{annotator_key}", salt) < share


def assign_splits(
    group_keys: Sequence[str],
    shares: Mapping[str, float],
    salt: str,
    *,
    least_groups: int = LEAST_UNITS,
) -> Assignment:
    """`split_of` for the group of each row, naming each split of too few groups.

    A split under `least_groups` groups gives no clustered interval; an empty one no figure at all.
    Splits with share 0 are not expected to hold anything.
    """
    _check_shares(shares)
    of_group = {key: split_of(key, shares, salt) for key in set(group_keys)}
    n_groups = dict.fromkeys(shares, 0)
    for split in of_group.values():
        n_groups[split] += 1
    few = tuple(s for s, n in n_groups.items() if n < least_groups and shares[s] > 0)
    return Assignment(tuple(of_group[key] for key in group_keys), n_groups, few)


def effective_sample_size(weights: ArrayLike) -> Quantity:
    """(Σw)² / Σw²: how many equally weighted rows would give a mean as precise.

    Source: Kish, Survey Sampling (1965). Assumes weights unrelated to the values' spread. Undefined
    without a positive weight; a negative one is a ValueError.
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.size and (not np.isfinite(w).all() or w.min() < 0):
        raise ValueError("weights must be finite and at least 0")
    largest = w.max(initial=0.0)
    if largest == 0:
        return Quantity(None, reason("no_weight"))
    scaled = w / largest  # so that tiny or huge weights neither vanish nor overflow when squared
    return Quantity(float(scaled.sum() ** 2 / (scaled**2).sum()))


def overlap_containment(sft_texts: Iterable[str], rl_texts: Iterable[str]) -> Overlap:
    """|SFT ∩ RL| / |RL| over distinct `normalise`d texts.

    The share of RL prompts that the SFT model has already seen; over 0.3 is a warning. Containment
    rather than Jaccard, because a large SFT set must not hide that every RL prompt lies in it. Sees
    exact repeats only (near-duplicates need MinHash). Undefined when there is no RL text.
    """
    sft, rl = _distinct(sft_texts), _distinct(rl_texts)
    both = len(sft & rl)
    if not rl:
        return Overlap(len(sft), 0, 0, None, reason("no_rl_texts"))
    return Overlap(len(sft), len(rl), both, both / len(rl))


def _distinct(texts: Iterable[str]) -> set[str]:
    return {normalise(text) for text in texts}


def _check_shares(shares: Mapping[str, float]) -> None:
    if not shares or min(shares.values()) < 0:
        raise ValueError(f"shares must be at least 0 and name at least one split: {dict(shares)}")
    total = math.fsum(shares.values())
    if not math.isclose(total, 1, abs_tol=1e-9):
        raise ValueError(f"shares must sum to 1, not {total:g}: {dict(shares)}")


def _edges(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    """Cumulative shares; the last split with a positive share ends at exactly 1."""
    names = [name for name, share in shares.items() if share > 0]
    sizes = [shares[name] for name in names]
    edges = [math.fsum(sizes[: i + 1]) for i in range(len(sizes))]
    edges[-1] = 1.0
    return list(zip(names, edges, strict=True))
