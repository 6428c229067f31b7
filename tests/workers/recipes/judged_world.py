"""A small world in which everything about a reward model is known, faults included.

People are asked about things and answer in sentences, "The old harbour helps greatly.". A sentence
is worth something if it speaks of what was asked; which, its verb and adverb say, and saying it
twice adds nothing. People prefer the better answer with the probability that Bradley and Terry
give it. A model is a function of prompt and answer: the worth itself, or that and a fault.
"""

import hashlib
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from tests.workers.recipes.language import user
from workers.data.snapshot import Messages, Preference, Prompt
from workers.rewards.source import Scores

NOUNS = (
    *("harbour", "garden", "engine", "letter", "bridge", "market", "river", "window", "school"),
    *("forest", "ticket", "kitchen", "museum", "battery", "island", "orchard", "tunnel", "mirror"),
    *("festival", "hospital", "library", "monument", "passport", "railway", "satellite", "valley"),
)
ADJECTIVES = ("old", "new", "large", "small", "famous", "quiet", "broken", "wooden", "public")
VERBS = {"helps": 0.9, "works": 0.6, "stands": 0.3, "waits": 0.0, "leaks": -0.3, "fails": -0.6}
ADVERBS = {"greatly": 0.3, "often": 0.1, "today": 0.0, "rarely": -0.1, "nowhere": -0.2}
# Said now and then, worth nothing and free: why lengths differ and are no sign of worth.
FILLERS = (
    *("That is how it is.", "So much for this.", "This was seen at noon by some people in town."),
    "There was rain on the day before, and it went on for most of the night.",
)
_SENTENCE = re.compile(r"The (\w+) (\w+) (\w+) (\w+)\.")
_FORM = re.compile(r"[\s\-]|" + "|".join(map(re.escape, FILLERS)))

Fault = Callable[[str, str, float], float]  # prompt, answer, worth -> score


def question(rng: random.Random) -> str:
    return f"What do you say about the {' and the '.join(rng.sample(NOUNS, 3))}?"


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


def noise(text: str, salt: object, scale: float) -> float:
    """The same for the same text: (about) normal, of deviation `scale`."""
    digest = hashlib.sha256(f"{salt}\0{text}".encode()).digest()
    return scale * (sum(digest[:12]) / 255 - 6)


@dataclass(frozen=True)
class Judge:
    """A source of rewards: what is `worth` to people, changed by `fault`, and a little noise."""

    fault: Fault = lambda prompt, answer, value: value
    spread: float = 0.15
    salt: object = "model"

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        values = [self.one(p[-1]["content"], r) for p, r in zip(prompts, responses, strict=True)]
        return Scores(values, {"model": values})

    def one(self, prompt: str, answer: str) -> float:
        value = self.fault(prompt, answer, worth(prompt, answer))
        return value + noise(prompt + answer, self.salt, self.spread)


@dataclass(frozen=True)
class Ensemble:
    members: dict[str, Judge]

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        parts = {name: m.score(prompts, responses).values for name, m in self.members.items()}
        rows = list(zip(*parts.values(), strict=True))
        means = [sum(row) / len(row) for row in rows]
        apart = [
            math.sqrt(sum((x - mean) ** 2 for x in row) / len(row))
            for row, mean in zip(rows, means, strict=True)
        ]
        return Scores(means, parts, 0, apart)


@dataclass
class World:
    """Pairs that people with the taste `taste` decided, each by one of `people`."""

    seed: int = 0
    taste: Callable[[str, str, str], float] = lambda person, prompt, answer: worth(prompt, answer)
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"world {self.seed}")

    def pairs(
        self,
        count: int,
        *,
        people: Sequence[str] = ("",),
        group: str = "",
        swapped: float = 0.0,
        tag: float = 0.0,
        answers: Callable[[str, random.Random], str] = respond,
    ) -> list[Preference]:
        """swapped: share of labels turned round; tag: share of chosen answers whose origin gives
        them away."""
        return [self._pair(i, people, group, swapped, tag, answers) for i in range(count)]

    def _pair(
        self,
        i: int,
        people: Sequence[str],
        group: str,
        swapped: float,
        tag: float,
        answers: Callable[[str, random.Random], str],
    ) -> Preference:
        rng = self.rng
        prompt, person = question(rng), rng.choice(people)
        first, second = answers(prompt, rng), answers(prompt, rng)
        odds = self.taste(person, prompt, first) - self.taste(person, prompt, second)
        if rng.random() > 1 / (1 + math.exp(-odds)):
            first, second = second, first
        if rng.random() < swapped:
            first, second = second, first
        sources = ("model-x", "model-y") if rng.random() < 0.5 else ("model-y", "model-x")
        if rng.random() < tag:
            sources = ("model-x", "model-y")
        return Preference(
            prompt=user(prompt),
            chosen=first,
            rejected=second,
            cluster=f"{group}/{i}",
            comparison=f"{group}/{i}",
            group=group,
            annotator=person,
            sources=sources,
            decided_at=86_400.0 * i,
        )


@dataclass(frozen=True)
class Respondents:
    """`looking.Answering` of a policy and an SFT model that differ in skill."""

    count: int = 100
    skills: dict[str, float] = field(default_factory=lambda: {"policy": 0.3, "sft": 0.0})
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
