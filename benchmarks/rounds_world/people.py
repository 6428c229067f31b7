"""Simulated people who compare two answers, and how often they err against the hidden utility.

    u_person(answer) = u(answer) + Σ over words of the person's taste + per_word · words
    d = (u_person(left) − u_person(right) + pull) / temperature
    left with σ(d − τ), right with σ(−d − τ), "tie" otherwise
    with the chance `lapse + fatigue · (votes of the session / 100)` a coin, whatever stands there

u is the utility that nobody tells anybody (`overoptimization_world.gold`), in points. The ties are
those of Rao & Kupper 1967: two answers that seem nearly alike. An *effective flip* is a vote for
the answer of the lower u, of those that name one (AlpacaFarm, Dubois et al. 2023, has 25 % of them
by flipping labels); here it comes out of tastes, temperature, lapses and pull, and `calibrated`
finds the temperature at which it is a given share.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.overoptimization_world.gold import Gold
from benchmarks.overoptimization_world.language import DETAILS, FACTS, SUBJECTS, Question

Floats = NDArray[np.float64]

FLIPS = 0.25  # effective ones that crowds are calibrated to
LEFT, RIGHT, TIE = "left", "right", "tie"


@dataclass(frozen=True, slots=True)
class Habits:
    """Of a population. Two numbers are the mean and the deviation over its people.

    taste: deviation of what a person adds to the worth of a fact or detail, points; per_word: what
    a word more is worth to them, points; pull: what standing on the left is worth, points;
    temperature, points; tie: τ, logits; lapse: chance of a coin; fatigue: its rise over 100 votes.
    """

    taste: float = 0.4
    per_word: tuple[float, float] = (0.05, 0.05)
    pull: tuple[float, float] = (0.2, 0.1)
    temperature: float = 1.0
    tie: float = 0.15
    lapse: tuple[float, float] = (0.06, 0.03)
    fatigue: float = 0.03


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    taste: dict[str, float]
    per_word: float
    pull: float
    temperature: float
    tie: float
    lapse: float
    fatigue: float

    def likes(self, gold: Gold, question: Question, answer: str) -> float:
        """u_person, points."""
        words = answer.split()
        own = sum(self.taste.get(word, 0.0) for word in words)
        return gold(question, answer) + own + self.per_word * len(words)

    def coin(self, done: int) -> float:
        """The chance of a lapse after so many votes of a session."""
        return min(1.0, self.lapse + self.fatigue * done / 100)

    def says(
        self,
        gold: Gold,
        question: Question,
        left: str,
        right: str,
        draw: random.Random,
        *,
        done: int = 0,
    ) -> str:
        """left, right or tie; `done`: votes of this session so far."""
        if draw.random() < self.coin(done):
            return draw.choice((LEFT, RIGHT))
        margin = self.likes(gold, question, left) - self.likes(gold, question, right) + self.pull
        to_left = float(expit(margin / self.temperature - self.tie))
        to_right = float(expit(-margin / self.temperature - self.tie))
        where = draw.random()
        return LEFT if where < to_left else RIGHT if where < to_left + to_right else TIE


def crowd(size: int, habits: Habits, *, seed: str) -> list[Person]:
    """People drawn from one population."""
    draw = random.Random(f"people {seed}")
    words = [*(fact for s in SUBJECTS for fact in FACTS[s]), *DETAILS]
    return [
        Person(
            f"{seed} {n:02}",
            {word: draw.gauss(0.0, habits.taste) for word in words},
            draw.gauss(*habits.per_word),
            draw.gauss(*habits.pull),
            habits.temperature,
            habits.tie,
            min(0.5, max(0.0, draw.gauss(*habits.lapse))),
            habits.fatigue,
        )
        for n in range(1, size + 1)
    ]


Pair = tuple[Question, str, str]


def expected_flips(
    gold: Gold, people: Sequence[Person], pairs: Sequence[Pair], *, done: int = 0
) -> float:
    """The share of effective flips, exactly: over people, pairs whose utilities differ, and sides;
    votes that say "tie" are left out. `done`: how tired they are, in votes."""
    return _flips(people, _margins(gold, people, pairs), done)


def calibrated(
    gold: Gold,
    people: Sequence[Person],
    pairs: Sequence[Pair],
    *,
    flips: float = FLIPS,
    done: int = 0,
) -> list[Person]:
    """The same people at the temperature at which this share of their votes on these pairs are
    effective flips, by bisection. ValueError where their tastes alone flip more."""
    margins = _margins(gold, people, pairs)
    low, high = 1e-2, 1e2
    if _flips(_at(people, low), margins, done) > flips:
        raise ValueError(f"at any temperature more than {flips:.0%} of the votes are flips")
    for _ in range(40):
        middle = (low * high) ** 0.5
        if _flips(_at(people, middle), margins, done) < flips:
            low = middle
        else:
            high = middle
    return _at(people, low)


def _margins(gold: Gold, people: Sequence[Person], pairs: Sequence[Pair]) -> Floats:
    """(people, pairs) by how much each person likes the answer of higher utility more, points."""
    differ = [(q, a, b) for q, a, b in pairs if gold(q, a) != gold(q, b)]
    ordered = [(q, a, b) if gold(q, a) > gold(q, b) else (q, b, a) for q, a, b in differ]
    return np.array(
        [
            [
                person.likes(gold, q, better) - person.likes(gold, q, worse)
                for q, better, worse in ordered
            ]
            for person in people
        ]
    )


def _flips(people: Sequence[Person], margins: Floats, done: int) -> float:
    wrong = right = 0.0
    for person, own in zip(people, margins, strict=True):
        coin = person.coin(done)
        for pull in (person.pull, -person.pull):
            margin = (own + pull) / person.temperature
            right += float(np.sum(coin / 2 + (1 - coin) * expit(margin - person.tie)))
            wrong += float(np.sum(coin / 2 + (1 - coin) * expit(-margin - person.tie)))
    return wrong / (wrong + right)


def _at(people: Sequence[Person], temperature: float) -> list[Person]:
    return [replace(person, temperature=temperature) for person in people]


@dataclass(frozen=True, slots=True)
class Told:
    """A vote as it was cast, with what the hidden utility says: margin is u(left) − u(right)."""

    margin: float
    said: str

    @property
    def is_flip(self) -> bool:
        return self.said != TIE and (self.margin > 0) != (self.said == LEFT)


@dataclass(frozen=True, slots=True)
class Measured:
    """Of votes that were cast. flips: of those that name an answer, where the utilities differ;
    left: share for the left answer, of those that name one."""

    votes: int
    flips: float
    ties: float
    left: float


def measured(told: Sequence[Told]) -> Measured:
    named = [one for one in told if one.said != TIE]
    counts = Counter(one.said for one in told)
    return Measured(
        len(told),
        fmean(one.is_flip for one in named if one.margin != 0),
        counts[TIE] / len(told),
        counts[LEFT] / len(named),
    )
