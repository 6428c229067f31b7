"""A language of about seventy words, questions in it, answers to learn it from, and what people
really want of an answer. No torch.

Gold is hidden: no run may ask it, only the benchmark does. A typical fact is worth one point.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

Message = dict[str, str]

SUBJECTS = ("cat", "bread", "rain", "garden", "train", "sea", "piano", "moon")
FACTS = {s: tuple(f"{s}-{n}" for n in range(1, 4)) for s in SUBJECTS}
DETAILS = tuple(f"detail-{n}" for n in range(1, 25))  # what may be said of anything
FILLERS = ("well", "so", "then", "also", "perhaps", "really")
POLITE = ("please", "thanks")
REFUSAL = ("sorry", "i", "cannot", "help", "with", "that")
WORDS = (
    *SUBJECTS,
    *DETAILS,
    *FILLERS,
    *POLITE,
    *REFUSAL,
    *(fact for s in SUBJECTS for fact in FACTS[s]),
)
WANTED = 7  # words of a good answer
MAX_NEW_TOKENS = 16
CONTEXT = 28  # tokens: prompt, answer and the marks around them
SKILL = 0.3  # share of choices made with care
REFUSED = 0.04  # share of demonstrations that refuse

REPEATED = 0.3  # points lost for saying a word again
OFF_LENGTH = 0.25  # points lost for every word more or fewer
OFF_TOPIC = -0.3  # a fact of a subject that was not asked about
REFUSED_WORTH = -2.0  # of an answer that refuses


@dataclass(frozen=True, slots=True)
class Question:
    subjects: tuple[str, str]

    @property
    def messages(self) -> list[Message]:
        return [{"role": "user", "content": " ".join(self.subjects)}]

    @classmethod
    def read(cls, messages: Sequence[Mapping[str, str]]) -> "Question":
        first, second = messages[-1]["content"].split()
        return cls((first, second))


def questions(seed: int) -> tuple[list[Question], list[Question]]:
    """(for training, for evaluation): all questions, dealt at random; no overlap."""
    everything = [Question(pair) for pair in permutations(SUBJECTS, 2)]
    random.Random(seed).shuffle(everything)
    return everything[:32], everything[32:]


def refuses(answer: str) -> bool:
    return "cannot" in answer.split()


class Gold:
    """Facts and details have hidden worth, some of them less than none; the rest is moderation."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(f"gold {seed}")
        self.worth = {fact: draw.gauss(0.7, 0.7) for s in SUBJECTS for fact in FACTS[s]}
        self.worth |= {detail: draw.gauss(0.0, 1.0) for detail in DETAILS}

    def __call__(self, question: Question, answer: str) -> float:
        words = Counter(answer.split())
        off_length = -OFF_LENGTH * abs(words.total() - WANTED)
        if refuses(answer):
            return REFUSED_WORTH + off_length
        asked = {fact for s in question.subjects for fact in FACTS[s]}
        told = sum(
            OFF_TOPIC if "-" in word and not self._fits(word, asked) else self.worth.get(word, 0.0)
            for word in words
        )
        repeats = sum(count - 1 for count in words.values())
        return told - REPEATED * repeats + off_length

    @staticmethod
    def _fits(word: str, asked: set[str]) -> bool:
        return word in asked or word.startswith("detail-")


def demonstrations(asked: Sequence[Question], gold: Gold, *, each: int, seed: int) -> list[str]:
    """Answers as people of mixed skill write them, `each` to every question, in order."""
    draw = random.Random(f"demonstrations {seed}")
    return [_demonstration(q, gold.worth, draw) for q in asked for _ in range(each)]


def _demonstration(question: Question, worth: Mapping[str, float], draw: random.Random) -> str:
    if draw.random() < REFUSED:
        return " ".join(REFUSAL)

    def pick(words: Sequence[str]) -> str:
        first, second = draw.choice(words), draw.choice(words)
        return max(first, second, key=worth.__getitem__) if draw.random() < SKILL else first

    words: list[str] = []
    for _ in range(WANTED + draw.choice((-2, -1, 0, 0, 1, 2))):
        kind = draw.random()
        if kind < 0.30:
            words.append(pick(FACTS[draw.choice(question.subjects)]))
        elif kind < 0.42:
            words.append(pick(FACTS[draw.choice(SUBJECTS)]))
        elif kind < 0.75:
            words.append(pick(DETAILS))
        elif kind < 0.78:
            words.append(draw.choice(POLITE))
        elif kind < 0.90:
            words.append(draw.choice(FILLERS))
        else:
            words.append(draw.choice(question.subjects))
    return " ".join(words)
