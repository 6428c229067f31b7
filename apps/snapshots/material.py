"""What a snapshot is assembled from, and what assembling it yields: plain data, no database."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Pair:
    """A comparison as far as assembling needs it.

    `a` and `b` are keys of the responses' normalised texts: the same argument has the same key in
    every pair that it stands in.
    """

    id: int
    group: str
    topic: str
    batch: str
    stratum: str
    dropped: bool
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Ballot:
    """A current vote. `person_key` names its annotator for good, whatever they are renamed to."""

    id: int
    pair: int
    person: int
    person_key: str
    choice: str
    at: dt.datetime


@dataclass(frozen=True, slots=True)
class Material:
    """Everything a project has, in order of id."""

    pairs: tuple[Pair, ...]
    ballots: tuple[Ballot, ...]
    barred: frozenset[int] = frozenset()  # people who voted in another snapshot's training rows


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a file: who won which pair by which votes.

    `person` is set where the row is a single held-out annotator's vote.
    """

    pair: int
    split: str
    winner: str  # a | b
    share: float  # votes for the winner ÷ votes, ties included
    votes: tuple[int, ...]
    person: int | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """A comparison that is not in the decided files, and why; `votes` were looked at."""

    pair: int
    reason: str
    votes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Assembly:
    """`lines` in the order of the files; every pair has lines, or a drop, or (where only held-out
    annotators' votes are kept) both."""

    lines: Mapping[str, tuple[Line, ...]]
    drops: tuple[Drop, ...]
    pairs: Mapping[int, Pair]
    counts: Mapping[str, Any]
    warnings: tuple[str, ...]
