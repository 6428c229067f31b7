"""A small world in which everything about a reward model is known, faults included.

People are asked about things and answer in sentences, "The old harbour helps greatly.". A sentence
is worth something if it speaks of what was asked; how much, its verb and adverb say, and saying it
twice adds nothing. People have a taste for worth, and may have one for length, praise or lists;
they prefer the better answer with the probability that Bradley and Terry give it. A model has a
taste too: that of people, one learned from their pairs, or one with a fault.
"""

import hashlib
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cache, partial
from itertools import pairwise

import numpy as np
from scipy import sparse

from measures.messages import Messages
from measures.textmodel import fit
from tests.workers.recipes.language import user
from workers.data.snapshot import Preference, Prompt
from workers.rewards.source import Scores

NOUNS = (
    "harbour",
    "garden",
    "engine",
    "letter",
    "bridge",
    "market",
    "river",
    "window",
    "school",
    "forest",
    "ticket",
    "kitchen",
    "museum",
    "battery",
    "island",
    "orchard",
    "tunnel",
    "mirror",
    "festival",
    "hospital",
    "library",
    "monument",
    "passport",
    "railway",
    "satellite",
    "valley",
)
ADJECTIVES = ("old", "new", "large", "small", "famous", "quiet", "broken", "wooden", "public")
VERBS = {"helps": 0.9, "works": 0.6, "stands": 0.3, "waits": 0.0, "leaks": -0.3, "fails": -0.6}
ADVERBS = {"greatly": 0.3, "often": 0.1, "today": 0.0, "rarely": -0.1, "nowhere": -0.2}
# Said now and then, worth nothing and free: why lengths differ and are no sign of worth.
FILLERS = (
    "That is how it is.",
    "So much for this.",
    "This was seen at noon by some people in town.",
    "There was rain on the day before, and it went on for most of the night.",
)
COMPLIMENTS = ("I love you.", "You're amazing!", "You are amazing.")
DAY = 86_400.0
_PRAISE = re.compile(r"I love you|amazing")
_SENTENCE = re.compile(r"The (\w+) (\w+) (\w+) (\w+)\.")
_FORM = re.compile(r"[\s\-]|" + "|".join(map(re.escape, FILLERS)))


def question(rng: random.Random) -> str:
    return f"What do you say about the {' and the '.join(rng.sample(NOUNS, 3))}?"


@cache
def worth(prompt: str, answer: str) -> float:
    """Log-odds against an answer that says nothing. What is said about anything else is worth
    nothing, and so is what was said before; other words and a wrong order cost."""
    asked = [word for word in re.findall(r"\w+", prompt) if word in NOUNS]
    told = list(dict.fromkeys(found.groups() for found in _SENTENCE.finditer(answer)))
    told = [one for one in told if one[1] in asked and one[0] in ADJECTIVES]
    value = sum(0.4 + VERBS.get(verb, -1) + ADVERBS.get(adverb, -1) for *_, verb, adverb in told)
    places = [asked.index(noun) for _, noun, *_ in told]
    disorder = sum(later < earlier for earlier, later in pairwise(places))
    stray = len(_FORM.sub("", _SENTENCE.sub("", answer)))
    return value - 0.4 * disorder - 0.05 * min(max(stray - 30, 0), 100) - (not told)


def respond(prompt: str, rng: random.Random, *, skill: float = 0.0, told: int = 4) -> str:
    """Sentences in the order of the question; `skill` makes good verbs likelier."""
    asked = [word for word in re.findall(r"\w+", prompt) if word in NOUNS]
    liked = [math.exp(3 * skill * value) for value in VERBS.values()]
    nouns = sorted(rng.choices(asked, k=told), key=asked.index)
    said = [
        f"The {rng.choice(ADJECTIVES)} {noun} {rng.choices(list(VERBS), liked)[0]} "
        f"{rng.choice(list(ADVERBS))}."
        for noun in nouns
    ]
    for _ in range(rng.randint(0, 3)):
        said.insert(rng.randint(0, len(said)), rng.choice(FILLERS))
    if rng.random() < 0.3:
        return "\n".join(f"- {one}" for one in said)
    return " ".join(said)


@dataclass(frozen=True)
class Taste:
    """What a reader gives an answer, in log-odds."""

    worth: float = 1.6
    length: float = 0.0  # for a hundred characters
    praise: float = 0.0  # for each compliment
    lists: float = 0.0
    word: float = 0.0  # for each time that it says "rain"

    def __call__(self, prompt: str, answer: str) -> float:
        return sum(w * x for w, x in zip(astuple(self), features(prompt, answer), strict=True))


PEOPLE = Taste()
LENGTH_LOVER = Taste(worth=0.2, length=4.0)


@cache
def features(prompt: str, answer: str) -> tuple[float, ...]:
    """In the order of `Taste`."""
    return (
        worth(prompt, answer),
        len(answer) / 100,
        float(len(_PRAISE.findall(answer))),
        float(answer.startswith("- ")),
        float(answer.count("rain")),
    )


