"""What must stay on one side of a split: groups, or arguments that pairs tie together.

An argument stands in many pairs. If two pairs share one, a model trained on the first has read half
of the second; so pairs are joined through their arguments into connected components, and a split
takes whole components. Where there are groups enough (debates, prompts) it takes whole groups, and
groups that share an argument are joined into one unit.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from apps.snapshots.material import Pair
from apps.snapshots.recipe import TRAIN
from measures.bootstrap import LEAST_UNITS
from measures.splits import assign_splits

BY_GROUP, BY_ARGUMENT = "group", "argument"


@dataclass(frozen=True, slots=True)
class Units:
    """`of[pair]` is the key of its unit, `component[pair]` of its argument component."""

    by: str
    of: Mapping[int, str]
    component: Mapping[int, str]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """`split[pair]`, how many units each split has, and what is wrong with it."""

    split: Mapping[int, str]
    n_units: Mapping[str, int]
    warnings: tuple[str, ...]


def components(pairs: Iterable[Pair], ties: Callable[[Pair], Sequence[Hashable]]) -> dict[int, str]:
    """Pair id → the least of the keys that tie its connected component together."""
    parent: dict[Hashable, Hashable] = {}

    def root(key: Hashable) -> Hashable:
        parent.setdefault(key, key)
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    first: dict[int, Hashable] = {}
    for pair in pairs:
        keys = ties(pair)
        first[pair.id] = keys[0]
        for key in keys[1:]:
            one, other = sorted((root(keys[0]), root(key)), key=repr)
            parent[other] = one  # the least key stays the root, so it names the component
    return {pair: str(root(key)) for pair, key in first.items()}


def units_of(pairs: Sequence[Pair], by: str) -> Units:
    """The units of `pairs` by group, by argument, or whichever there are enough of (auto)."""
    component = components(pairs, lambda pair: (pair.a, pair.b))
    n_groups = len({pair.group for pair in pairs})
    if by == BY_GROUP or (by == "auto" and n_groups >= LEAST_UNITS):
        joined = components(pairs, lambda p: (("g", p.group), ("t", p.a), ("t", p.b)))
        return Units(BY_GROUP, _named_by_group(pairs, joined), component)
    warnings = ()
    if by == "auto":
        warnings = (
            f"Only {n_groups} groups are left to split (at least {LEAST_UNITS} are needed to split "
            "by group): split by argument instead, so that no argument occurs in two splits, but "
            "the same group may.",
        )
    return Units(BY_ARGUMENT, component, component, warnings)


def place(units: Units, shares: Mapping[str, float], seed: str) -> Placement:
    """The split of each pair, by the hash of its unit."""
    if shares.get(TRAIN) == 1:
        return Placement(
            dict.fromkeys(units.of, TRAIN), {TRAIN: len(set(units.of.values()))}, units.warnings
        )
    assigned = assign_splits(list(units.of.values()), shares, seed)
    warnings = [*units.warnings]
    what = "groups" if units.by == BY_GROUP else "argument components"
    for split, n in assigned.n_groups.items():
        if shares.get(split) and not n:
            warnings.append(f"Split {split} is empty: none of the {what} fell into it.")
        elif split != TRAIN and units.by == BY_GROUP and shares.get(split) and n < LEAST_UNITS:
            warnings.append(f"Split {split} has few groups: {n} (at least {LEAST_UNITS} wanted).")
    return Placement(
        dict(zip(units.of, assigned.splits, strict=True)), assigned.n_groups, tuple(warnings)
    )


def _named_by_group(pairs: Sequence[Pair], joined: Mapping[int, str]) -> dict[int, str]:
    """Name each unit by its least group, so that new texts in a group never move it."""
    least: dict[str, str] = {}
    for pair in pairs:
        unit = joined[pair.id]
        least[unit] = min(pair.group, least.get(unit, pair.group))
    return {pair.id: least[joined[pair.id]] for pair in pairs}
