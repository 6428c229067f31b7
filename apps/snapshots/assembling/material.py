"""What a snapshot is assembled from, and what assembling it yields: plain data, no database."""

import datetime as dt
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from apps.snapshots.recipe import TRAIN
from measures.bootstrap import LEAST_UNITS
from measures.splits import assign_splits

# Key of a text → the key that its family of near-duplicates goes by; texts alone are left out.
Families = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a person ruled on a comparison, over the votes. `person` is None where unknown."""

    choice: str  # a | b | tie | both_bad
    reason: str = ""
    person: int | None = None
    person_key: str = ""
    at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """A comparison as far as assembling needs it.

    `a` and `b` are keys of the responses' normalised texts: the same argument has the same key in
    every pair that it stands in; `prompt` is that of the prompt. `length_a` and `length_b` count
    characters. `review` says why a person must look at the pair before it may be used; `ruling`
    ruled on it; `gold` the label that it was imported with; `slice` why it was chosen of a
    batch, "" where all of it went to people, `inclusion_probability` with which (None: by a model).
    """

    id: int
    group: str
    topic: str
    batch: str
    stratum: str
    dropped: bool
    a: str
    b: str
    prompt: str = ""
    length_a: int = 0
    length_b: int = 0
    review: str = ""
    ruling: Judgement | None = None
    gold: str = ""
    slice: str = ""
    inclusion_probability: float | None = None

    @property
    def is_selected(self) -> bool:
        """A model chose it: what is measured on such pairs says nothing about others."""
        return self.slice == "selected"


@dataclass(frozen=True, slots=True)
class CurrentVote:
    """A current vote. `person_key` names its annotator for good, whatever they are renamed to.

    strength: 1 slightly, 2 much, None where it was not asked; unsafe: flagged so by this person.
    """

    id: int
    pair: int
    person: int
    person_key: str
    choice: str
    at: dt.datetime
    strength: int | None = None
    unsafe: bool = False


def person_key(person: int, username: str, is_imported: bool) -> str:
    """What annotator hold-outs hash: an imported person's id at the source, another's row.

    The former is the same in every workspace that imports the same votes (a username also names
    the project); the latter outlives a change of name.
    """
    if not is_imported:
        return f"user:{person}"
    names = username.split(".", 2)
    at_source = names[2] if len(names) == 3 and names[0] == "imported" else username
    return f"import:{at_source}"


@dataclass(frozen=True, slots=True)
class Material:
    """Everything a project has, in order of id.

    texts: by key of a pair's `a`, `b` and `prompt`, what near-duplicates are looked for in; empty
    when nobody looks. simulated: ids of the votes that no person cast.
    """

    pairs: tuple[Pair, ...]
    votes: tuple[CurrentVote, ...]
    barred: frozenset[int] = frozenset()  # people who voted in another snapshot's training rows
    texts: Mapping[str, str] = field(default_factory=dict)
    simulated: frozenset[int] = frozenset()


# What a line was decided by.
BY_VOTES, BY_MODEL, BY_RULING, BY_ONE = "votes", "model", "ruling", "vote"
BY_LABEL = "label"  # the published one


@dataclass(frozen=True, slots=True)
class SplitLine:
    """One comparison of a file (two rows of it where labels are unpaired): who won by which votes.

    winner: a or b; tie and both_bad too where the policy keeps them. share: votes for the winner ÷
    votes, ties included. confidence: P(chosen is preferred) as the row states it: the share, the
    posterior, the soft label, or 1 for a ruling. posterior: of the winner, None unless a model
    decided. strength: mean normalised strength towards the winner, None without graded votes.
    `person` is set where the row is a single held-out annotator's vote.
    """

    pair: int
    split: str
    winner: str
    share: float
    votes: tuple[int, ...]
    person: int | None = None
    confidence: float = 1.0
    posterior: float | None = None
    weight: float = 1.0
    strength: float | None = None
    by: str = BY_VOTES
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Drop:
    """A comparison that is not in the decided files, and why; `votes` were looked at.

    reason: one of few stable words, to count by; detail: what else is known, in a sentence.
    """

    pair: int
    reason: str
    votes: tuple[int, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Assembly:
    """`lines` in the order of the files; every pair has lines, or a drop, or (where only held-out
    annotators' votes are kept) both."""

    lines: Mapping[str, tuple[SplitLine, ...]]
    drops: tuple[Drop, ...]
    pairs: Mapping[int, Pair]
    counts: Mapping[str, Any]
    warnings: tuple[str, ...]


# What must stay on one side of a split: groups, or arguments that pairs tie together.
#
# An argument stands in many pairs. If two pairs share one, a model trained on the first has read
# half of the second; so pairs are joined through their arguments into connected components, and a
# split takes whole components. Where there are groups enough (debates, prompts) it takes whole
# groups, and groups that share an argument are joined into one unit. Near-duplicates count as the
# same where the recipe joins them.

BY_GROUP, BY_ARGUMENT = "group", "argument"


@dataclass(frozen=True, slots=True)
class Units:
    """`of[pair]` is the key of its unit, `component[pair]` of its argument component."""

    by: str
    of: Mapping[int, str]
    component: Mapping[int, str]
    n_groups: int = 0
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


def split_by(pairs: Sequence[Pair], wanted: str) -> str:
    """By group or by argument: as wanted, or whichever there are enough of (auto)."""
    if wanted != "auto":
        return wanted
    n_groups = len({pair.group for pair in pairs})
    return BY_GROUP if n_groups >= LEAST_UNITS else BY_ARGUMENT


def as_families(pair: Pair, alike: Families) -> Pair:
    """The pair with the keys of its texts' families."""
    return replace(
        pair,
        a=alike.get(pair.a, pair.a),
        b=alike.get(pair.b, pair.b),
        prompt=alike.get(pair.prompt, pair.prompt),
    )


def units_of(pairs: Sequence[Pair], wanted: str, alike: Families | None = None) -> Units:
    """The units of `pairs`, near-duplicates (`alike`) taken for the same text."""
    by = split_by(pairs, wanted)
    n_groups = len({pair.group for pair in pairs})
    plain = components(pairs, lambda pair: (pair.a, pair.b))
    joined_pairs = [as_families(pair, alike) for pair in pairs] if alike else pairs
    if by == BY_GROUP:
        joined = components(joined_pairs, _group_ties)
        of = _named_by_group(pairs, joined)
        return Units(by, of, plain, n_groups, _about_joining(of, n_groups))
    warnings = ()
    if wanted == "auto":
        left = f"{n_groups} groups are left" if n_groups != 1 else "one group is left"
        warnings = (
            f"Only {left} to split (at least {LEAST_UNITS} are needed to split by group): split by "
            "argument instead, so that no argument occurs in two splits, but the same group may.",
        )
    of = components(joined_pairs, lambda pair: (pair.a, pair.b)) if alike else plain
    return Units(by, of, plain, n_groups, warnings)


def place(units: Units, shares: Mapping[str, float], seed: str) -> Placement:
    """The split of each pair, by the hash of its unit."""
    if shares.get(TRAIN) == 1:
        return Placement(
            dict.fromkeys(units.of, TRAIN), {TRAIN: len(set(units.of.values()))}, units.warnings
        )
    assigned = assign_splits(list(units.of.values()), shares, seed)
    warnings = [*units.warnings]
    what = "groups" if units.by == BY_GROUP else "argument components"
    wanted = {split: n for split, n in assigned.n_groups.items() if shares.get(split)}
    empty = [split for split, n in wanted.items() if not n]
    few = [
        f"{split} ({n})"
        for split, n in wanted.items()
        if 0 < n < LEAST_UNITS and split != TRAIN and units.by == BY_GROUP
    ]
    if empty:
        verb = "is" if len(empty) == 1 else "are"
        warnings.append(
            f"{_and(empty)} {verb} empty: none of the {sum(wanted.values()):,} {what} fell into "
            f"{'it' if len(empty) == 1 else 'them'}. Give it a larger share, or none."
        )
    if few:
        warnings.append(
            f"Few groups in {_and(few)}: with under {LEAST_UNITS} there is no interval over groups."
        )
    return Placement(
        dict(zip(units.of, assigned.splits, strict=True)), assigned.n_groups, tuple(warnings)
    )


def _group_ties(pair: Pair) -> tuple[Hashable, ...]:
    ties = (("g", pair.group), ("t", pair.a), ("t", pair.b))
    return (*ties, ("p", pair.prompt)) if pair.prompt else ties


def _about_joining(of: Mapping[int, str], n_groups: int) -> tuple[str, ...]:
    n_units = len(set(of.values()))
    if n_units >= LEAST_UNITS or n_groups < LEAST_UNITS:
        return ()
    return (
        f"{n_groups} groups share arguments, prompts or near-duplicates of them and make only "
        f"{n_units} units that can be split. If the prompts follow one template, ask for a higher "
        "similarity of near-duplicates; if arguments recur everywhere, split by argument.",
    )


def _named_by_group(pairs: Sequence[Pair], joined: Mapping[int, str]) -> dict[int, str]:
    """Name each unit by its oldest group, so that what comes later follows and never moves it."""
    oldest: dict[str, tuple[int, str]] = {}
    for pair in pairs:
        unit = joined[pair.id]
        oldest[unit] = min((pair.id, pair.group), oldest.get(unit, (pair.id, pair.group)))
    return {pair.id: oldest[joined[pair.id]][1] for pair in pairs}


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
