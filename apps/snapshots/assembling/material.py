"""What a snapshot is assembled from, and what assembling it yields: plain data, no database."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
    what a person has ruled on it.
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


@dataclass(frozen=True, slots=True)
class Ballot:
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


@dataclass(frozen=True, slots=True)
class Material:
    """Everything a project has, in order of id.

    texts: by key of a pair's `a`, `b` and `prompt`, what near-duplicates are looked for in; empty
    when nobody looks.
    """

    pairs: tuple[Pair, ...]
    ballots: tuple[Ballot, ...]
    barred: frozenset[int] = frozenset()  # people who voted in another snapshot's training rows
    texts: Mapping[str, str] = field(default_factory=dict)


# What a line was decided by.
BY_VOTES, BY_MODEL, BY_RULING, BY_ONE = "votes", "model", "ruling", "vote"


@dataclass(frozen=True, slots=True)
class Line:
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

    lines: Mapping[str, tuple[Line, ...]]
    drops: tuple[Drop, ...]
    pairs: Mapping[int, Pair]
    counts: Mapping[str, Any]
    warnings: tuple[str, ...]