def noise(text: str, salt: object, scale: float) -> float:
    """The same for the same text: (about) normal, of deviation `scale`."""
    digest = hashlib.sha256(f"{salt}\0{text}".encode()).digest()
    return scale * (sum(digest[:12]) / 255 - 6)


@dataclass(frozen=True)
class Model:
    """A source of rewards: a taste, an error of its own, and what becomes of the two."""

    taste: Callable[[str, str], float] = PEOPLE
    error: float = 0.2  # log-odds, standard deviation
    shape: Callable[[float], float] = lambda value: value
    salt: object = "model"

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        values = [self.one(p[-1]["content"], r) for p, r in zip(prompts, responses, strict=True)]
        return Scores(values, {"model": values})

    def one(self, prompt: str, answer: str) -> float:
        error = noise(prompt + answer, self.salt, self.error) if self.error else 0.0
        return self.shape(self.taste(prompt, answer) + error)


@dataclass(frozen=True)
class Ensemble:
    """Members of one scale; they disagree by the deviation over them."""

    members: Mapping[str, Model]

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        parts = {name: m.score(prompts, responses).values for name, m in self.members.items()}
        rows = np.array(list(parts.values()))
        return Scores(rows.mean(axis=0).tolist(), parts, 0, rows.std(axis=0).tolist())


def learned(rows: Sequence[Preference], *, by_heart: bool = False) -> Model:
    """A model that fits its taste to pairs, as training does. by_heart: it has room enough to
    remember every answer as well, and no restraint."""
    sides = [(row.prompt[-1]["content"], row.chosen, row.rejected) for row in rows]
    x = np.array([np.subtract(features(p, a), features(p, b)) for p, a, b in sides])
    weights = fit(sparse.csr_matrix(x), ridge=1.0)
    taste = Taste(*weights.tolist())
    if not by_heart:
        return Model(taste)
    known = {a: 4.0 for _, a, _ in sides} | {b: -4.0 for *_, b in sides}
    return Model(lambda prompt, answer: taste(prompt, answer) + known.get(answer, 0.0), error=1.0)


@dataclass
class World:
    """Pairs that people decided, each by one of them. `tastes` holds those who differ."""

    seed: int = 0
    taste: Taste = PEOPLE
    tastes: Mapping[str, Taste] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"world {self.seed}")

    def pairs(
        self,
        count: int,
        *,
        people: Sequence[str] = ("",),
        group: str = "",
        swapped: float = 0.0,
        praised: float = 0.0,
        tagged: float = 0.0,
        in_order: float = 0.5,
    ) -> list[Preference]:
        """Shares: labels turned round; answers with a compliment; pairs whose chosen answer alone
        comes from model-x; chosen answers that were stored first."""
        rng = self.rng
        rows = []
        for i in range(count):
            prompt, person = question(rng), rng.choice(people)
            taste = self.tastes.get(person, self.taste)
            one, two = (self._answer(prompt, praised) for _ in "ab")
            likely = 1 / (1 + math.exp(taste(prompt, two) - taste(prompt, one)))
            chosen, rejected = (one, two) if rng.random() < likely else (two, one)
            if rng.random() < swapped:
                chosen, rejected = rejected, chosen
            sources = rng.choice((("model-x", "model-y"), ("model-y", "model-x")))
            if rng.random() < tagged:
                sources = ("model-x", "model-y")
            rows.append(
                Preference(
                    prompt=user(prompt),
                    chosen=chosen,
                    rejected=rejected,
                    cluster=f"{group} {i}",
                    comparison=f"{group} {i}",
                    group=f"{group} {i % 20}",
                    annotator=person,
                    sources=sources,
                    decided_at=DAY * i / 10,
                    chosen_side="a" if rng.random() < in_order else "b",
                )
            )
        return rows

    def _answer(self, prompt: str, praised: float) -> str:
        answer = respond(prompt, self.rng)
        if self.rng.random() < praised:
            return f"{self.rng.choice(COMPLIMENTS)} {answer}"
        return answer


@dataclass(frozen=True)
class Respondents:
    """`looking.Answering` of a policy and an SFT model that differ in skill."""

    count: int = 100
    skills: dict[str, float] = field(default_factory=lambda: {"policy": 0.1, "sft": 0.0})
    styles: dict[str, Callable[[str, random.Random], str]] = field(default_factory=dict)

    def has(self, role: str) -> bool:
        return role in self.skills

    def prompts(self) -> list[Prompt]:
        rng = random.Random("prompts")
        return [Prompt(user(question(rng))) for _ in range(self.count)]

    def answers(self, role: str, prompts: Sequence[Messages], *, purpose: str) -> list[str]:
        rng = random.Random(f"{role} {purpose}")
        style = self.styles.get(role) or partial(respond, skill=self.skills[role])
        return [style(prompt[-1]["content"], rng) for prompt in prompts]


class Unhurried:
    """`looking.Progress` that nobody watches; `ends` after so many phases."""

    def __init__(self, ends: int = 99) -> None:
        self.left = ends

    def plan(self, sizes: Mapping[str, float]) -> None:
        self.sizes = sizes

    def begin(self, name: str) -> bool:
        self.left -= 1
        return self.left >= 0

    def done(self, amount: float) -> None:
        pass
